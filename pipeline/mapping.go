package pipeline

import (
	"errors"
	"fmt"
	"slices"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/pipeline/internal/jsonpick"
)

// mapping converts an event to a row: one value for each column of a table,
// parameter of a statement, or field of a message.
type mapping struct {
	kind    string // "column", "parameter", "field" or "value", for messages
	columns []column
	picker  *jsonpick.Picker // nil if no value is in the body's JSON
	paths   int              // of both pickers
	array   *elements        // whose elements have rows of their own; nil: the event has one
	raw     bool             // the log is Kafka: keys and headers are bytes, and bodies may be null
	proof   proof
}

// newMapping returns a mapping of columns.
func newMapping(of string, columns []column) *mapping { return newElementMapping(of, columns, nil) }

// newElementMapping returns a mapping of columns that may be of an element of an array.
func newElementMapping(of string, columns []column, array *elements) *mapping {
	m := &mapping{kind: of, columns: columns, array: array}
	var paths []jsonpick.Path
	if array != nil {
		array.origin.pick(&paths)
	}
	for i := range columns {
		columns[i].origin.pick(&paths)
	}
	if m.paths = len(paths); m.paths > 0 {
		m.picker = jsonpick.New(paths...)
	}
	if array != nil {
		m.paths += array.bind(columns, len(paths))
	}
	return m
}

func columnNames(columns []column) []string {
	names := make([]string, len(columns))
	for i, c := range columns {
		names[i] = c.name
	}
	return names
}

// rows maps all events, whose memory the rows share. The error has a rejection for each event
// that cannot be mapped, as a [*driver.EventError].
func (m *mapping) rows(events []*sluice.Event, g guards) ([][]any, error) {
	rows := make([][]any, len(events))
	values := make([]any, len(events)*len(m.columns))
	picked := make([]jsonpick.Value, m.paths)
	for i, e := range events {
		rows[i], values = values[:len(m.columns):len(m.columns)], values[len(m.columns):]
		if m.fillBy(boxedShared, g, rows[i], picked, e) != nil {
			return nil, m.rejections(events, g, i)
		}
	}
	return rows, nil
}

// each maps the events one at a time, in order, with the errors of rows. Each row
// overwrites the one before.
func (m *mapping) each(events []*sluice.Event, box boxing, g guards) func(i int) ([]any, error) {
	row := make([]any, len(m.columns))
	picked := make([]jsonpick.Value, m.paths)
	return func(i int) ([]any, error) {
		if m.fillBy(box, g, row, picked, events[i]) != nil {
			return nil, m.rejections(events, g, i)
		}
		return row, nil
	}
}

// rejections returns the errors of all events from first on that cannot be mapped:
// if one of them fails the batch, the engine learns about all of them at once.
func (m *mapping) rejections(events []*sluice.Event, g guards, first int) error {
	var all []error
	row := make([]any, len(m.columns))
	picked := make([]jsonpick.Value, m.paths)
	for i := first; i < len(events); i++ {
		if err := m.fillBy(boxedShared, g, row, picked, events[i]); err != nil {
			all = append(all, &driver.EventError{Index: i, Err: driver.Reject(m.proof.record(err))})
		}
	}
	return errors.Join(all...)
}

// fill maps one event into a row, which may outlive it.
func (m *mapping) fill(row []any, picked []jsonpick.Value, e *sluice.Event) error {
	return m.fillBy(boxed, nil, row, picked, e)
}

func (m *mapping) fillBy(box boxing, g guards, row []any, picked []jsonpick.Value, e *sluice.Event) error {
	if err := m.pick(picked, e); err != nil {
		return err
	}
	for i := range m.columns { // as fillColumn, without a call for each
		c := &m.columns[i]
		v, err := c.cell(e, picked, m.raw)
		if err == nil && g != nil && g[i] != nil {
			v, err = g[i](v)
		}
		if err != nil {
			return m.columnError(c, err)
		}
		row[i] = box(i, v)
	}
	return m.proof.record(nil)
}

// pick finds what the columns need in the body.
func (m *mapping) pick(picked []jsonpick.Value, e *sluice.Event) error {
	if m.raw && e.Body == nil { // and so is each value in it
		for i := range picked {
			picked[i] = jsonpick.Value{Kind: jsonpick.Null}
		}
	} else if m.picker != nil {
		if err := m.picker.Pick(e.Body, picked); err != nil {
			return fmt.Errorf("body: %w", err)
		}
	}
	return nil
}

// fillColumn puts the value of a column into a row.
func (m *mapping) fillColumn(i int, box boxing, g guards, row []any, picked []jsonpick.Value, e *sluice.Event) error {
	c := &m.columns[i]
	v, err := c.cell(e, picked, m.raw)
	if err == nil && g != nil && g[i] != nil {
		v, err = g[i](v)
	}
	if err != nil {
		return m.columnError(c, err)
	}
	row[i] = box(i, v)
	return nil
}

func (m *mapping) columnError(c *column, err error) error {
	return fmt.Errorf("%s %s: %s: %w", m.kind, c.name, c.origin, err)
}

// mappings are all mappings of the pipeline.
func (p *Pipeline) mappings() []*mapping {
	list := p.routing.only.mappings()
	for _, r := range p.routing.routes {
		list = slices.Concat(list, r.only.mappings(), r.target.mappings())
	}
	if p.Rollup {
		list = append(list, p.rollup.mapping)
	}
	return slices.DeleteFunc(list, func(m *mapping) bool { return m == nil })
}

package pipeline

import (
	"context"
	"errors"
	"fmt"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/cosmos"
	"github.com/sluice-go/sluice/internal/jsonscan"
	"github.com/sluice-go/sluice/internal/memory"
	"github.com/sluice-go/sluice/pipeline/internal/jsonpick"
)

// Tried is what a pipeline does with an event.
type Tried struct {
	// Event has the body that the target gets: fetched and decoded. Nil if that failed.
	Event *sluice.Event
	// Skipped: the pipeline does not handle the event: by only, by otherwise, or as the null body
	// after a delete of Debezium.
	Skipped bool
	// Route is the index of the route in the file, 0 in a file without routes; -1: none.
	Route int
	// Kind is the key of the target: insert, statement, cosmos, eventhub, queue, topic, kafka or
	// http. Empty without a route.
	Kind string
	// Table is the table of an insert.
	Table string
	// Cleared: the event deletes all rows of the table.
	Cleared bool
	// Rows are the rows of an insert, one for each element if the file has each; the parameters
	// of a statement, the fields of a message, or the properties of a document are one row. It is
	// there for a rejected event too: its values say which of them are wrong.
	Rows []TriedRow
	// Err is why the event becomes a dead letter, with the text that the dead letter has.
	Err error
}

// TriedRow is a row, with a value for each column of the mapping.
type TriedRow struct {
	Deleted bool // the row with this key is deleted; other columns have no value
	Values  []TriedValue
}

// TriedValue is the value of a column, a parameter or a field.
type TriedValue struct {
	Name, From, Type string // as in the file, with its default
	Value            any    // nil: NULL
	// Missing: the event does not have the value, so that a new row gets the column's default, and
	// a row that exists keeps what it has.
	Missing bool
	Err     error // why the event does not become this value
}

// Try returns what the pipeline does with an event. It writes nothing and needs no database, but
// after [Pipeline.Check] it also refuses the values that the columns of the table would change. It
// reads no other event: what a newer version of a row does is up to the database. The error is an
// outage of what the body is fetched from or decoded with, or that ctx has ended. Try is for tools:
// it finds all wrong values of an event, which takes longer than the pipeline does.
func (p *Pipeline) Try(ctx context.Context, e *sluice.Event) (Tried, error) {
	if p.skips(e) {
		return Tried{Skipped: true, Route: leftOut}, nil
	}
	whole, err := p.body.wholeEvent(ctx, e)
	switch {
	case errors.Is(err, sluice.ErrOutage), errors.Is(err, memory.ErrBusy), err != nil && ctx.Err() != nil:
		return Tried{}, err
	case err != nil:
		return Tried{Route: leftOut, Err: err}, nil
	}
	return p.tryWhole(whole), nil
}

// TryDecoded is [Pipeline.Try] for an event whose body is as the pipeline decodes it.
func (p *Pipeline) TryDecoded(e *sluice.Event) Tried {
	if p.skips(e) {
		return Tried{Skipped: true, Route: leftOut}
	}
	return p.tryWhole(e)
}

// tryWhole tries an event with a decoded body.
func (p *Pipeline) tryWhole(whole *sluice.Event) Tried {
	t := Tried{Event: whole}
	if t.Route, t.Err = p.routing.route(whole); t.Route == leftOut {
		t.Skipped = t.Err == nil
		return t
	}
	if p.Rollup {
		t.Kind = p.Kind()
		t.fill(p.rollup.mapping, nil, whole)
		return t
	}
	to := p.routing.routes[t.Route].target
	t.Kind = to.kind()
	switch to := to.(type) {
	case *tableTarget:
		t.Table = to.table
		t.insert(to, whole)
	case *statementTarget:
		t.fill(to.mapping, to.guards, whole)
	case *messageTarget:
		t.fill(to.mapping, nil, whole)
		if t.Err == nil {
			_, t.Err = to.message(whole)
		}
	case *cosmosTarget:
		var doc document
		if doc, t.Err = to.document(whole); t.Err == nil {
			t.Rows = []TriedRow{documentRow(doc)}
		}
	}
	return t
}

// documentRow is a document with its properties as values.
func documentRow(doc document) TriedRow {
	r := TriedRow{}
	if doc.Operation == cosmos.Patch {
		return patchRow(doc.Body)
	}
	s := jsonscan.New(doc.Body, 10_000)
	_ = s.Object(func(key []byte) error { // document has checked it
		name, err := textOf(key)
		if err != nil {
			return err
		}
		value, err := s.Value()
		v := TriedValue{Name: name, From: "body." + name, Type: string(typeJSON)}
		if string(value) != "null" {
			v.Value = string(value)
		}
		r.Values = append(r.Values, v)
		return err
	})
	return r
}

// skips reports whether an event is left out before its body is looked at.
func (p *Pipeline) skips(e *sluice.Event) bool {
	return e.Body == nil && p.body.format.SkipsNulls() || p.routing.excludes(e)
}

// fill maps an event to one row.
func (t *Tried) fill(m *mapping, g guards, e *sluice.Event) {
	picked := make([]jsonpick.Value, m.paths)
	if t.Err = m.pick(picked, e); t.Err == nil {
		_ = t.row(m, g, e, picked, false, func(string) bool { return true })
	}
}

// insert maps an event to the rows of a table.
func (t *Tried) insert(to *tableTarget, e *sluice.Event) {
	m := to.mapping
	picked := make([]jsonpick.Value, m.paths)
	if t.Err = m.pick(picked, e); t.Err != nil {
		return
	}
	wanted := func(string) bool { return true }
	deleted := false
	if to.key != nil {
		if deleted, t.Cleared, t.Err = to.key.effect(e, m.raw); t.Err != nil || t.Cleared {
			return
		}
		if deleted {
			wanted = to.key.has
		}
	}
	add := func() error { return t.row(m, to.guards, e, picked, deleted, wanted) }
	if !to.walks(deleted) {
		_ = add()
	} else if err := m.array.walk(picked, add); err != nil {
		t.Err = err
	}
}

// row adds a row. It tries all columns, and returns the error of the first one that fails.
func (t *Tried) row(m *mapping, g guards, e *sluice.Event, picked []jsonpick.Value, deleted bool, wanted func(string) bool) error {
	r := TriedRow{Deleted: deleted, Values: make([]TriedValue, 0, len(m.columns))}
	values := make([]any, len(m.columns))
	var first error
	for i := range m.columns {
		c := &m.columns[i]
		if !wanted(c.name) {
			continue
		}
		err := m.fillColumn(i, boxedOwn, g, values, picked, e)
		v := TriedValue{Name: c.name, From: c.origin.String(), Type: string(c.typ), Value: values[i], Err: err}
		if _, v.Missing = v.Value.(missingValue); v.Missing {
			v.Value = nil
		}
		if r.Values = append(r.Values, v); first == nil {
			first = err
		}
	}
	t.Rows = append(t.Rows, r)
	if t.Err == nil {
		t.Err = first
	}
	return first
}

// boxedOwn makes values that outlive the event.
func boxedOwn(_ int, c cell) any {
	if c.kind == cellMissing {
		return missingValue{}
	}
	return c.value()
}

// String says in one line what became of the event.
func (t *Tried) String() string {
	switch {
	case t.Err != nil:
		return "dead letter: " + t.Err.Error()
	case t.Skipped:
		return "skipped"
	case t.Cleared:
		return "deletes all rows of " + t.Table
	case t.Kind != "insert":
		return t.Kind
	case len(t.Rows) == 1 && t.Rows[0].Deleted:
		return "deletes a row of " + t.Table
	case len(t.Rows) > 0 && t.Rows[0].Deleted:
		return fmt.Sprintf("deletes %d rows of %s", len(t.Rows), t.Table)
	case len(t.Rows) == 1:
		return "a row of " + t.Table
	}
	return fmt.Sprintf("%d rows of %s", len(t.Rows), t.Table)
}

package pipeline

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/pipeline/internal/jsonpick"
)

// change is what an event, or an element of it, does to the table.
type change struct {
	row     []any
	event   int // its index in the batch
	deleted bool
	cleared bool // the whole table
	partial bool // the row lacks a value
}

// run are changes that follow each other and have the same columns.
type run struct {
	columns []int // of the mapping
	changes []change
}

// missingValue stands in a row for a value that the event does not have.
type missingValue struct{}

func boxedOrMissing(_ int, c cell) any {
	if c.kind == cellMissing {
		return missingValue{}
	}
	return c.sharedValue()
}

// maxChanges and maxValues are how many changes, and values in them, are in memory at a time.
const (
	maxChanges = 20_000
	maxValues  = 1_000_000
)

// change maps a batch and writes it in runs. The error has a rejection for each event that cannot
// be mapped.
func (t *tableTarget) change(events []*sluice.Event, g guards, write func(*run) error) error {
	var list []change
	var rejected []error
	var failed error // of a write
	flush := func() error {
		for _, r := range t.runs(list) {
			if err := write(&r); err != nil {
				return err
			}
		}
		list = list[:0]
		return nil
	}
	picked := make([]jsonpick.Value, t.mapping.paths)
	for i, e := range events {
		err := t.changesOf(e, i, g, picked, func(c change) error {
			if rejected != nil { // nothing is written any more
				return nil
			}
			if list = append(list, c); len(list) >= maxChanges || len(list)*len(t.mapping.columns) >= maxValues {
				failed = flush()
			}
			return failed
		})
		switch {
		case failed != nil:
			return failed
		case err != nil:
			rejected = append(rejected, &driver.EventError{Index: i, Err: driver.Reject(t.mapping.proof.record(err))})
		}
	}
	if rejected != nil {
		return errors.Join(rejected...)
	}
	return flush()
}

// changesOf maps one event, and has each of its changes taken.
func (t *tableTarget) changesOf(e *sluice.Event, index int, g guards, picked []jsonpick.Value, take func(change) error) (err error) {
	m := t.mapping
	if err := m.pick(picked, e); err != nil {
		return err
	}
	one := change{event: index}
	if t.key != nil {
		if one.deleted, one.cleared, err = t.key.effect(e, m.raw); err != nil {
			return err
		}
	}
	if one.cleared {
		return take(one)
	}
	add := func() error {
		c := one
		c.row = make([]any, len(m.columns))
		for i := range m.columns {
			if c.deleted && !t.key.has(m.columns[i].name) {
				continue // of a delete nothing else counts
			}
			if err := m.fillColumn(i, boxedOrMissing, g, c.row, picked, e); err != nil {
				return err
			}
			if _, left := c.row[i].(missingValue); left {
				c.partial = true
			}
		}
		return take(c)
	}
	if t.walks(one.deleted) {
		err = m.array.walk(picked, add)
	} else {
		err = add()
	}
	return errors.Join(err, m.proof.record(nil))
}

// walks reports whether an event has a change for each element of an array. A delete has, if what
// it needs is of an element.
func (t *tableTarget) walks(deleted bool) bool {
	of := func(c column) bool { return !deleted || t.key.has(c.name) && c.origin.inElement() }
	return t.mapping.array != nil && slices.ContainsFunc(t.mapping.columns, of)
}

// runs divides changes into runs: rows without a value are written without its column, so that a
// new row has the column's default, and an existing one keeps what it has.
func (t *tableTarget) runs(changes []change) []run {
	var runs []run
	whole, last := strings.Repeat("x", len(t.mapping.columns)), ""
	for _, c := range changes {
		signature := last
		switch {
		case c.cleared:
			signature = "cleared"
		case c.deleted && last != "cleared" && len(runs) > 0: // any columns do
		case c.partial:
			signature = t.signature(c)
		default:
			signature = whole
		}
		if n := len(runs); n > 0 && signature == last && !c.cleared {
			runs[n-1].changes = append(runs[n-1].changes, c)
			continue
		}
		last = signature
		r := run{changes: []change{c}}
		for i := range signature {
			if signature[i] == 'x' {
				r.columns = append(r.columns, i)
			}
		}
		if n := len(runs); n > 0 && runs[n-1].deletes() && !c.cleared { // together, an old delete loses
			r.changes = append(runs[n-1].changes, c)
			runs[n-1] = r
			continue
		}
		runs = append(runs, r)
	}
	return runs
}

// deletes reports whether the run deletes rows and does nothing else.
func (r *run) deletes() bool {
	return !slices.ContainsFunc(r.changes, func(c change) bool { return !c.deleted })
}

// signature has an x for each column of a row that is written. NULL stands for other values that
// are missing.
func (t *tableTarget) signature(c change) string {
	var b strings.Builder
	for i, v := range c.row {
		if _, left := v.(missingValue); left && t.leaves(i) {
			b.WriteByte('-')
		} else {
			b.WriteByte('x')
		}
	}
	return b.String()
}

// leaves reports whether a column is left out where its value is missing.
func (t *tableTarget) leaves(column int) bool {
	name := t.mapping.columns[column].name
	return t.key != nil && !t.key.has(name) || t.key == nil && t.defaulted[column]
}

// clears reports whether the run deletes all rows.
func (r *run) clears() bool { return r.changes[0].cleared }

// deleteAll is the SQL that deletes all rows, and anyLeft that which says whether one is left.
func (t *tableTarget) deleteAll() string { return "DELETE FROM " + t.dialect.quoteTable(t.table) }

func (t *tableTarget) anyLeft() string {
	return "SELECT CASE WHEN EXISTS (SELECT 1 FROM " + t.dialect.quoteTable(t.table) + ") THEN 1 ELSE 0 END"
}

// keptRows is why an event is refused that deletes all rows. It is tried again: another transaction
// may have added one.
func (t *tableTarget) keptRows() error {
	return fmt.Errorf("truncate %s: rows are left: a trigger, a rule or a policy of the table keeps them: change that, or set insert.truncates: skip", t.table)
}

// refused is the error of a row that the database refused.
func (r *run) refused(row int, err error) error {
	return &driver.EventError{Index: r.changes[row].event, Err: err}
}

// names are the columns of a run.
func (r *run) names(m *mapping) []string {
	list := make([]string, len(r.columns))
	for i, at := range r.columns {
		list[i] = m.columns[at].name
	}
	return list
}

// rows are the values of a run, as the driver takes them.
func (r *run) rows(t *tableTarget) [][]any {
	rows := make([][]any, len(r.changes))
	for n, c := range r.changes {
		row := make([]any, len(r.columns))
		for i, at := range r.columns {
			row[i] = c.row[at]
			if _, left := row[i].(missingValue); left {
				row[i] = nil
			}
			if t.dialect.argument != nil {
				row[i] = t.dialect.argument(t.mapping.columns[at].typ, row[i])
			}
		}
		rows[n] = row
	}
	return rows
}

// keyed is the write of a run by key.
func (r *run) keyed(k *tableKey) driver.Keyed {
	w := k.keyed()
	w.Delete = func(row int) bool { return r.changes[row].deleted }
	return w
}

// writesRows reports whether each event becomes one new row with all columns, as an insert has it.
func (t *tableTarget) writesRows() bool {
	return t.key == nil && t.mapping.array == nil && !slices.Contains(t.defaulted, true)
}

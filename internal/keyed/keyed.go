// Package keyed has what the databases share when they write rows by key, see [driver.Keyed].
package keyed

import (
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/sluice-go/sluice/driver"
)

// Write is a keyed write of rows to a table.
type Write struct {
	driver.Keyed
	Table   string
	Columns []string
	Rows    [][]any

	KeyAt     []int // the key's columns
	VersionAt int   // the version's column; -1: none
	deletes   []bool
	anyDelete bool
}

// New checks the arguments of a write. A row without a key is a [*RowError].
func New(table string, columns []string, rows [][]any, k driver.Keyed) (*Write, error) {
	w := &Write{Keyed: k, Table: table, Columns: columns, Rows: rows, VersionAt: -1}
	if len(k.Key) == 0 {
		return nil, errors.New("the key has no columns")
	}
	for i, name := range k.Key {
		at := slices.Index(columns, name)
		switch {
		case at < 0:
			return nil, fmt.Errorf("the key's column %s is not among the columns %s", name, strings.Join(columns, ", "))
		case slices.Contains(k.Key[:i], name):
			return nil, fmt.Errorf("the key has column %s twice", name)
		}
		w.KeyAt = append(w.KeyAt, at)
	}
	switch {
	case k.OnConflict > driver.Newer:
		return nil, fmt.Errorf("%v is not known: use Update, Skip or Newer", k.OnConflict)
	case k.OnConflict != driver.Newer && k.Version != "":
		return nil, fmt.Errorf("there is a version, %s, which only Newer compares", k.Version)
	case k.OnConflict == driver.Newer:
		if w.VersionAt = slices.Index(columns, k.Version); w.VersionAt < 0 {
			return nil, fmt.Errorf("the version's column %q is not among the columns %s", k.Version, strings.Join(columns, ", "))
		}
		if slices.Contains(k.Key, k.Version) {
			return nil, fmt.Errorf("the version's column %s is part of the key", k.Version)
		}
	}
	return w, w.check()
}

func (w *Write) check() error {
	w.deletes = make([]bool, len(w.Rows))
	for i, row := range w.Rows {
		if len(row) != len(w.Columns) {
			return fmt.Errorf("row %d has %d values for %d columns", i, len(row), len(w.Columns))
		}
		if w.Delete != nil {
			w.deletes[i] = w.Delete(i)
			w.anyDelete = w.anyDelete || w.deletes[i]
		}
		for _, at := range w.KeyAt {
			if isNull(row[at]) {
				return &RowError{i, NullKey(w.Columns[at])}
			}
		}
	}
	return nil
}

// isNull reports whether a database gets NULL for a value.
func isNull(value any) bool {
	switch v := value.(type) {
	case nil:
		return true
	case string, int64, int, float64, bool:
		return false
	case []byte:
		return v == nil
	case sqldriver.Valuer:
		inner, err := v.Value()
		return err == nil && inner == nil
	}
	v := reflect.ValueOf(value)
	return v.Kind() == reflect.Pointer && v.IsNil()
}

// NullKey is the error of a row without a value in a column of the key.
func NullKey(column string) error {
	return fmt.Errorf("column %s is part of the key and must not be NULL", column)
}

// Deletes reports whether a row is a delete.
func (w *Write) Deletes(row int) bool { return w.deletes[row] }

// AnyDelete reports whether a row is a delete.
func (w *Write) AnyDelete() bool { return w.anyDelete }

// Others returns the columns that are no part of the key.
func (w *Write) Others() (list []string) {
	for _, name := range w.Columns {
		if !slices.Contains(w.Key, name) {
			list = append(list, name)
		}
	}
	return list
}

// RowError names the row of a write that was refused.
type RowError struct {
	Row int
	Err error
}

func (e *RowError) Error() string { return fmt.Sprintf("row %d: %v", e.Row, e.Err) }

// Unwrap returns the cause.
func (e *RowError) Unwrap() error { return e.Err }

// Why a row is refused that is not in the table after it was written, or that is there after it was
// deleted.
var (
	errNotTaken   = errors.New("was not written: a trigger, a rule or a policy of the table leaves it out or moves it: change that, or use a statement of your own")
	errNotDeleted = errors.New("was not deleted: a trigger, a rule or a policy of the table keeps it: change that, or use a statement of your own")
)

// NotTaken is the error of a row that the table does not show after it was written.
func (w *Write) NotTaken(row int) error {
	if w.deletes[row] {
		return &RowError{row, errNotDeleted}
	}
	return &RowError{row, errNotTaken}
}

// Narrow writes some rows, in one part if that succeeds, else in ever smaller ones, in order. It
// returns a [*RowError] if a part of one row is refused; nil if the parts succeed although the
// whole did not; and any other error as it is. write must be repeatable.
func Narrow(rows []int, write func(rows []int) error, refused func(error) bool) error {
	err := write(rows)
	if _, named := errors.AsType[*RowError](err); err == nil || named || !refused(err) {
		return err
	}
	if len(rows) == 1 {
		return &RowError{rows[0], err}
	}
	middle := len(rows) / 2
	for _, half := range [][]int{rows[:middle], rows[middle:]} {
		then := Narrow(half, write, refused)
		if _, named := errors.AsType[*RowError](then); then != nil && !named && !refused(then) {
			then = fmt.Errorf("%w (after: %v)", then, err) // some errors end the transaction
		}
		if then != nil {
			return then
		}
	}
	return nil
}

// All are the indexes of the rows.
func (w *Write) All() []int {
	all := make([]int, len(w.Rows))
	for i := range all {
		all[i] = i
	}
	return all
}

// Index is a unique index of a table.
type Index struct {
	Name    string
	Columns []string
	Unfit   string // why it is no key; empty: it may be one
}

// Fit returns nil if one of the indexes is on exactly the key's columns, and none of these may be
// NULL. quote quotes a name for the statement that the error proposes.
func (w *Write) Fit(indexes []Index, nullable []string, quote func(string) string) error {
	quoted := make([]string, len(w.Key))
	for i, name := range w.Key {
		quoted[i] = quote(name)
	}
	list := strings.Join(w.Key, ", ")
	var has []string
	found := false
	for _, index := range indexes {
		text := index.Name + " (" + strings.Join(index.Columns, ", ") + ")"
		if index.Unfit != "" {
			text += ", which is " + index.Unfit
		}
		has = append(has, text)
		found = found || index.Unfit == "" && same(index.Columns, w.Key)
	}
	if !found {
		why := fmt.Sprintf("has no unique index on exactly (%s): create one, e.g. CREATE UNIQUE INDEX %s ON %s (%s)", list,
			quote(strings.ReplaceAll(w.Table[strings.LastIndex(w.Table, ".")+1:], " ", "_")+"_key"), w.Table, strings.Join(quoted, ", "))
		if len(has) > 0 {
			why += "; it has " + strings.Join(has, "; ")
		}
		return &driver.NoKeyError{Table: w.Table, Why: why}
	}
	for _, name := range w.Key {
		if slices.Contains(nullable, name) {
			return &driver.NoKeyError{Table: w.Table, Why: fmt.Sprintf("allows NULL in column %s of the key (%s), and rows with NULL are never equal: make it NOT NULL", name, list)}
		}
	}
	return nil
}

func same(a, b []string) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(name string) bool { return !slices.Contains(b, name) })
}

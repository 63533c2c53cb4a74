package sqlstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/keyed"
)

// Upsert writes rows to a table by key: it inserts, updates and deletes as k says. Names, values
// and errors are as for [Tx.Insert]; a row without a key is a [*RowError] too. After the writes it
// looks for the rows: one that a trigger has left out, or kept, is an error. A table without the
// key is a [*driver.NoKeyError], an outage that no event is blamed for.
//
// PostgreSQL gets the rows as arrays, and makes no temporary table; new rows are copied if they are
// many. MySQL, MariaDB and SQL Server get the keys in a temporary table of the session, for which
// the user of MySQL and MariaDB needs the right CREATE TEMPORARY TABLES; new rows are inserted as
// by [Tx.Insert], and the others updated from another temporary table. SQLite gets INSERT … ON
// CONFLICT. A violation of another unique index is an error and changes no other row.
func (t *Tx) Upsert(ctx context.Context, table string, columns []string, rows [][]any, k driver.Keyed) error {
	text := "INSERT INTO " + quoteTable(t.dialect, table) + " (" + strings.Join(columns, ", ") + ")"
	ctx = context.WithValue(ctx, textKey{}, text)
	w, err := keyed.New(table, columns, rows, k)
	err = cmp.Or(err, t.enter(nil))
	if err == nil && len(rows) > 0 {
		err = t.writing(ctx, table, columns, func() error { return t.upsert(ctx, w) })
	}
	if err == nil {
		return nil
	}
	if refused, named := errors.AsType[*keyed.RowError](err); named {
		err = &RowError{Row: refused.Row, Err: refused.Err}
	}
	err = fmt.Errorf("upsert into %s: %w", table, err)
	t.fail(err)
	return err
}

// keyPlace is a key of a table among what is known to be safe.
type keyPlace struct{ table, key string }

func (t *Tx) upsert(ctx context.Context, w *keyed.Write) error {
	if len(w.Columns) > t.dialect.variables()-2 {
		return fmt.Errorf("%d columns: must be at most %d", len(w.Columns), t.dialect.variables()-2)
	}
	if _, is := t.safe.Load(w.Table); !is {
		if err := t.dialect.safe(ctx, t.tx, w.Table); err != nil {
			return err
		}
	}
	place := keyPlace{w.Table, strings.Join(w.Key, "\x00")}
	if _, is := t.safe.Load(place); !is {
		if err := t.dialect.keyFits(ctx, t.tx, w); err != nil {
			return err
		}
	}
	if err := t.dialect.upsert(ctx, t, w); err != nil {
		return err
	}
	t.safe.Store(w.Table, true)
	t.safe.Store(place, true)
	return nil
}

// fits checks a key by what a query says about the columns of unique indexes: index, column, why it
// is no key, and whether the column may be NULL; in the order of the indexes.
func fits(ctx context.Context, d dialect, q querier, w *keyed.Write, query string, args ...any) error {
	type part struct {
		index, column, unfit string
		nullable             bool
	}
	parts, err := collect(ctx, q, func(p *part) []any { return []any{&p.index, &p.column, &p.unfit, &p.nullable} }, query, args)
	if err != nil {
		return fmt.Errorf("read the unique indexes of table %s: %w", w.Table, err)
	}
	var indexes []keyed.Index
	var nullable []string
	for _, p := range parts {
		if i := slices.IndexFunc(w.Key, func(name string) bool { return strings.EqualFold(name, p.column) }); i >= 0 {
			p.column = w.Key[i]
		}
		if n := len(indexes); n == 0 || indexes[n-1].Name != p.index {
			indexes = append(indexes, keyed.Index{Name: p.index})
		}
		last := &indexes[len(indexes)-1]
		last.Columns = append(last.Columns, p.column)
		if p.unfit != "" {
			last.Unfit = p.unfit
		}
		if p.nullable {
			nullable = append(nullable, p.column)
		}
	}
	err = w.Fit(indexes, nullable, d.quote)
	if err != nil && len(parts) == 0 { // is the table there?
		if _, missing := q.ExecContext(ctx, "SELECT 1 FROM "+quoteTable(d, w.Table)+" WHERE 1 = 0"); missing != nil {
			return missing
		}
	}
	return err
}

// refusesRow reports whether an error may be that of one row.
func (t *Tx) refusesRow(err error) bool {
	return errors.Is(err, errRowLeftOut) || t.dialect.fault(err) == faultConstraint
}

// errRowLeftOut is why rows are written in smaller parts.
var errRowLeftOut = errors.New("a trigger of the table leaves out the change of a row: change the trigger, or use a statement of your own")

// assignments are those of the columns that are no part of the key, where value makes the new value
// of a quoted column.
func assignments(d dialect, w *keyed.Write, value func(column string) string) string {
	var list []string
	for _, name := range w.Others() {
		list = append(list, d.quote(name)+" = "+value(d.quote(name)))
	}
	return strings.Join(list, ", ")
}

// joined repeats a text for each column of the key.
func joined(d dialect, w *keyed.Write, between string, text func(column string, i int) string) string {
	list := make([]string, len(w.Key))
	for i, name := range w.Key {
		list[i] = text(d.quote(name), i)
	}
	return strings.Join(list, between)
}

// keyOf are the values of a row's key.
func keyOf(w *keyed.Write, row int) []any {
	values := make([]any, len(w.KeyAt), len(w.KeyAt)+1)
	for i, at := range w.KeyAt {
		values[i] = w.Rows[row][at]
	}
	return values
}

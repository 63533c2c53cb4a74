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
	"github.com/sluice-go/sluice/internal/tables"
)

// stagedRows is how many rows a part of a staged write has at most.
const stagedRows = 10_000

// stagedTries is how often a part is written: another transaction may have inserted a row with the
// same key, or deleted one.
const stagedTries = 3

// stagingWords are the SQL with which a dialect stages rows.
type stagingWords struct {
	keys, changes string // names of temporary tables
	pointed       bool   // an error undoes the transaction, unless there is a savepoint
	// drop drops a temporary table if it is there.
	drop func(table string) string
	// create makes a temporary table with columns of the types of table t, which may be NULL, from
	// a list of columns.
	create func(table, columns, from string) string
	// fill writes many rows to a temporary table with columns of those of a table, which of has,
	// and reports whether it has tried to; nil: an insert as any other does.
	fill func(ctx context.Context, q querier, staged string, of []tables.Column, columns []string, rows [][]any) (done bool, err error)
	// remove deletes from table t what matches rows of the staged table g.
	remove func(table, staged, match, where string) string
	// update sets columns of table t to those of the staged table g.
	update func(table, staged, match string, columns []string) string
}

// stagedUpsert writes rows by key with temporary tables. The keys are staged, and the database says
// which rows count, and which of them exist. Those that do not are inserted as [Tx.Insert] does;
// the others are staged too, and the table is updated from there. So a violation of another unique
// index is an error, and never changes the row that is in the way.
type stagedUpsert struct {
	*keyed.Write
	stagingWords
	tx    *Tx
	table string // quoted

	keyColumns []string // and the version's
	match      string   // that rows of t and g have the same key
	applies    string   // that a version of g replaces that of t
}

func newStaged(t *Tx, w *keyed.Write, words stagingWords) *stagedUpsert {
	d := t.dialect
	u := &stagedUpsert{Write: w, stagingWords: words, tx: t, table: quoteTable(d, w.Table), keyColumns: slices.Clone(w.Key)}
	u.match = joined(d, w, " AND ", func(column string, _ int) string { return "t." + column + " = g." + column })
	u.applies = "1 = 1"
	if w.OnConflict == driver.Newer {
		u.keyColumns = append(u.keyColumns, w.Version)
		u.applies = fmt.Sprintf("(t.%[1]s IS NULL OR t.%[1]s <= g.%[1]s)", d.quote(w.Version))
	}
	return u
}

func (u *stagedUpsert) run(ctx context.Context) error {
	for part := range slices.Chunk(u.All(), stagedRows) {
		if err := keyed.Narrow(part, func(rows []int) error { return u.write(ctx, rows) }, u.tx.refusesRow); err != nil {
			return err
		}
	}
	for _, table := range []string{u.keys, u.changes} {
		if _, err := u.tx.tx.ExecContext(ctx, u.drop(u.tx.dialect.quote(table))); err != nil {
			return err
		}
	}
	return nil
}

// write writes a part. What it has written when it fails stays: another call for the same rows
// continues from there.
func (u *stagedUpsert) write(ctx context.Context, rows []int) error {
	if err := u.stageKeys(ctx, rows); err != nil {
		return err
	}
	for try := 1; ; try++ {
		missing, err := u.tryPointed(ctx, rows)
		switch {
		case err == nil && missing < 0:
			return nil
		case err != nil && (try == stagedTries || err != errRowLeftOut && !u.tx.dialect.duplicate(err)):
			return err
		case err == nil && try == stagedTries:
			return u.NotTaken(missing)
		}
	}
}

// tryPointed is tryWrite, of which nothing stays if it fails where an error undoes the transaction.
func (u *stagedUpsert) tryPointed(ctx context.Context, rows []int) (missing int, err error) {
	if !u.pointed {
		return u.tryWrite(ctx, rows)
	}
	err = pointed(ctx, u.tx.tx, func() error {
		missing, err = u.tryWrite(ctx, rows)
		return err
	})
	return missing, err
}

func (u *stagedUpsert) tryWrite(ctx context.Context, rows []int) (missing int, err error) {
	if slices.ContainsFunc(rows, u.Deletes) {
		text := u.remove(u.table, u.deletesSQL(), u.match, "g.sluice_deletes = 1 AND "+u.applies)
		if _, err := u.tx.tx.ExecContext(ctx, text); err != nil {
			return -1, err
		}
	}
	found, err := u.find(ctx)
	if err != nil {
		return -1, err
	}
	var fresh, known []int
	for _, f := range found {
		switch row := rows[f.row-1]; {
		case f.deletes:
		case !f.exists:
			fresh = append(fresh, row)
		case u.OnConflict == driver.Update || f.applies:
			known = append(known, row)
		}
	}
	if err := u.change(ctx, known); err != nil {
		return -1, err
	}
	if err := u.insert(ctx, u.Table, u.Columns, u.valuesOf(fresh)); err != nil {
		return -1, err
	}
	if found, err = u.find(ctx); err != nil {
		return -1, err
	}
	for _, f := range found {
		if f.deletes && f.exists && f.applies || !f.deletes && (!f.exists || f.older) {
			return rows[f.row-1], nil
		}
	}
	return -1, nil
}

// stage makes a temporary table.
func (u *stagedUpsert) stage(ctx context.Context, table string, columns []string) error {
	d := u.tx.dialect
	list := "0 AS sluice_row, 0 AS sluice_deletes"
	for _, name := range columns {
		list += ", t." + d.quote(name)
	}
	if _, err := u.tx.tx.ExecContext(ctx, u.drop(d.quote(table))); err != nil {
		return err
	}
	_, err := u.tx.tx.ExecContext(ctx, u.create(d.quote(table), list, u.table))
	return err
}

// stageKeys stages the keys and versions of rows.
func (u *stagedUpsert) stageKeys(ctx context.Context, rows []int) error {
	if err := u.stage(ctx, u.keys, u.keyColumns); err != nil {
		return err
	}
	values := make([][]any, len(rows))
	for i, row := range rows {
		list := append(make([]any, 0, len(u.keyColumns)+2), i+1, 0)
		if u.Deletes(row) {
			list[1] = 1
		}
		list = append(list, keyOf(u.Write, row)...)
		if u.VersionAt >= 0 {
			list = append(list, u.Rows[row][u.VersionAt])
		}
		values[i] = list
	}
	return u.fillStaged(ctx, u.keys, slices.Concat([]string{"sluice_row", "sluice_deletes"}, u.keyColumns), values)
}

// foundRow is what the database says of a row that counts.
type foundRow struct {
	row     int // from 1 on
	deletes bool
	exists  bool // in the table
	applies bool // the version of the row replaces that of the table
	older   bool // the table has a lower version, or none
}

// find reads which rows count: for each key the last one; for Skip the first one that comes after
// all deletes, else the last delete; for Newer that with the highest version. They are sorted by
// key.
func (u *stagedUpsert) find(ctx context.Context) ([]foundRow, error) {
	return collect(ctx, u.tx.tx, func(f *foundRow) []any { return []any{&f.row, &f.deletes, &f.exists, &f.applies, &f.older} }, u.findSQL(), nil)
}

// deletesSQL is the staged table; for Newer its rows with the highest version of their key, because
// another delete loses.
func (u *stagedUpsert) deletesSQL() string {
	d := u.tx.dialect
	if u.OnConflict != driver.Newer {
		return d.quote(u.keys)
	}
	list := joined(d, u.Write, ", ", func(column string, _ int) string { return "s." + column })
	return "(SELECT r.* FROM (SELECT s.*, RANK() OVER (PARTITION BY " + list + " ORDER BY " + u.versionOrder() + ") AS sluice_rank FROM " + d.quote(u.keys) +
		" AS s) AS r WHERE r.sluice_rank = 1)"
}

// versionOrder sorts staged rows s: the highest version first, and those without one last.
func (u *stagedUpsert) versionOrder() string {
	return fmt.Sprintf("CASE WHEN s.%[1]s IS NULL THEN 1 ELSE 0 END, s.%[1]s DESC", u.tx.dialect.quote(u.Version))
}

func (u *stagedUpsert) findSQL() string {
	d := u.tx.dialect
	list := joined(d, u.Write, ", ", func(column string, _ int) string { return "s." + column })
	from, order, older := d.quote(u.keys), "s.sluice_row DESC", "0"
	switch version := d.quote(u.Version); u.OnConflict {
	case driver.Skip:
		from = "(SELECT s.*, MAX(CASE WHEN s.sluice_deletes = 1 THEN s.sluice_row ELSE 0 END) OVER (PARTITION BY " + list + ") AS sluice_gone FROM " + from + " AS s)"
		order = "CASE WHEN s.sluice_row < s.sluice_gone THEN 2 ELSE s.sluice_deletes END, s.sluice_row"
	case driver.Newer:
		order = u.versionOrder() + ", s.sluice_row DESC"
		older = fmt.Sprintf("CASE WHEN g.%[1]s IS NOT NULL AND (t.%[1]s IS NULL OR t.%[1]s < g.%[1]s) THEN 1 ELSE 0 END", version)
	}
	return "SELECT g.sluice_row, g.sluice_deletes, CASE WHEN t." + d.quote(u.Key[0]) + " IS NULL THEN 0 ELSE 1 END, CASE WHEN " + u.applies + " THEN 1 ELSE 0 END, " + older +
		" FROM (SELECT s.*, ROW_NUMBER() OVER (PARTITION BY " + list + " ORDER BY " + order + ") AS sluice_rank FROM " + from + " AS s) AS g" +
		" LEFT JOIN " + u.table + " AS t ON " + u.match + " WHERE g.sluice_rank = 1 ORDER BY " + strings.ReplaceAll(list, "s.", "g.")
}

// change updates rows that exist.
func (u *stagedUpsert) change(ctx context.Context, rows []int) error {
	others := u.Others()
	if len(rows) == 0 || len(others) == 0 || u.OnConflict == driver.Skip {
		return nil
	}
	if err := u.stage(ctx, u.changes, u.Columns); err != nil {
		return err
	}
	values := u.valuesOf(rows)
	for i, row := range values {
		values[i] = slices.Concat([]any{i + 1, 0}, row)
	}
	if err := u.fillStaged(ctx, u.changes, slices.Concat([]string{"sluice_row", "sluice_deletes"}, u.Columns), values); err != nil {
		return err
	}
	for i, name := range others {
		others[i] = u.tx.dialect.quote(name)
	}
	result, err := u.tx.tx.ExecContext(ctx, u.update(u.table, u.tx.dialect.quote(u.changes), u.match+" AND "+u.applies, others))
	if err != nil || !u.pointed {
		return err
	}
	if n, err := result.RowsAffected(); err != nil || n < int64(len(rows)) { // PostgreSQL's triggers may leave rows out
		return cmp.Or(err, errRowLeftOut)
	}
	return nil
}

// fillStaged writes rows to a temporary table.
func (u *stagedUpsert) fillStaged(ctx context.Context, table string, columns []string, values [][]any) error {
	if u.fill != nil {
		if done, err := u.fill(ctx, u.tx.tx, u.tx.dialect.quote(table), u.tx.pinned(u.Table), columns, values); done || err != nil {
			return err
		}
	}
	return u.insert(ctx, table, columns, values)
}

func (u *stagedUpsert) valuesOf(rows []int) [][]any {
	values := make([][]any, len(rows))
	for i, row := range rows {
		values[i] = u.Rows[row]
	}
	return values
}

// insert inserts rows. Which row is refused depends on the order of the rows, and is found out in
// theirs.
func (u *stagedUpsert) insert(ctx context.Context, table string, columns []string, values [][]any) error {
	write := u.tx.write
	if d, ok := u.tx.dialect.(*postgresDialect); ok { // which of them it takes, the look afterwards shows
		write = func(ctx context.Context, table string, columns []string, values [][]any) error {
			return d.insertRows(ctx, u.tx.tx, table, columns, values, false)
		}
	}
	err := write(ctx, table, columns, values)
	if refused, named := errors.AsType[*RowError](err); named {
		return refused.Err
	}
	return err
}

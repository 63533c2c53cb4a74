package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/keyed"
)

// sqliteUnique has the columns of the unique indexes of a table. The primary key that is the rowid
// has no index, and is never NULL.
const sqliteUnique = `
	SELECT l.name, coalesce(x.name, '(an expression)'), CASE WHEN l.partial THEN 'partial' WHEN x.cid = -2 THEN 'on an expression' ELSE '' END,
		coalesce((SELECT c."notnull" = 0 FROM pragma_table_xinfo(:table, :schema) AS c WHERE c.cid = x.cid), 0)
	FROM pragma_index_list(:table, :schema) AS l, pragma_index_xinfo(l.name, :schema) AS x
	WHERE l."unique" AND x.key
	UNION ALL
	SELECT 'PRIMARY KEY', name, '', 0 FROM pragma_table_xinfo(:table, :schema)
	WHERE pk AND NOT EXISTS (SELECT 1 FROM pragma_index_list(:table, :schema) WHERE origin = 'pk')`

// sqliteCollations has the collations of those columns.
const sqliteCollations = `
	SELECT l.name, x.name, x.coll FROM pragma_index_list(:table, :schema) AS l, pragma_index_xinfo(l.name, :schema) AS x
	WHERE l."unique" AND NOT l.partial AND x.key AND x.name IS NOT NULL`

// sqliteNames are the arguments of queries about a table.
func sqliteNames(table string) []any {
	schema, name, qualified := strings.Cut(table, ".")
	if !qualified {
		schema, name = "main", table
	}
	return []any{sql.Named("table", name), sql.Named("schema", schema)}
}

func (d sqliteDialect) keyFits(ctx context.Context, q querier, w *keyed.Write) error {
	return fits(ctx, d, q, w, sqliteUnique, sqliteNames(w.Table)...)
}

// upsert writes one row after the other, many of them in one statement: SQLite itself folds them.
func (d sqliteDialect) upsert(ctx context.Context, t *Tx, w *keyed.Write) error {
	u := &sqliteUpsert{Write: w, tx: t.tx, prepared: make(map[string]*sql.Stmt)}
	defer u.close()
	if err := u.prepare(ctx); err != nil {
		return err
	}
	rest := w.All()
	if w.OnConflict == driver.Newer && w.AnyDelete() {
		var err error
		if rest, err = u.byVersion(ctx, rest); err != nil {
			return err
		}
	}
	for len(rest) > 0 {
		part := u.part(rest)
		if err := keyed.Narrow(part, func(rows []int) error { return u.write(ctx, rows) }, t.refusesRow); err != nil {
			return err
		}
		rest = rest[len(part):]
	}
	return nil
}

// sqliteUpsert is a keyed write in a transaction.
type sqliteUpsert struct {
	*keyed.Write
	tx       *sql.Tx
	prepared map[string]*sql.Stmt

	insert  func(rows int) string
	action  string
	remove  string            // of one row
	where   string            // that a row of table g is in table t
	collate map[string]string // the COLLATE clauses of the key's columns
	look    bool              // a trigger may leave rows out: nothing else does, without an error
}

// prepare makes the statements.
func (u *sqliteUpsert) prepare(ctx context.Context) error {
	d := sqliteDialect{}
	var err error
	if u.collate, err = u.collations(ctx); err != nil {
		return err
	}
	// What the constraints themselves say about conflicts must not count: they may replace other
	// rows.
	verb, _, err := d.inserting(ctx, u.tx, u.Table)
	if err != nil {
		return err
	}
	schema, name, qualified := strings.Cut(u.Table, ".")
	if !qualified {
		schema, name = "main", u.Table
	}
	query := "SELECT 1 FROM (SELECT * FROM sqlite_temp_schema UNION ALL SELECT * FROM " + d.quote(schema) + ".sqlite_schema) WHERE type = 'trigger' AND tbl_name = ? COLLATE NOCASE LIMIT 1"
	if u.look, err = one(ctx, u.tx, query, []any{name}, new(int)); err != nil {
		return err
	}
	u.insert = insertText(d, verb, u.Table, u.Columns)
	target := joined(d, u.Write, ", ", func(column string, _ int) string { return column })
	u.action = " ON CONFLICT (" + target + ") DO NOTHING"
	version := d.quote(u.Version)
	if set := assignments(d, u.Write, func(column string) string { return "excluded." + column }); set != "" && u.OnConflict != driver.Skip {
		u.action = " ON CONFLICT (" + target + ") DO UPDATE SET " + set
	}
	u.remove = "DELETE FROM " + quoteTable(d, u.Table) + " WHERE " +
		joined(d, u.Write, " AND ", func(column string, i int) string { return column + " = ?" + u.collate[u.Key[i]] })
	u.where = joined(d, u.Write, " AND ", func(column string, i int) string {
		return fmt.Sprintf("t.%s = g.column%d%s", column, i+2, u.collate[u.Key[i]])
	})
	if u.OnConflict == driver.Newer {
		table := quoteTable(d, u.Table)
		u.action += fmt.Sprintf(" WHERE %[1]s.%[2]s IS NULL OR %[1]s.%[2]s <= excluded.%[2]s", table[strings.LastIndex(table, ".")+1:], version)
		u.remove += fmt.Sprintf(" AND (%[1]s IS NULL OR %[1]s <= ?)", version)
	}
	return nil
}

// collations are those of the unique index on the key, which may be others than those of the
// columns.
func (u *sqliteUpsert) collations(ctx context.Context) (map[string]string, error) {
	type part struct{ index, column, collation string }
	parts, err := collect(ctx, u.tx, func(p *part) []any { return []any{&p.index, &p.column, &p.collation} }, sqliteCollations, sqliteNames(u.Table))
	if err != nil {
		return nil, err
	}
	byIndex := make(map[string]map[string]string)
	for _, p := range parts {
		if byIndex[p.index] == nil {
			byIndex[p.index] = make(map[string]string)
		}
		byIndex[p.index][strings.ToLower(p.column)] = " COLLATE " + sqliteDialect{}.quote(p.collation)
	}
	for _, of := range byIndex {
		found := make(map[string]string)
		for _, name := range u.Key {
			if collation, ok := of[strings.ToLower(name)]; ok {
				found[name] = collation
			}
		}
		if len(found) == len(u.Key) && len(of) == len(u.Key) {
			return found, nil
		}
	}
	return nil, nil
}

// byVersion sorts rows by version as the column's type compares it, those without one first, and
// leaves out deletes with a lower version than another row of the key. In this order the highest
// version of a key wins, also if it is a delete.
func (u *sqliteUpsert) byVersion(ctx context.Context, rows []int) (sorted []int, err error) {
	columns, err := u.declarations(ctx)
	if err != nil {
		return nil, err
	}
	const table = "temp.sluice_versions"
	for _, text := range []string{"DROP TABLE IF EXISTS " + table, "CREATE TABLE " + table + " (n INTEGER PRIMARY KEY, deletes INTEGER" + columns + ")"} {
		if _, err := u.tx.ExecContext(ctx, text); err != nil {
			return nil, err
		}
	}
	insert := "INSERT INTO " + table + " VALUES (?, ?" + strings.Repeat(", ?", len(u.Key)+1) + ")"
	for _, row := range rows {
		if _, err := u.exec(ctx, insert, append([]any{row, u.Deletes(row)}, u.keyAndVersion(row)...)); err != nil {
			return nil, err
		}
	}
	key := joined(sqliteDialect{}, u.Write, ", ", func(_ string, i int) string { return fmt.Sprint("v", i) })
	sorted, err = collect(ctx, u.tx, func(n *int) []any { return []any{n} }, fmt.Sprintf(
		"SELECT n FROM (SELECT *, rank() OVER (PARTITION BY %[1]s ORDER BY v%[2]d DESC) AS place FROM %[3]s) WHERE place = 1 OR NOT deletes ORDER BY v%[2]d, n",
		key, len(u.Key), table), nil)
	if err == nil {
		u.close()
		_, err = u.tx.ExecContext(ctx, "DROP TABLE "+table)
	}
	return sorted, err
}

// declarations are columns v0, v1 and so on that compare values as those of the key, and after them
// the version's, do.
func (u *sqliteUpsert) declarations(ctx context.Context) (list string, err error) {
	for i, name := range append(slices.Clone(u.Key), u.Version) {
		var kind string
		if _, err := one(ctx, u.tx, "SELECT type FROM pragma_table_xinfo(:table, :schema) WHERE name = :column COLLATE NOCASE",
			append(sqliteNames(u.Table), sql.Named("column", name)), &kind); err != nil {
			return "", err
		}
		list += fmt.Sprintf(", v%d %s%s", i, kind, u.collate[name])
	}
	return list, nil
}

// part returns the first rows, which are written together: inserts, or deletes.
func (u *sqliteUpsert) part(rows []int) []int {
	most, size := max(1, min(chunkRows, sqliteDialect{}.variables()/len(u.Columns))), 0
	for i, row := range rows {
		if i == most || size >= chunkBytes || u.Deletes(row) != u.Deletes(rows[0]) {
			return rows[:i]
		}
		size += sizeOf(u.Rows[row])
	}
	return rows
}

// write writes rows that are all inserts, or all deletes, and looks for them.
func (u *sqliteUpsert) write(ctx context.Context, rows []int) error {
	if u.Deletes(rows[0]) {
		for _, row := range rows {
			if _, err := u.exec(ctx, u.remove, u.keyAndVersion(row)); err != nil {
				return err
			}
		}
		return u.lookFor(ctx, rows)
	}
	args := make([]any, 0, len(rows)*len(u.Columns))
	for _, row := range rows {
		args = append(args, u.Rows[row]...)
	}
	result, err := u.exec(ctx, u.insert(len(rows))+u.action, args)
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); u.OnConflict == driver.Update && len(u.Others()) > 0 && err == nil && n < int64(len(rows)) {
		return errRowLeftOut
	}
	return u.lookFor(ctx, rows)
}

// keyAndVersion are the arguments of remove.
func (u *sqliteUpsert) keyAndVersion(row int) []any {
	values := keyOf(u.Write, row)
	if u.VersionAt >= 0 {
		values = append(values, u.Rows[row][u.VersionAt])
	}
	return values
}

// lookFor returns an error if a row is not there, or is still there.
func (u *sqliteUpsert) lookFor(ctx context.Context, rows []int) error {
	if !u.look {
		return nil
	}
	var args []any
	for _, row := range rows {
		args = append(append(args, row), u.keyAndVersion(row)...)
	}
	tuple := "(?" + strings.Repeat(", ?", len(args)/len(rows)-1) + ")"
	where, exists := u.where, "NOT EXISTS"
	if u.OnConflict == driver.Newer {
		compare := "(t.%[1]s >= g.column%[2]d OR g.column%[2]d IS NULL)"
		if u.Deletes(rows[0]) {
			compare = "(t.%[1]s IS NULL OR t.%[1]s <= g.column%[2]d)"
		}
		where += " AND " + fmt.Sprintf(compare, sqliteDialect{}.quote(u.Version), len(u.Key)+2)
	}
	if u.Deletes(rows[0]) {
		exists = "EXISTS"
	}
	stmt, err := u.statement(ctx, "SELECT g.column1 FROM (VALUES "+tuple+strings.Repeat(", "+tuple, len(rows)-1)+") AS g WHERE "+exists+
		" (SELECT 1 FROM "+quoteTable(sqliteDialect{}, u.Table)+" AS t WHERE "+where+") LIMIT 1")
	if err != nil {
		return err
	}
	var missing int
	switch err := stmt.QueryRowContext(ctx, args...).Scan(&missing); err {
	case sql.ErrNoRows:
		return nil
	case nil:
		return u.NotTaken(missing)
	default:
		return err
	}
}

// exec runs a statement, which is prepared once.
func (u *sqliteUpsert) exec(ctx context.Context, text string, args []any) (sql.Result, error) {
	stmt, err := u.statement(ctx, text)
	if err != nil {
		return nil, err
	}
	return stmt.ExecContext(ctx, args...)
}

func (u *sqliteUpsert) statement(ctx context.Context, text string) (*sql.Stmt, error) {
	if stmt := u.prepared[text]; stmt != nil {
		return stmt, nil
	}
	if len(u.prepared) >= 32 {
		u.close()
	}
	stmt, err := u.tx.PrepareContext(ctx, text)
	if err == nil {
		u.prepared[text] = stmt
	}
	return stmt, err
}

func (u *sqliteUpsert) close() {
	for text, stmt := range u.prepared {
		stmt.Close()
		delete(u.prepared, text)
	}
}

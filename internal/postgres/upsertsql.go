package postgres

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/keyed"
)

const (
	textArrayOID = pgtype.TextArrayOID
	bitArrayOID  = pgtype.BitArrayOID
)

// keyedTable is what a connection knows of a table that an [Upsert] writes to.
type keyedTable struct {
	known   *knownTable // from which it was made
	counted bool        // each row of insert is written or refused

	exact string // → whether a row that counts as written is in the table as it was sent: no trigger changes it

	// The other statements. Each takes arrays of texts, of the key's columns, then of the version,
	// if there is one; insert takes those of all columns.
	reduce  string // with an array of whether each is a delete → numbers of the rows that count, from 1 on, whether the key exists, and whether the row is a delete before the one of its key; sorted by key
	remove  string
	insert  string
	absent  string // → number of a row that is not there
	present string // → number of a row that is still there
}

// keyedTable returns what is known of the table, and asks the server if that is nothing.
func (u *Upsert) keyedTable(ctx context.Context, conn *pgx.Conn, known *knownTable) (*keyedTable, error) {
	kept := connectionOf(conn)
	place := fmt.Sprintf("%s\x00%s\x00%v\x00%s\x00%v", known.place.key, strings.Join(u.Key, "\x00"), u.OnConflict, u.Version, u.AnyDelete())
	if table, ok := kept.keyed[place]; ok && table.known == known {
		return table, nil
	}
	collations, identities, err := u.fit(ctx, conn)
	if err != nil {
		return nil, err
	}
	table := u.statements(known, collations, identities)
	if len(kept.keyed) >= mostKnown {
		clear(kept.keyed)
	}
	kept.keyed[place] = table
	return table, nil
}

// CheckKey returns a [*driver.NoKeyError] for a table that has not the key of a write. It changes
// nothing.
func (u *Upsert) CheckKey(ctx context.Context, conn *pgx.Conn) error {
	_, _, err := u.fit(ctx, conn)
	return err
}

// uniqueSQL has the unique indexes of a table. One that can't be the target of ON CONFLICT says
// why, https://www.postgresql.org/docs/current/sql-insert.html.
const uniqueSQL = `
SELECT c.relname, ARRAY(SELECT coalesce(a.attname, '(an expression)') FROM pg_catalog.unnest(i.indkey::int2[]) WITH ORDINALITY AS k(attnum, n)
		LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum AND k.attnum > 0 WHERE k.n <= i.indnkeyatts ORDER BY k.n)::text[],
	CASE WHEN i.indpred IS NOT NULL THEN 'partial' WHEN i.indexprs IS NOT NULL THEN 'on an expression' WHEN NOT i.indimmediate THEN 'deferrable'
		WHEN NOT i.indisvalid OR NOT i.indisready THEN 'not valid'
		WHEN EXISTS (SELECT FROM unnest(i.indkey::int2[], i.indcollation::oid[]) AS k(attnum, collation_oid)
			JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum WHERE a.attcollation <> k.collation_oid AND k.collation_oid <> 0) THEN 'of another collation than its columns'
		ELSE '' END
FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid WHERE i.indrelid = $1::text::pg_catalog.regclass AND i.indisunique ORDER BY 1`

// keySQL has the columns of a table: whether each may be NULL, and is an identity; and its
// collation, if that is not the one of its type.
const keySQL = `
SELECT a.attname, NOT a.attnotnull, a.attidentity <> '',
	coalesce((SELECT pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(l.collname) FROM pg_catalog.pg_collation l JOIN pg_catalog.pg_namespace n ON n.oid = l.collnamespace
		WHERE l.oid = a.attcollation AND a.attcollation <> y.typcollation), '')
FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type y ON y.oid = a.atttypid
WHERE a.attrelid = $1::text::pg_catalog.regclass AND a.attnum > 0 AND NOT a.attisdropped`

// fit checks that the table has the key, and returns the collations and the identities of its
// columns.
func (u *Upsert) fit(ctx context.Context, conn *pgx.Conn) (collations map[string]string, identities map[string]bool, err error) {
	var nullable []string
	collations, identities = make(map[string]string), make(map[string]bool)
	rows, err := conn.Query(ctx, keySQL, pgx.QueryExecModeExec, u.Table.Sanitize())
	if err != nil {
		return nil, nil, err
	}
	var name, collation string
	var null, identity bool
	if _, err = pgx.ForEachRow(rows, []any{&name, &null, &identity, &collation}, func() error {
		collations[name], identities[name] = collation, identity
		if null {
			nullable = append(nullable, name)
		}
		return nil
	}); err != nil {
		return nil, nil, err
	}
	if rows, err = conn.Query(ctx, uniqueSQL, pgx.QueryExecModeExec, u.Table.Sanitize()); err != nil {
		return nil, nil, err
	}
	indexes, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (i keyed.Index, err error) {
		return i, row.Scan(&i.Name, &i.Columns, &i.Unfit)
	})
	if err != nil {
		return nil, nil, err
	}
	err = u.Fit(indexes, nullable, func(name string) string { return pgx.Identifier{name}.Sanitize() })
	if errors.Is(err, driver.ErrUnsafeTable) {
		err = &ColumnsError{Err: err, cause: &pgconn.PgError{Severity: "ERROR", Code: unsafeTable, Message: err.Error()}}
	}
	return collations, identities, err
}

// castTo is the type that the texts of a column are cast to. A cast to varchar(3) would cut its
// value, which the assignment to the column refuses; one to numeric(9,2) or timestamp(0) rounds it
// as the assignment does, so that the key is what the table has.
func castTo(c Column, exact bool) string {
	switch c.base {
	case pgtype.BPCharOID:
		return `pg_catalog.bpchar`
	case pgtype.BitOID:
		return `pg_catalog."bit"`
	case pgtype.BPCharArrayOID:
		return `pg_catalog.bpchar[]`
	case bitArrayOID:
		return `pg_catalog."bit"[]`
	case pgtype.NumericOID, pgtype.TimeOID, pgtype.TimetzOID, pgtype.TimestampOID, pgtype.TimestamptzOID, pgtype.IntervalOID,
		pgtype.NumericArrayOID, pgtype.TimeArrayOID, pgtype.TimestampArrayOID, pgtype.TimestamptzArrayOID, pgtype.IntervalArrayOID:
		if exact {
			return c.Type
		}
	case 0:
		return "text"
	}
	return c.Cast
}

// unnested is a table u of arrays of texts: a0, a1 and so on, and their index n, from 1 on.
func unnested(arrays int) string {
	list, names := make([]string, arrays), ""
	for i := range arrays {
		list[i] = fmt.Sprintf("$%d::text[]", i+1)
		names += fmt.Sprintf("a%d, ", i)
	}
	return " FROM unnest(" + strings.Join(list, ", ") + ") WITH ORDINALITY AS u(" + names + "n)"
}

// given is a table of rows, from so many arrays: their numbers n, and values as v0, v1 and so on.
func given(expressions []string, arrays int) string {
	list := "u.n"
	for i, expression := range expressions {
		list += fmt.Sprintf(", %s AS v%d", expression, i)
	}
	return "(SELECT " + list + unnested(arrays) + ")"
}

// expression is the value of a column of the arrays.
func (u *Upsert) expression(known *knownTable, collations map[string]string, name string, array int, exact bool) string {
	column := Column{Cast: "text"}
	if i := slices.IndexFunc(known.columns, func(c Column) bool { return c.Name == name }); i >= 0 {
		column = known.columns[i]
	}
	text := fmt.Sprintf("u.a%d", array)
	if exact && column.Cast == "character varying" && column.modifier > 4 {
		// Blanks beyond the length are cut by the assignment too, and nothing else.
		text = fmt.Sprintf("CASE WHEN pg_catalog.rtrim(pg_catalog.substr(%[1]s, %[2]d)) = '' THEN pg_catalog.substr(%[1]s, 1, %[3]d) ELSE %[1]s END", text, column.modifier-3, column.modifier-4)
	}
	text = "CAST(" + text + " AS " + castTo(column, exact) + ")"
	if collation := collations[name]; exact && collation != "" {
		text += " COLLATE " + collation
	}
	return text
}

// statements makes the statements.
func (u *Upsert) statements(known *knownTable, collations map[string]string, identities map[string]bool) *keyedTable {
	var keys, names, same []string
	for i, name := range u.Key {
		keys = append(keys, u.expression(known, collations, name, i, true))
		names = append(names, fmt.Sprintf("g.v%d", i))
		same = append(same, fmt.Sprintf("t.%s = g.v%d", pgx.Identifier{name}.Sanitize(), i))
	}
	list, match, m := strings.Join(names, ", "), strings.Join(same, " AND "), len(keys)
	applies, newest := "", ""
	if u.OnConflict == driver.Newer {
		version := pgx.Identifier{u.Version}.Sanitize()
		keys = append(keys, u.expression(known, collations, u.Version, m, true))
		applies = fmt.Sprintf(" AND (t.%[1]s IS NULL OR t.%[1]s <= g.v%[2]d)", version, m)
		newest = fmt.Sprintf(" AND (g.v%[2]d IS NULL OR t.%[1]s >= g.v%[2]d)", version, m)
	}
	t := &keyedTable{known: known, reduce: u.reduceSQL(given(keys, len(keys)), list, match, m, len(keys))}
	if u.AnyDelete() {
		withDelete := append(slices.Clone(keys), fmt.Sprintf("CAST(u.a%d AS boolean)", len(keys)))
		t.reduce = u.reduceSQL(given(withDelete, len(withDelete)), list, match, m, len(keys))
	}
	// The lock keeps triggers away, and a snapshot after it shows them all.
	t.exact = "SELECT relkind = 'r' AND pg_catalog.current_setting('transaction_isolation') = 'read committed'" +
		" AND NOT EXISTS (SELECT FROM pg_catalog.pg_trigger WHERE tgrelid = c.oid AND NOT tgisinternal) FROM pg_catalog.pg_class c WHERE c.oid = " +
		Literal(u.Table.Sanitize()) + "::pg_catalog.regclass"
	from, table := given(keys, len(keys))+" AS g", u.Table.Sanitize()+" AS t"
	t.remove = "DELETE FROM " + table + " USING " + from + " WHERE " + match + applies
	t.absent = "SELECT g.n FROM " + from + " WHERE NOT EXISTS (SELECT FROM " + table + " WHERE " + match + newest + ") ORDER BY g.n LIMIT 1"
	t.present = "SELECT g.n FROM " + from + " WHERE EXISTS (SELECT FROM " + table + " WHERE " + match + applies + ") ORDER BY g.n LIMIT 1"
	t.insert, t.counted = u.insertSQL(known, collations, identities)
	return t
}

// insertSQL inserts or updates rows, and reports whether each of them counts.
func (u *Upsert) insertSQL(known *knownTable, collations map[string]string, identities map[string]bool) (text string, counted bool) {
	var columns, values, set, arrays []string
	for i, name := range u.Columns {
		column := pgx.Identifier{name}.Sanitize()
		columns, values = append(columns, column), append(values, u.expression(known, collations, name, i, false))
		arrays = append(arrays, fmt.Sprintf("unnest($%d::text[]) AS a%d", i+1, i)) // as a table function, PostgreSQL would put them on disk first
		if !slices.Contains(u.Key, name) && !identities[name] {
			set = append(set, column+" = excluded."+column)
		}
	}
	action := "DO NOTHING"
	if u.OnConflict != driver.Skip && len(set) > 0 {
		action, counted = "DO UPDATE SET "+strings.Join(set, ", "), u.OnConflict == driver.Update
	}
	if u.OnConflict == driver.Newer {
		action += fmt.Sprintf(" WHERE t.%[1]s IS NULL OR t.%[1]s <= excluded.%[1]s", pgx.Identifier{u.Version}.Sanitize())
	}
	key := make([]string, len(u.Key))
	for i, name := range u.Key {
		key[i] = pgx.Identifier{name}.Sanitize()
	}
	return "INSERT INTO " + u.Table.Sanitize() + " AS t (" + strings.Join(columns, ", ") + ") OVERRIDING SYSTEM VALUE SELECT " + strings.Join(values, ", ") +
		" FROM (SELECT " + strings.Join(arrays, ", ") + ") AS u ON CONFLICT (" + strings.Join(key, ", ") + ") " + action, counted
}

// reduceSQL selects for each key the row that counts: the last one; for Skip the first one that
// comes after all deletes, else the last delete; for Newer that with the highest version, and the
// deletes that have it too.
func (u *Upsert) reduceSQL(from, list, match string, m, deleted int) string {
	one, before := "SELECT DISTINCT ON ("+list+") g.* FROM ", "false"
	switch {
	case u.OnConflict == driver.Newer && u.AnyDelete():
		window := "OVER (PARTITION BY " + strings.ReplaceAll(list, "g.", "s.") + fmt.Sprintf(" ORDER BY s.v%d DESC NULLS LAST", m)
		one = "SELECT g.* FROM (SELECT s.*, rank() " + window + ") AS place, row_number() " + window + ", s.n DESC) AS turn FROM " + from + " AS s) AS g" +
			fmt.Sprintf(" WHERE g.turn = 1 OR g.place = 1 AND g.v%d", deleted)
		before = "g.turn > 1"
	case u.OnConflict == driver.Skip && u.AnyDelete():
		one += fmt.Sprintf("(SELECT s.*, max(CASE WHEN s.v%d THEN s.n ELSE 0 END) OVER (PARTITION BY %s) AS gone FROM %s AS s) AS g WHERE g.n >= g.gone ORDER BY %s, g.v%d, g.n",
			deleted, strings.ReplaceAll(list, "g.", "s."), from, list, deleted)
	case u.OnConflict == driver.Skip:
		one += from + " AS g ORDER BY " + list + ", g.n"
	case u.OnConflict == driver.Newer:
		one += from + fmt.Sprintf(" AS g ORDER BY %s, g.v%d DESC NULLS LAST, g.n DESC", list, m)
	default:
		one += from + " AS g ORDER BY " + list + ", g.n DESC"
	}
	return "SELECT g.n, EXISTS (SELECT FROM " + u.Table.Sanitize() + " AS t WHERE " + match + "), " + before + " FROM (" + one + ") AS g ORDER BY " + list
}

// keyColumns are those of the arrays that the statements but insert take.
func (r *upsertRun) keyColumns() []int {
	if r.VersionAt < 0 {
		return r.KeyAt
	}
	return append(slices.Clone(r.KeyAt), r.VersionAt)
}

func (r *upsertRun) allColumns() []int {
	columns := make([]int, len(r.Columns))
	for i := range columns {
		columns[i] = i
	}
	return columns
}

// arrayHeader begins an array of texts in the binary form, see [endArray].
var arrayHeader = func() (b []byte) {
	for _, word := range []uint32{1, 1, pgtype.TextOID, 0, 1} { // dimensions, whether there may be NULLs, type, length, first index
		b = binary.BigEndian.AppendUint32(b, word)
	}
	return b
}()

func endArray(b []byte, n int) { binary.BigEndian.PutUint32(b[12:], uint32(n)) }

// encode makes an array of texts for each column of a statement, and returns of how many rows. The
// arrays are valid until the next call.
func (r *upsertRun) encode(rows []int, s upsertStatement) (arrays [][]byte, n int, err error) {
	for len(*r.buffers) < len(s.columns)+1 {
		*r.buffers = append(*r.buffers, nil)
	}
	arrays = (*r.buffers)[:len(s.columns)]
	if s.deletes {
		arrays = (*r.buffers)[:len(s.columns)+1]
	}
	for i := range arrays {
		arrays[i] = append(arrays[i][:0], arrayHeader...)
	}
	size := 0
	for ; n < len(rows) && (!s.split || size < insertBytes); n++ {
		row := rows[n]
		for i, column := range s.columns {
			before := len(arrays[i])
			if arrays[i], err = r.element(arrays[i], row, column); err != nil {
				return nil, 0, &keyed.RowError{Row: row, Err: err}
			}
			size += len(arrays[i]) - before
		}
		if s.deletes {
			last := len(s.columns)
			arrays[last] = append(binary.BigEndian.AppendUint32(arrays[last], 1), map[bool]byte{true: 't', false: 'f'}[r.Deletes(row)])
		}
	}
	for _, b := range arrays {
		endArray(b, n)
	}
	return arrays, n, nil
}

// element appends a value to an array.
func (r *upsertRun) element(b []byte, row, column int) ([]byte, error) {
	at := len(b)
	b, err := appendCopied(append(b, 0, 0, 0, 0), r.conn.TypeMap(), r.known.bases[column], r.Rows[row][column])
	if err != nil {
		return b, fmt.Errorf("column %s: %w", r.Columns[column], err)
	}
	value, null := unescape(b[at+4:])
	switch {
	case null && slices.Contains(r.KeyAt, column):
		return b, keyed.NullKey(r.Columns[column])
	case null:
		return binary.BigEndian.AppendUint32(b[:at], 0xffffffff), nil
	}
	binary.BigEndian.PutUint32(b[at:], uint32(len(value)))
	return b[:at+4+len(value)], nil
}

// unescape undoes, in place, what is escaped in the text form of COPY.
func unescape(text []byte) (value []byte, null bool) {
	at := bytes.IndexByte(text, '\\')
	switch {
	case at < 0:
		return text, false
	case string(text) == `\N`:
		return nil, true
	}
	value = text[:at]
	for ; at < len(text); at++ {
		c := text[at]
		if c == '\\' && at+1 < len(text) {
			at++
			switch c = text[at]; c {
			case 't':
				c = '\t'
			case 'n':
				c = '\n'
			case 'r':
				c = '\r'
			}
		}
		value = append(value, c)
	}
	return value, false
}

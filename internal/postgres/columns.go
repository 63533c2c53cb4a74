package postgres

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sluice-go/sluice/driver"
)

// Column is what a column of a table is.
type Column struct {
	Name string
	Type string // as SQL writes it: numeric(9,2)
	// Base is the name of the type, of a domain that of the type below it.
	Base string
	Cast string // the base type as SQL writes it

	oid, base uint32
	modifier  int32
}

// IsDomain reports whether Base is below the column's own type.
func (c Column) IsDomain() bool { return c.oid != c.base }

// Columns are those of a table that a [Copy] writes to.
type Columns []Column

// Changes says which columns have changed, and how; none of those that are missing in one of the
// two.
func (c Columns) Changes(now Columns) []string {
	types := make(map[string]string)
	for _, column := range now {
		types[column.Name] = column.Type
	}
	return c.changes(types)
}

func (c Columns) changes(now map[string]string) (list []string) {
	for _, was := range c {
		if is, ok := now[was.Name]; ok && is != was.Type {
			list = append(list, fmt.Sprintf("column %s has changed from %s to %s", was.Name, was.Type, is))
		}
	}
	return list
}

// Same reports whether two descriptions are of the same columns.
func (c Columns) Same(d Columns) bool { return slices.Equal(c, d) }

// ColumnsError is the error of a [Copy] that has written nothing, because a column is not what it
// was. It is about the table and not about a row.
type ColumnsError struct {
	Err   error
	cause *pgconn.PgError
}

func (e *ColumnsError) Error() string { return e.Err.Error() }

// Unwrap returns the reason, and an error of PostgreSQL that says what it is about.
func (e *ColumnsError) Unwrap() []error { return []error{e.Err, e.cause} }

const (
	datatypeMismatch = "42804"
	invalidText      = "22P02"
	unsafeTable      = "SLU01" // of Sluice's own
	unfitColumn      = "SLU02" // likewise
)

// Changed is the error of a [Copy.Check] that has noticed changes, and has found that the columns
// can be written to all the same.
func Changed(changes []string) error {
	text := strings.Join(changes, ", ")
	return &ColumnsError{errors.New(text), &pgconn.PgError{Severity: "ERROR", Code: invalidText, Message: changedMark + text}}
}

// Unfit is an error that says of a table why its columns cannot be written to.
func Unfit(err error) error {
	if _, said := errors.AsType[*ColumnsError](err); said {
		return err
	}
	return &ColumnsError{Err: err, cause: &pgconn.PgError{Severity: "ERROR", Code: unfitColumn, Message: err.Error()}}
}

// NoInput reports whether an error says that a type takes no text at all.
func NoInput(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && e.Code == "0A000"
}

// changedMark is how the message of a failed check of columns begins. No event can contain it.
var changedMark = "sluice " + rand.Text() + " found columns "

// ColumnsChanged reports whether an error says that a [Copy] has written nothing because a column
// has changed: the next one can succeed.
func ColumnsChanged(e *pgconn.PgError) bool {
	return e.Code == invalidText && strings.Contains(e.Message, changedMark)
}

// knownTable is what a connection knows of a table's columns. Each COPY checks that it is still
// true.
type knownTable struct {
	safe    bool // it was checked
	columns Columns
	bases   []uint32 // the base types of the copy's columns, in its order
	sql     string   // the check, and COPY without its form
	lock    string   // the check alone, in two statements
	compare string
	place   copiedTable
	changes int64 // how many changes of it were noticed before
}

// changesNoticed counts, for each table of a database whose columns have changed, the checks that
// have failed: what was known before may be wrong, on each connection.
var changesNoticed sync.Map // of copiedTable to *atomic.Int64

// copiedTable is a table and its columns, among all that the process writes to.
type copiedTable struct {
	host     string
	port     uint16
	database string
	key      string
}

func (p copiedTable) changes() int64 {
	if n, ok := changesNoticed.Load(p); ok {
		return n.(*atomic.Int64).Load()
	}
	return 0
}

func (p copiedTable) noticed() {
	n, _ := changesNoticed.LoadOrStore(p, new(atomic.Int64))
	n.(*atomic.Int64).Add(1)
}

// knownKey is where a connection keeps, among its custom data, what it knows: of so many tables at
// most.
const (
	knownKey  = "github.com/sluice-go/sluice/internal/postgres"
	mostKnown = 500
)

// connection is what a connection keeps.
type connection struct {
	config *pgx.ConnConfig // a copy takes long
	known  map[string]*knownTable
	keyed  map[string]*keyedTable
}

func connectionOf(conn *pgx.Conn) *connection {
	kept, ok := conn.PgConn().CustomData()[knownKey].(*connection)
	if !ok {
		kept = &connection{config: conn.Config()}
		conn.PgConn().CustomData()[knownKey] = kept
	}
	if kept.known == nil || len(kept.known) == mostKnown {
		kept.known, kept.keyed = make(map[string]*knownTable), make(map[string]*keyedTable)
	}
	return kept
}

// known returns what the connection knows of the table, and asks the server if that is nothing.
func (c *Copy) known(ctx context.Context, conn *pgx.Conn) (*knownTable, error) {
	kept := connectionOf(conn)
	at := copiedTable{kept.config.Host, kept.config.Port, kept.config.Database, c.key()}
	if known, ok := kept.known[at.key]; ok && known.changes == at.changes() && (known.safe || c.Unchecked) {
		return known, nil
	}
	if !c.Unchecked {
		switch err := CheckTable(ctx, conn, c.Table.Sanitize()); {
		case errors.Is(err, driver.ErrUnsafeTable):
			return nil, &ColumnsError{Err: err, cause: &pgconn.PgError{Severity: "ERROR", Code: unsafeTable, Message: err.Error()}}
		case err != nil:
			return nil, err
		}
	}
	known := &knownTable{safe: !c.Unchecked, bases: make([]uint32, len(c.Columns)), place: at, changes: at.changes()}
	found, err := ColumnsOf(ctx, conn, c.Table.Sanitize())
	if err != nil {
		return nil, err
	}
	for _, column := range found {
		if i := slices.Index(c.Columns, column.Name); i >= 0 {
			known.columns, known.bases[i] = append(known.columns, column), column.base
		}
	}
	known.lock, known.compare = c.checks(known.columns)
	known.sql = known.lock + "; " + known.compare + "; " + c.text()
	kept.known[at.key] = known
	return known, nil
}

func (c *Copy) key() string { return c.Table.Sanitize() + " " + strings.Join(c.Columns, ",") }

// forget has the columns read again by the next copy on the connection.
func (c *Copy) forget(conn *pgx.Conn) { delete(connectionOf(conn).known, c.key()) }

// columnsSQL describes the columns of a table. A domain is followed to the type below it.
const columnsSQL = `
WITH RECURSIVE below AS (
	SELECT attnum, attname, atttypid, atttypmod, atttypid AS base
	FROM pg_catalog.pg_attribute WHERE attrelid = $1::text::pg_catalog.regclass AND attnum > 0 AND NOT attisdropped
	UNION ALL
	SELECT attnum, attname, atttypid, atttypmod, typbasetype
	FROM below JOIN pg_catalog.pg_type ON oid = base WHERE typtype = 'd')
SELECT attname, pg_catalog.format_type(atttypid, atttypmod), typname, pg_catalog.format_type(base, NULL), atttypid, base, atttypmod
FROM below JOIN pg_catalog.pg_type ON oid = base WHERE typtype <> 'd' ORDER BY attnum`

// Querier is a connection, or a pool.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// ColumnsOf describes the columns of a table, whose name is quoted.
func ColumnsOf(ctx context.Context, q Querier, table string) (Columns, error) {
	rows, err := q.Query(ctx, columnsSQL, pgx.QueryExecModeExec, table)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (c Column, err error) {
		err = row.Scan(&c.Name, &c.Type, &c.Base, &c.Cast, &c.oid, &c.base, &c.modifier)
		return c, err
	})
}

// TypeOf describes a type, as a column without a name.
func TypeOf(ctx context.Context, q Querier, oid uint32) (c Column, err error) {
	rows, err := q.Query(ctx, `
WITH RECURSIVE below AS (
	SELECT $1::text::oid AS base
	UNION ALL
	SELECT typbasetype FROM below JOIN pg_catalog.pg_type ON oid = base WHERE typtype = 'd')
SELECT typname, pg_catalog.format_type(base, NULL) FROM below JOIN pg_catalog.pg_type ON oid = base WHERE typtype <> 'd'`,
		pgx.QueryExecModeExec, strconv.FormatUint(uint64(oid), 10))
	if err != nil {
		return c, err
	}
	return pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (c Column, err error) {
		err = row.Scan(&c.Base, &c.Cast)
		return c, err
	})
}

// text is the copy, without its form.
func (c *Copy) text() string {
	names := make([]string, len(c.Columns))
	for i, name := range c.Columns {
		names[i] = pgx.Identifier{name}.Sanitize()
	}
	return `COPY ` + c.Table.Sanitize() + ` (` + strings.Join(names, ", ") + `) FROM STDIN (`
}

// checks are two statements that come before the copy, in its round trip. The first locks the table
// as COPY does, and executes nothing: unlike LOCK TABLE it needs no right to the whole table. After
// that no column can change before the transaction ends. The second fails if one has changed, so
// that COPY does not begin.
func (c *Copy) checks(columns Columns) (lock, compare string) {
	types := make([]string, len(columns))
	for i, column := range columns {
		types[i] = fmt.Sprintf("%d %d %s", column.oid, column.modifier, column.Name)
	}
	table, literals := c.Table.Sanitize(), make([]string, len(c.Columns))
	for i, name := range c.Columns {
		literals[i] = Literal(name)
	}
	from := `FROM pg_catalog.pg_attribute WHERE attrelid = ` + Literal(table) + `::pg_catalog.regclass AND attnum > 0 AND NOT attisdropped AND attname IN (` +
		strings.Join(literals, ", ") + `)`
	return `EXPLAIN INSERT INTO ` + table + ` DEFAULT VALUES`,
		`SELECT CASE WHEN types = ` + Literal(strings.Join(types, ",")) + ` THEN 0 ELSE CAST(` + Literal(changedMark) +
			` || (SELECT pg_catalog.json_object_agg(attname, pg_catalog.format_type(atttypid, atttypmod)) ` + from + `) AS integer) END ` +
			`FROM (SELECT coalesce(pg_catalog.string_agg(atttypid || ' ' || atttypmod || ' ' || attname, ',' ORDER BY attnum), '') AS types ` + from + `) AS found`
}

// Literal quotes a text for SQL, whatever standard_conforming_strings says.
func Literal(text string) string {
	quoted := "'" + strings.ReplaceAll(text, "'", "''") + "'"
	if strings.Contains(text, `\`) {
		quoted = " E" + strings.ReplaceAll(quoted, `\`, `\\`)
	}
	return quoted
}

// changed returns the error for a check that has failed, nil for another error.
func (k *knownTable) changed(e *pgconn.PgError) error {
	if !ColumnsChanged(e) {
		return nil
	}
	k.place.noticed()
	_, found, _ := strings.Cut(e.Message, changedMark)
	now := make(map[string]string)
	if err := json.NewDecoder(strings.NewReader(found)).Decode(&now); err != nil {
		return &ColumnsError{fmt.Errorf("the columns have changed: %s", found), e}
	}
	changes := k.columns.changes(now)
	if len(changes) == 0 {
		changes = []string{"the columns have changed: there are " + strings.Join(slices.Sorted(maps.Keys(now)), ", ")}
	}
	return &ColumnsError{errors.New(strings.Join(changes, ", ")), e}
}

package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// statements are the SQL of a table in a dialect.
type statements struct {
	describe, state, bounds, seek, tagAt, changed, read *query
	lock, unnumbered, number, advance, delete           *query

	check      func(ctx context.Context, db *sql.DB) error
	insertRows int // rows in one INSERT, at most
	insert     func(rows int) string
}

// stateColumns are those of [state.fields].
const stateColumns = "p.incarnation, p.head, p.first_n, p.first_tag, p.last_tag"

// newStatements makes the statements. In the texts below @t is the table, @p that of the
// partitions, and {name} an argument.
func newStatements(d Dialect, table string) (*statements, error) {
	terms, known := dialects[d]
	if !known {
		return nil, fmt.Errorf("outbox: dialect %q: write one of postgres, mysql, sqlserver and sqlite", d)
	}
	names := strings.NewReplacer("@t", table, "@p", table+"_partitions")
	q := func(text string) *query { return newQuery(names.Replace(text), terms.placeholder) }
	limited := func(columns, rest string) string {
		if d == SQLServer {
			return "SELECT TOP ({limit}) " + columns + rest
		}
		return "SELECT " + columns + rest + " LIMIT {limit}"
	}
	const without = `EXISTS (SELECT 1 FROM @t WHERE partition_id = {part} AND n IS NULL)`
	columns := "n, tag, " + terms.micros + " AS created, event_key, message_id, correlation_id, content_type, properties, body"
	s := &statements{
		describe: q(`SELECT p.partition_id, p.incarnation, ` + terms.database + ` FROM @p p ORDER BY p.partition_id`),
		state:    q(`SELECT ` + stateColumns + ` FROM @p p WHERE p.partition_id = {part}`),
		bounds: q(`SELECT ` + stateColumns + `, (SELECT COUNT(*) FROM @t WHERE partition_id = {part} AND n IS NULL),
			(SELECT ` + terms.micros + ` FROM @t WHERE partition_id = {part} AND n = p.head - 1) FROM @p p WHERE p.partition_id = {part}`),
		seek:    q(`SELECT MIN(n) FROM @t WHERE partition_id = {part} AND n IS NOT NULL AND created_at >= {since}`),
		tagAt:   q(`SELECT MIN(tag) FROM @t WHERE partition_id = {part} AND n = {n}`),
		changed: q(`SELECT MIN(n) FROM @t WHERE partition_id = {part} AND n IS NOT NULL AND tag > {tag}`),
		read: q(`SELECT ` + stateColumns + `, (SELECT MIN(tag) FROM @t WHERE partition_id = {part} AND n = {n}) AS here,
			CASE WHEN ` + without + ` THEN 1 ELSE 0 END AS fresh, e.*
			FROM @p p LEFT JOIN (` + limited(columns, ` FROM @t WHERE partition_id = {part} AND n > {n} ORDER BY n`) + `) e ON 1 = 1
			WHERE p.partition_id = {part} ORDER BY e.n`),
		lock:       q(terms.lock),
		unnumbered: q(limited("id", " FROM @t WHERE partition_id = {part} AND n IS NULL ORDER BY "+terms.orderNew)),
		number:     q(terms.number),
		advance: q(`UPDATE @p SET head = {head}, first_n = {first}, first_tag = {firstTag}, last_tag = {tag}
			WHERE partition_id = {part} AND incarnation = {incarnation} AND head = {oldHead} AND first_n = {oldFirst}`),
		delete:     q(`DELETE FROM @t WHERE partition_id = {part} AND n >= {first} AND n <= {last}`),
		check:      terms.check,
		insertRows: terms.variables / insertColumns,
	}
	into := names.Replace(`INSERT INTO @t (partition_id, event_key, message_id, correlation_id, content_type, properties, body, created_at) VALUES `)
	s.insert = func(rows int) string {
		values := strings.Repeat(", ({a}, {a}, {a}, {a}, {a}, {a}, "+terms.binary+", COALESCE({a}, "+terms.now+"))", rows)
		return newQuery(into+values[2:], terms.placeholder).text
	}
	return s, nil
}

// insertColumns are the columns of an INSERT.
const insertColumns = 8

// args are the arguments of a [query], by their names in its text.
type args map[string]any

// query is a statement with named arguments.
type query struct {
	text  string
	names []string
}

var argument = regexp.MustCompile(`\{[a-zA-Z]+\}`)

func newQuery(text string, placeholder func(i int) string) *query {
	q := &query{}
	q.text = argument.ReplaceAllStringFunc(text, func(name string) string {
		q.names = append(q.names, strings.Trim(name, "{}"))
		return placeholder(len(q.names))
	})
	return q
}

func question(int) string   { return "?" }
func dollar(i int) string   { return "$" + strconv.Itoa(i) }
func atNumber(i int) string { return "@p" + strconv.Itoa(i) }

// querier is a *sql.DB or a *sql.Tx.
type querier interface {
	Execer
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

func (q *query) list(a args) []any {
	list := make([]any, len(q.names))
	for i, name := range q.names {
		list[i] = a[name]
	}
	return list
}

func (q *query) query(ctx context.Context, db querier, a args) (*sql.Rows, error) {
	return db.QueryContext(ctx, q.text, q.list(a)...)
}

// one reads the only row of a statement.
func (q *query) one(ctx context.Context, db querier, a args, dest ...any) error {
	rows, err := q.query(ctx, db, a)
	if err != nil {
		return err
	}
	defer rows.Close()
	found := false
	for rows.Next() {
		if found {
			return fmt.Errorf("more than one row where there must be one: %s", q.text)
		}
		found = true
		if err := rows.Scan(dest...); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	if !found {
		return fmt.Errorf("the partition's row in the table of partitions is missing: restore it")
	}
	return nil
}

// exec runs a statement and returns how many rows it has changed.
func (q *query) exec(ctx context.Context, db querier, a args) (int64, error) {
	result, err := db.ExecContext(ctx, q.text, q.list(a)...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

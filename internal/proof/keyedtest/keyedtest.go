// Package keyedtest proves for each database that rows written by key leave the table as
// [driver.Keyed] says.
package keyedtest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/suite"
)

// Upsert is pgstore.Upsert or sqlstore.Tx.Upsert of a transaction.
type Upsert func(table string, columns []string, rows [][]any, k driver.Keyed) error

// Harness is a database with a store.
type Harness struct {
	// DB is another way into the database.
	DB *sql.DB
	// Step runs a handler's transaction of one of two partitions, 0 and 1, and commits it.
	Step func(ctx context.Context, partition int, handle func(ctx context.Context, upsert Upsert) error) error
	// Row is the row that an error names; -1: none.
	Row func(err error) int
	// Outage reports whether an error of Step blames no event.
	Outage func(err error) bool
	Words  Words
}

// Words are SQL of a database.
type Words struct {
	Fold, Text, Bytes, Time, Decimal, Int string // types; of Fold, texts are equal whatever their case, 20 characters long
	Identity                              string // the end of an integer's definition
	// Trigger makes a trigger of a name on table leaky that leaves out the row, if its body is the
	// name: on an INSERT, UPDATE or DELETE. Empty: there is none.
	Trigger func(name, event string) string
	// Partial is an index on column n of table t for some of its rows; empty: there is none.
	Partial string
	// Quote quotes a name.
	Quote      func(name string) string
	TimeEquals string // a condition: column %s has 2026-07-01 01:02:03.004005
	Loose      bool   // a column takes values of every type and length
	Abort      bool   // a text that is no number ends the transaction
	// SlowDeadlocks: the server takes a second to find one.
	SlowDeadlocks bool
}

func (h Harness) exec(t testing.TB, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if _, err := h.DB.ExecContext(suite.Context(t), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

// table makes a table.
func (h Harness) table(t testing.TB, name string, columns ...string) {
	t.Helper()
	h.exec(t, "CREATE TABLE "+name+" ("+strings.Join(columns, ", ")+")")
}

// rows are those of a query, as texts; NULL is <nil>.
func (h Harness) rows(t testing.TB, query string) (list []string) {
	t.Helper()
	rows, err := h.DB.QueryContext(suite.Context(t), query)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	suite.NoError(t, "columns", err)
	for rows.Next() {
		values, dest := make([]any, len(columns)), make([]any, len(columns))
		for i := range values {
			dest[i] = &values[i]
		}
		suite.NoError(t, "scan", rows.Scan(dest...))
		texts := make([]string, len(values))
		for i, v := range values {
			if b, ok := v.([]byte); ok {
				v = string(b)
			}
			texts[i] = fmt.Sprint(v)
		}
		list = append(list, strings.Join(texts, "|"))
	}
	suite.NoError(t, "rows", rows.Err())
	return list
}

// expect compares the rows of a query.
func (h Harness) expect(t testing.TB, what, query string, want ...string) {
	t.Helper()
	if got := h.rows(t, query); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%s: rows are\n%s\nwant\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// upsert runs a step of one write.
func (h Harness) upsert(t testing.TB, table, columns string, rows [][]any, k driver.Keyed) error {
	t.Helper()
	return h.Step(suite.Context(t), 0, func(_ context.Context, upsert Upsert) error {
		return upsert(table, strings.Fields(columns), rows, k)
	})
}

// refused fails the test unless a write is refused for one row, and nothing was written.
func (h Harness) refused(t testing.TB, what string, row int, table, columns string, rows [][]any, k driver.Keyed) {
	t.Helper()
	before := h.rows(t, "SELECT * FROM "+table+" ORDER BY 1")
	err := h.upsert(t, table, columns, rows, k)
	if got := h.Row(err); err == nil || got != row || h.Outage(err) {
		t.Errorf("%s: error %v, of row %d; want one of row %d", what, err, got, row)
	}
	h.expect(t, what, "SELECT * FROM "+table+" ORDER BY 1", before...)
}

// Run runs the suite.
func Run(t *testing.T, open func(t testing.TB) Harness) {
	suite.Run(t, []suite.Check[Harness]{
		{Name: "folded", Run: folded},
		{Name: "writers", Run: writers},
		{Name: "beside", Run: concurrent},
		{Name: "arguments", Run: arguments},
		{Name: "null key", Run: nullKey},
		{Name: "no key", Run: noKey},
		{Name: "refused", Run: refused},
		{Name: "second unique index", Run: secondUnique},
		{Name: "triggers", Run: triggers},
		{Name: "columns beside", Run: columnsBeside},
		{Name: "key alone", Run: keyAlone},
		{Name: "values", Run: values},
		{Name: "names", Run: names},
		{Name: "sizes", Run: sizes},
	}, open)
}

func arguments(t testing.TB, h Harness) {
	h.table(t, "plain", "id "+h.Words.Int+" NOT NULL PRIMARY KEY", "body "+h.Words.Text)
	for what, k := range map[string]driver.Keyed{
		"no key":                 {},
		"an unknown column":      {Key: []string{"other"}},
		"a column twice":         {Key: []string{"id", "id"}},
		"a version":              {Key: []string{"id"}, Version: "body"},
		"no version":             {Key: []string{"id"}, OnConflict: driver.Newer},
		"the key as version":     {Key: []string{"id"}, OnConflict: driver.Newer, Version: "id"},
		"an unknown OnConflict":  {Key: []string{"id"}, OnConflict: 9},
		"an unknown version":     {Key: []string{"id"}, OnConflict: driver.Newer, Version: "other"},
		"a value too many (key)": {Key: []string{"id"}},
	} {
		row := []any{1, "x"}
		if strings.HasPrefix(what, "a value") {
			row = append(row, 2)
		}
		if err := h.upsert(t, "plain", "id body", [][]any{row}, k); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
	suite.NoError(t, "no rows", h.upsert(t, "plain", "id body", nil, driver.Keyed{Key: []string{"id"}}))
	h.expect(t, "arguments", "SELECT * FROM plain")
	if err := h.upsert(t, "nowhere", "id body", [][]any{{1, "x"}}, driver.Keyed{Key: []string{"id"}}); err == nil {
		t.Error("missing table: no error")
	}
}

func nullKey(t testing.TB, h Harness) {
	h.table(t, "pairs", "a "+h.Words.Int+" NOT NULL", "b "+h.Words.Int+" NOT NULL", "body "+h.Words.Text, "PRIMARY KEY (a, b)")
	k := driver.Keyed{Key: []string{"b", "a"}}
	h.refused(t, "NULL", 1, "pairs", "a b body", [][]any{{1, 1, "x"}, {1, nil, "x"}}, k)
	h.refused(t, "NULL of database/sql", 1, "pairs", "a b body", [][]any{{1, 1, "x"}, {sql.NullInt64{}, 1, "x"}}, k)
	k.Delete = func(int) bool { return true }
	h.refused(t, "delete of NULL", 0, "pairs", "a b body", [][]any{{nil, 1, "x"}}, k)
}

func noKey(t testing.TB, h Harness) {
	id := "id " + h.Words.Int + " NOT NULL"
	tables := map[string][]string{
		"bare_table":    {id, "n " + h.Words.Int},
		"larger_key":    {id, "n " + h.Words.Int + " NOT NULL", "UNIQUE (id, n)"},
		"nullable_key":  {"id " + h.Words.Int + " NULL UNIQUE", "n " + h.Words.Int},
		"ordinary_only": {id, "n " + h.Words.Int},
		"partial_only":  {id, "n " + h.Words.Int},
	}
	for name, columns := range tables {
		h.table(t, name, columns...)
	}
	h.exec(t, "CREATE INDEX ordinary ON ordinary_only (id)")
	if h.Words.Partial == "" {
		delete(tables, "partial_only")
	} else {
		h.exec(t, fmt.Sprintf(h.Words.Partial, "partial_only"))
	}
	for name := range tables {
		var of error
		err := h.Step(suite.Context(t), 0, func(_ context.Context, upsert Upsert) error {
			of = upsert(name, []string{"id", "n"}, [][]any{{1, 1}}, driver.Keyed{Key: []string{"id"}})
			return nil // the store remembers it
		})
		if !errors.Is(of, driver.ErrUnsafeTable) || !h.Outage(err) || !strings.Contains(err.Error(), "table "+name+" ") {
			t.Errorf("%s: error %v, and of the step %v; want an outage that names the table", name, of, err)
		}
		h.expect(t, name, "SELECT * FROM "+name)
	}
	h.exec(t, "CREATE UNIQUE INDEX added ON bare_table (id)")
	suite.NoError(t, "with an index", h.upsert(t, "bare_table", "id n", [][]any{{1, 1}}, driver.Keyed{Key: []string{"id"}}))
	h.expect(t, "with an index", "SELECT * FROM bare_table", "1|1")
}

func refused(t testing.TB, h Harness) {
	h.table(t, "strict", "id "+h.Words.Int+" NOT NULL PRIMARY KEY", "n "+h.Words.Int+" NOT NULL CHECK (n < 100)", "short VARCHAR(3)")
	h.exec(t, "INSERT INTO strict VALUES (5, 5, 'abc')")
	rows := func(bad []any) [][]any {
		list := make([][]any, 150)
		for i := range list {
			list[i] = []any{i, i % 7, "abc"}
		}
		list[97] = bad
		return list
	}
	for _, on := range []driver.OnConflict{driver.Update, driver.Skip, driver.Newer} {
		k := driver.Keyed{Key: []string{"id"}, OnConflict: on}
		if on == driver.Newer {
			k.Version = "n"
		}
		h.refused(t, on.String()+": a check", 97, "strict", "id n short", rows([]any{1097, 100, "x"}), k)
		h.refused(t, on.String()+": NULL", 97, "strict", "id n short", rows([]any{1097, nil, "x"}), k)
	}
	k := driver.Keyed{Key: []string{"id"}}
	if !h.Words.Loose {
		h.refused(t, "a long text", 97, "strict", "id n short", rows([]any{97, 1, "abcd"}), k)
		if !h.Words.Abort {
			h.refused(t, "no number", 97, "strict", "id n short", rows([]any{97, "x", "abc"}), k)
		}
	}
	suite.NoError(t, "good rows", h.upsert(t, "strict", "id n short", rows([]any{97, 1, "abc"}), k))
}

// secondUnique: a row whose key is new, and which collides with another row elsewhere, is refused.
// It must not change that row.
func secondUnique(t testing.TB, h Harness) {
	h.table(t, "doubly", "id "+h.Words.Int+" NOT NULL PRIMARY KEY", "code "+h.Words.Int+" NOT NULL UNIQUE", "v "+h.Words.Int)
	k := driver.Keyed{Key: []string{"id"}}
	suite.NoError(t, "first rows", h.upsert(t, "doubly", "id code v", [][]any{{1, 10, 1}, {2, 20, 1}}, k))
	for _, k := range []driver.Keyed{k, {Key: []string{"id"}, OnConflict: driver.Skip}, {Key: []string{"id"}, OnConflict: driver.Newer, Version: "v"}} {
		h.refused(t, k.OnConflict.String()+": new row", 1, "doubly", "id code v", [][]any{{3, 30, 2}, {4, 10, 2}, {5, 50, 2}}, k)
		h.refused(t, k.OnConflict.String()+": two new rows", 2, "doubly", "id code v", [][]any{{3, 30, 2}, {4, 40, 2}, {5, 30, 2}}, k)
		if k.OnConflict != driver.Skip {
			h.refused(t, k.OnConflict.String()+": existing row", 0, "doubly", "id code v", [][]any{{1, 20, 2}, {5, 50, 2}}, k)
		}
	}
	suite.NoError(t, "other key", h.upsert(t, "doubly", "id code v", [][]any{{9, 10, 2}}, driver.Keyed{Key: []string{"code"}}))
	h.expect(t, "doubly", "SELECT id, code, v FROM doubly ORDER BY id", "2|20|1", "9|10|2")
	suite.NoError(t, "moved in order", h.upsert(t, "doubly", "id code v", [][]any{{9, 11, 3}, {2, 10, 3}}, k))
	h.expect(t, "doubly", "SELECT id, code, v FROM doubly ORDER BY id", "2|10|3", "9|11|3")
}

// triggers: a row that is not written is noticed.
func triggers(t testing.TB, h Harness) {
	if h.Words.Trigger == nil {
		t.Skip("a trigger of this database fails the statement, and cannot leave out a row")
	}
	k := driver.Keyed{Key: []string{"id"}}
	deletes := driver.Keyed{Key: []string{"id"}, Delete: func(row int) bool { return row == 1 }}
	newer := driver.Keyed{Key: []string{"id"}, OnConflict: driver.Newer, Version: "v"}
	for event, c := range map[string]struct {
		keys []driver.Keyed
		row  []any
	}{
		"INSERT": {[]driver.Keyed{k, newer, {Key: []string{"id"}, OnConflict: driver.Skip}}, []any{50, 2, "INSERT"}},
		"UPDATE": {[]driver.Keyed{k, newer}, []any{1, 2, "UPDATE"}},
		"DELETE": {[]driver.Keyed{deletes}, []any{3, 2, "x"}},
	} {
		h.table(t, "leaky", "id "+h.Words.Int+" NOT NULL PRIMARY KEY", "v "+h.Words.Int, "body "+h.Words.Text)
		h.exec(t, "INSERT INTO leaky VALUES (1, 1, 'x')", "INSERT INTO leaky VALUES (2, 1, 'x')", "INSERT INTO leaky VALUES (3, 1, 'DELETE')")
		if text := h.Words.Trigger(event, event); text != "" {
			h.exec(t, text)
			for _, k := range c.keys {
				h.refused(t, event+" "+k.OnConflict.String(), 1, "leaky", "id v body", [][]any{{60, 2, "x"}, c.row, {2, 2, "x"}}, k)
			}
		}
		h.exec(t, "DROP TABLE leaky")
	}
}

func columnsBeside(t testing.TB, h Harness) {
	h.table(t, "beside", "number "+h.Words.Int+" "+h.Words.Identity, "id "+h.Words.Int+" NOT NULL UNIQUE", "n "+h.Words.Int+" DEFAULT 7", "body "+h.Words.Text)
	k := driver.Keyed{Key: []string{"id"}}
	suite.NoError(t, "new rows", h.upsert(t, "beside", "id body", [][]any{{1, "a"}, {2, "b"}}, k))
	h.exec(t, "UPDATE beside SET n = 8 WHERE id = 1")
	suite.NoError(t, "updates", h.upsert(t, "beside", "body id", [][]any{{"c", 1}, {"d", 3}}, k))
	h.expect(t, "beside", "SELECT id, n, body FROM beside ORDER BY id", "1|8|c", "2|7|b", "3|7|d")
	k.Delete = func(row int) bool { return row == 0 }
	suite.NoError(t, "delete and insert", h.upsert(t, "beside", "id body", [][]any{{1, nil}, {1, "e"}}, k))
	h.expect(t, "beside", "SELECT id, n, body FROM beside ORDER BY id", "1|7|e", "2|7|b", "3|7|d")
	if got := h.rows(t, "SELECT COUNT(DISTINCT number) FROM beside"); got[0] != "3" {
		t.Errorf("%s different numbers of 3 rows", got)
	}
}

func keyAlone(t testing.TB, h Harness) {
	h.table(t, "members", "a "+h.Words.Int+" NOT NULL", "b "+h.Words.Int+" NOT NULL", "PRIMARY KEY (a, b)")
	k := driver.Keyed{Key: []string{"a", "b"}}
	suite.NoError(t, "two", h.upsert(t, "members", "a b", [][]any{{1, 1}, {1, 2}, {1, 1}}, k))
	k.Delete = func(row int) bool { return row == 1 }
	suite.NoError(t, "one less", h.upsert(t, "members", "a b", [][]any{{1, 1}, {1, 2}, {2, 2}}, k))
	h.expect(t, "members", "SELECT a, b FROM members ORDER BY a, b", "1|1", "2|2")
}

// names: those of table and columns are quoted, and a schema may be before the table's.
func names(t testing.TB, h Harness) {
	q := h.Words.Quote
	h.table(t, q("odd table"), q("order")+" "+h.Words.Int+" NOT NULL PRIMARY KEY", q("a b")+" "+h.Words.Int, q("v")+" "+h.Words.Int)
	for _, on := range []driver.OnConflict{driver.Update, driver.Skip, driver.Newer} {
		k := driver.Keyed{Key: []string{"order"}, OnConflict: on, Delete: func(row int) bool { return row == 2 }}
		if on == driver.Newer {
			k.Version = "a b"
		}
		err := h.Step(suite.Context(t), 0, func(_ context.Context, upsert Upsert) error {
			return upsert("odd table", []string{"a b", "order", "v"}, [][]any{{int(on), 1, 1}, {1, 2, 2}, {1, 2, nil}}, k)
		})
		suite.NoError(t, on.String(), err)
	}
	h.expect(t, "names", "SELECT "+q("order")+", "+q("a b")+", v FROM "+q("odd table"), "1|2|1")
}

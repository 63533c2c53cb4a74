package pipeline

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-go/sluice"
)

// triable parses a file from these lines after its source, which is a topic of Kafka.
func triable(t *testing.T, format, rest string) *Pipeline {
	t.Helper()
	text := "source: {kafka: {brokers: 'a:1', topic: t}" + format + "}\npartitions: all\ndatabase: sqlite:x.db\n" + rest
	if strings.Contains(rest, "{kafka:") {
		text = strings.Replace(text, "database: sqlite:x.db", "leases: {sql: 'sqlite:x.db'}", 1)
	}
	p, err := Parse("try.yaml", []byte(text), os.LookupEnv)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// rowsText shows rows as NAME=VALUE, with ? for what is missing and ! for what is wrong.
func rowsText(t Tried) string {
	text := t.String()
	for _, r := range t.Rows {
		text += " |"
		for _, v := range r.Values {
			switch {
			case v.Err != nil:
				text += " " + v.Name + "!"
			case v.Missing:
				text += " " + v.Name + "?"
			default:
				text += fmt.Sprintf(" %s=%v", v.Name, v.Value)
			}
		}
	}
	return text
}

const insertTwo = "insert: {table: t, columns: {n: sequence, a: {from: body.a, type: integer}, b: {from: body.b, type: integer, required: false}}}"

func TestTry(t *testing.T) {
	const debezium = ", format: {envelope: debezium}"
	const keyed = "target: {insert: {table: t, key: [id], truncates: delete, columns: {id: {from: body.id, type: integer}, x: {from: body.x, type: text}}}}"
	for _, c := range []struct {
		name, format, rest string
		body               []byte
		want               string
	}{
		{"a row", "", "target: {" + insertTwo + "}", []byte(`{"a":1,"b":null}`), "a row of t | n=7 a=1 b=<nil>"},
		{"what is missing", "", "target: {" + insertTwo + "}", []byte(`{"a":1}`), "a row of t | n=7 a=1 b?"},
		{"all wrong values", "", "target: {" + insertTwo + "}", []byte(`{"a":"x","b":1.5}`), "dead letter: column a: body.a: \"x\" where a whole number should be | n=7 a! b!"},
		{"no JSON", "", "target: {" + insertTwo + "}", []byte(`{`), "dead letter: body: "},
		{"left out", "", "only: {body.a: 2}\ntarget: {" + insertTwo + "}", []byte(`{"a":1}`), "skipped"},
		{"a route", "", "routes: [{only: {body.a: 2}, target: {" + insertTwo + "}}, {target: {" + strings.Replace(insertTwo, "table: t", "table: u", 1) + "}}]", []byte(`{"a":1}`), "a row of u | n=7 a=1 b?"},
		{"no route", "", "routes: [{only: {body.a: 2}, target: {" + insertTwo + "}}]", []byte(`{"a":1}`), "dead letter: no route takes the event: add one, or write otherwise: ignore"},
		{"no route is fine", "", "otherwise: ignore\nroutes: [{only: {body.a: 2}, target: {" + insertTwo + "}}]", []byte(`{"a":1}`), "skipped"},
		{"elements", "", "target: {insert: {table: t, each: body.l, columns: {i: each_index, v: {from: each, type: integer}}}}", []byte(`{"l":[5,6]}`), "2 rows of t | i=0 v=5 | i=1 v=6"},
		{"elements of JSON", "", "target: {insert: {table: t, each: body.l, columns: {v: {from: each, type: json}}}}", []byte(`{"l":["5",1.10,["x"]]}`), `3 rows of t | v="5" | v=1.10 | v=["x"]`},
		{"deleted elements", "", "target: {insert: {table: t, each: body.l, key: i, delete_when: {body.d: 1}, columns: {i: each.i, x: each.x}}}", []byte(`{"d":1,"l":[{"i":"a"},{"i":"b"}]}`), "deletes 2 rows of t | i=a | i=b"},
		{"a wrong element", "", "target: {insert: {table: t, each: body.l, columns: {v: {from: each, type: integer}}}}", []byte(`{"l":[5,"x"]}`), "dead letter: body.l[1]: column v: each: \"x\" where a whole number should be | v=5 | v!"},
		{"a statement", "", "target: {statement: {sql: 'DELETE FROM t WHERE a = :a', parameters: {a: body.a}}}", []byte(`{"a":"1"}`), "statement | a=1"},
		{"a message", "", "target: {kafka: {topic: u, key: body.k, body: {a: body.a}}}", []byte(`{"a":"1","k":"x"}`), "kafka | key=x a=1"},
		{"a wrong message", "", "target: {kafka: {topic: u, body: {a: body.a}}}", []byte(`{}`), "dead letter: field a: body.a: is missing | a!"},
		{"a change", debezium, keyed, []byte(`{"op":"c","after":{"id":1,"x":"y"}}`), "a row of t | id=1 x=y"},
		{"a delete", debezium, keyed, []byte(`{"op":"d","before":{"id":1}}`), "deletes a row of t | id=1"},
		{"a truncation", debezium, keyed, []byte(`{"op":"t"}`), "deletes all rows of t"},
		{"a tombstone", debezium, keyed, nil, "skipped"},
		{"no change", debezium, keyed, []byte(`{"id":1}`), "dead letter: read the debezium envelope: the body is no change event"},
	} {
		got, err := triable(t, c.format, c.rest).Try(t.Context(), &sluice.Event{Partition: "0", Sequence: 7, Body: c.body})
		if text := rowsText(got); err != nil || text != c.want && !(strings.HasPrefix(c.want, "dead letter") && strings.HasPrefix(text, c.want)) {
			t.Errorf("%s: %q, %v; want %q", c.name, text, err, c.want)
		}
	}
}

// Try refuses what the pipeline refuses: the errors are those of the handler, and trying proves
// nothing to the engine.
func TestTryProvesNothing(t *testing.T) {
	p := triable(t, "", "target: {"+insertTwo+"}")
	if _, err := p.Try(t.Context(), &sluice.Event{Body: []byte(`{"a":1}`)}); err != nil {
		t.Fatal(err)
	}
	if p.routing.routes[0].target.mappings()[0].proof.worked.Load() || p.routing.proof.worked.Load() {
		t.Error("an event that was tried counts as one that was handled")
	}
}

func TestTryWithTheTablesColumns(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	db, err := schemes["sqlite"]("sqlite:" + path)
	if err != nil {
		t.Fatal(err)
	}
	parts := &Parts{}
	p := triable(t, "", "target: {"+insertTwo+"}")
	if err := db.open(t.Context(), p, parts); err != nil {
		t.Fatal(err)
	}
	defer parts.Close(t.Context())
	if err := parts.catalog.create(t.Context(), `CREATE TABLE t (id INTEGER NOT NULL, n INTEGER, "A" TEXT, at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP)`); err != nil {
		t.Fatal(err)
	}
	columns, err := ExistingTable(t.Context(), "sqlite:"+path, "t")
	if err != nil || len(columns) != 4 || !columns[0].Required || columns[3].Required {
		t.Fatalf("%+v, %v", columns, err)
	}
	for _, c := range columns {
		if len(c.Types) == 0 || c.Kind == "" {
			t.Errorf("%+v", c)
		}
	}
	if columns, err = ExistingTable(t.Context(), "sqlite:"+path, "none"); len(columns) > 0 || err != nil {
		t.Errorf("%+v, %v", columns, err)
	}
	if columns, err = ExistingTable(t.Context(), "sqlite:"+path+".none", "t"); len(columns) > 0 || err != nil {
		t.Errorf("%+v, %v", columns, err)
	}
}

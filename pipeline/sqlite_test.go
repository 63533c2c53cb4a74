package pipeline

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicetest"
)

// opened reads the sound file with another target and database, and opens it.
func opened(t *testing.T, databaseURL, target string) (*Pipeline, *Parts) {
	t.Helper()
	p, err := Parse("p.yaml", []byte(edit(t, sound[strings.Index(sound, "  insert:"):], target)), environment("DATABASE_URL="+databaseURL))
	if err != nil {
		t.Fatal(err)
	}
	parts, err := p.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := parts.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return p, parts
}

// consume runs a consumer of the pipeline over a hub of two partitions until
// every event is rows or a dead letter.
func consume(t *testing.T, p *Pipeline, parts *Parts, events ...*sluice.Event) {
	t.Helper()
	hub := sluicetest.NewHub(p.Group, 2)
	left := map[string]int64{}
	for i, e := range events {
		partition := fmt.Sprint(i % 2)
		left[partition] = hub.Append(partition, e).Sequence
	}
	done := make(chan string, len(events))
	c, err := parts.Consumer(t.Context(), &Options{Source: hub, Observer: sluice.ObserverFunc(func(o sluice.Observation) {
		if o.Kind == sluice.KindCommitted && o.To.Sequence == left[o.Partition] {
			done <- o.Partition
		}
		if o.Kind == sluice.KindFailed || o.Kind == sluice.KindStopped {
			t.Errorf("partition %s: %v", o.Partition, o.Err)
		}
	})})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	for range left {
		select {
		case <-done:
		case <-ctx.Done():
			t.Error("not done in time")
		}
	}
	if err := errors.Join(c.Stop(ctx), <-ended); err != nil {
		t.Fatal(err)
	}
}

// deadLetters lists the errors of the group's dead letters.
func deadLetters(t *testing.T, p *Pipeline, parts *Parts) []string {
	t.Helper()
	list, err := parts.DeadLetters.List(t.Context(), p.Group, sluice.DeadLetterFilter{})
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, d := range list {
		texts = append(texts, d.Error)
	}
	slices.Sort(texts)
	return texts
}

func query(t *testing.T, db *sql.DB, text string) string {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), text)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for rows.Next() {
		values := make([]any, len(columns))
		for i := range values {
			values[i] = new(any)
		}
		if err := rows.Scan(values...); err != nil {
			t.Fatal(err)
		}
		var texts []string
		for _, v := range values {
			if b, ok := (*v.(*any)).([]byte); ok { // as MySQL returns texts
				texts = append(texts, string(b))
				continue
			}
			texts = append(texts, fmt.Sprint(*v.(*any)))
		}
		lines = append(lines, strings.Join(texts, " "))
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}

func sqliteFile(t *testing.T) (path string, db *sql.DB) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "test.db")
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return path, db
}

func mustExec(t *testing.T, db *sql.DB, text string) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), text); err != nil {
		t.Fatal(err)
	}
}

const flightsTarget = `  insert:
    table: flights
    create: true
    columns:
      hub_partition: partition
      sequence_number: sequence
      date: {from: body.date, type: text, required: false}
      delay: {from: body.delay, type: integer}
`

func TestSQLiteInsert(t *testing.T) {
	path, db := sqliteFile(t)
	p, parts := opened(t, "sqlite:"+path, flightsTarget)
	consume(t, p, parts, sluicetest.Bodies(
		`{"date":"2001/01/14 21:55","delay":0}`, `{"delay":-5}`, `{"delay":"n/a"}`, `{"date":"x","delay":3.7}`, `no JSON`, `{"delay":12}`)...)
	if got, want := query(t, db, "SELECT * FROM flights ORDER BY 1, 2"), "0 0 2001/01/14 21:55 0\n1 0 <nil> -5\n1 2 <nil> 12"; got != want {
		t.Errorf("rows\n%s\nwant\n%s", got, want)
	}
	want := []string{
		`body: not JSON at byte 1: 'o' where the rest of null should be`,
		`column delay: body.delay: "n/a" where a whole number should be`,
		`column delay: body.delay: 3.7 is not a whole number`,
	}
	if got := deadLetters(t, p, parts); !slices.Equal(got, want) {
		t.Errorf("dead letters %q, want %q", got, want)
	}
	progress, err := parts.Checkpoints.Read(t.Context(), p.Group)
	if err != nil || len(progress) != 2 || progress[0].Position.Sequence != 2 || progress[1].Position.Sequence != 2 {
		t.Errorf("checkpoints %+v, %v", progress, err)
	}
}

// A row that the table refuses is the error of its event, whatever its place in a batch.
func TestSQLiteRefuses(t *testing.T) {
	path, db := sqliteFile(t)
	mustExec(t, db, "CREATE TABLE flights (hub_partition TEXT, sequence_number INTEGER, date TEXT, delay INTEGER CHECK (delay < 100))")
	p, parts := opened(t, "sqlite:"+path, flightsTarget)
	consume(t, p, parts, sluicetest.Bodies(`{"delay":1}`, `{"delay":100}`, `{"delay":3}`, `{"delay":400}`, `{"delay":5}`, `{"delay":"x"}`)...)
	if got, want := query(t, db, "SELECT delay FROM flights ORDER BY 1"), "1\n3\n5"; got != want {
		t.Errorf("rows\n%s\nwant\n%s", got, want)
	}
	letters := deadLetters(t, p, parts)
	const refused = `insert into flights: constraint failed: CHECK constraint failed: delay < 100 (275)`
	if want := []string{`column delay: body.delay: "x" where a whole number should be`, refused, refused}; !slices.Equal(letters, want) {
		t.Errorf("dead letters %q, want %q", letters, want)
	}
}

// Every type comes out of SQLite as it should, and as the affinity says.
func TestSQLiteTypes(t *testing.T) {
	path, db := sqliteFile(t)
	p, parts := opened(t, "sqlite:"+path, `  insert:
    table: types
    create: true
    columns:
      a: {from: body.a, type: text}
      b: {from: body.b, type: integer}
      c: {from: body.c, type: bigint}
      d: {from: body.d, type: double}
      e: {from: body.e, type: numeric}
      f: {from: body.f, type: boolean}
      g: {from: body.g, type: timestamp}
      h: {from: body.h, type: bytes}
      i: {from: body.i, type: json}
      j: {from: body.j, default: none}
`)
	consume(t, p, parts, sluicetest.Bodies(`{"a":"007","b":1,"c":9007199254740993,"d":2.5,"e":1.10,"f":true,"g":"2026-01-31T09:30:00.5+01:00","h":"AP8=","i":{"x":[1.0]}}`)...)
	got := query(t, db, "SELECT a, b, c, d, e, f, g, hex(h), i, j FROM types")
	if want := `007 1 9007199254740993 2.5 1.10 1 2026-01-31 08:30:00.5+00:00 00FF {"x":[1.0]} none`; got != want {
		t.Errorf("got  %s\nwant %s\ndead letters: %q", got, want, deadLetters(t, p, parts))
	}
	if got, want := query(t, db, "SELECT typeof(a), typeof(b), typeof(d), typeof(e), typeof(g), typeof(h), typeof(i) FROM types"), "text integer real text text blob text"; got != want {
		t.Errorf("types %s, want %s", got, want)
	}
}

func TestSQLiteStatement(t *testing.T) {
	path, db := sqliteFile(t)
	mustExec(t, db, "CREATE TABLE last (origin TEXT PRIMARY KEY, delay INTEGER CHECK (delay < 100), n INTEGER)")
	p, parts := opened(t, "sqlite:"+path, `  statement:
    sql: |
      INSERT INTO last VALUES (:origin, :delay, 1)  -- :not a parameter
      ON CONFLICT (origin) DO UPDATE SET delay = :delay, n = n + 1;
    parameters:
      origin: body.origin
      delay: {from: body.delay, type: integer}
`)
	consume(t, p, parts, sluicetest.Bodies(
		`{"origin":"SAN","delay":1}`, `{"origin":"LAX","delay":2}`, `{"origin":"SAN","delay":3}`, `{"origin":"LAX","delay":500}`, `{"origin":"SAN","delay":5}`, `{"delay":1}`)...)
	if got, want := query(t, db, "SELECT * FROM last ORDER BY origin"), "LAX 2 1\nSAN 5 3"; got != want {
		t.Errorf("rows\n%s\nwant\n%s", got, want)
	}
	got := deadLetters(t, p, parts)
	if len(got) != 2 || !strings.Contains(got[0]+got[1], "CHECK constraint failed") || !strings.Contains(got[0]+got[1], "parameter origin: body.origin: is missing") {
		t.Errorf("dead letters %q", got)
	}
}

// An error of the target is reported at the start, in one line with its place.
func TestSQLiteTarget(t *testing.T) {
	const create = "create: true"
	for name, c := range map[string]struct {
		table, target, want string
	}{
		"missing": {"", strings.Replace(flightsTarget, create, "create: false", 1), "table flights does not exist: create it, or set create: true"},
		"column":  {"CREATE TABLE flights (hub_partition TEXT, sequence_number INTEGER, date TEXT)", flightsTarget, "table flights has no column delay: it has hub_partition, sequence_number, date"},
		"type": {"CREATE TABLE flights (hub_partition TEXT, sequence_number INTEGER, date TEXT, delay VARCHAR(5))", flightsTarget,
			"table flights: column delay is TEXT, which can't hold the mapping's integer: change one of them"},
		"must": {"CREATE TABLE flights (id INTEGER PRIMARY KEY, hub_partition TEXT, sequence_number INTEGER, date TEXT, delay INTEGER, origin TEXT NOT NULL)", flightsTarget,
			"table flights: column origin must have a value and has no default: add it to the mapping"},
		"generated": {"CREATE TABLE flights (hub_partition TEXT, sequence_number INTEGER, date TEXT, delay INTEGER AS (1))", flightsTarget,
			"table flights: column delay is generated and takes no values: remove it from the mapping"},
		"statement": {"", "  statement: {sql: 'INSERT INTO nowhere VALUES (:a)', parameters: {a: key}}\n", "prepare the statement: SQL logic error: no such table: nowhere (1)"},
		"fits":      {"CREATE TABLE flights (id INTEGER PRIMARY KEY NOT NULL, Hub_Partition TEXT, sequence_number INT, date CLOB, delay, made TEXT NOT NULL DEFAULT 'now')", flightsTarget, ""},
	} {
		t.Run(name, func(t *testing.T) {
			path, db := sqliteFile(t)
			mustExec(t, db, "CREATE TABLE other (a)")
			if c.table != "" {
				mustExec(t, db, c.table)
			}
			_, parts := opened(t, "sqlite:"+path, c.target)
			_, err := parts.Consumer(t.Context(), nil)
			if c.want == "" {
				if err != nil {
					t.Error(err)
				}
			} else if want := "p.yaml:14:1: target: " + c.want; err == nil || err.Error() != want {
				t.Errorf("got  %v\nwant %s", err, want)
			}
		})
	}
}

// unreachable is a broker's address without a listener.
const unreachable = "Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=a;SharedAccessKey=canary-4711;UseDevelopmentEmulator=true"

// Check changes nothing.
func TestSQLiteCheck(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct{ path, want string }{
		{filepath.Join(dir, "no", "x.db"), "p.yaml:13:1: database: check database " + dir + "/no/x.db: there is no directory " + dir + "/no: create it"},
		{filepath.Join(dir, "x.db"), ""},
	} {
		p, err := Parse("p.yaml", []byte(sound), environment("EVENTHUB_CONNECTION_STRING="+unreachable, "DATABASE_URL=sqlite:"+c.path))
		if err != nil {
			t.Fatal(err)
		}
		err = p.Check(t.Context())
		if err == nil || strings.Contains(err.Error(), "canary") {
			t.Fatalf("got %v", err)
		}
		hub, database, _ := strings.Cut(err.Error(), "\n")
		if !strings.HasPrefix(hub, "p.yaml:3:3: source.eventhub: ") || !strings.Contains(hub, "127.0.0.1:1") || database != c.want {
			t.Errorf("got  %v\nwant %s", err, c.want)
		}
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) != 0 {
		t.Errorf("Check made %v, %v", list, err)
	}

	path, db := sqliteFile(t)
	mustExec(t, db, "CREATE TABLE flights (sequence_number INTEGER)")
	p, err := Parse("p.yaml", []byte(sound), environment("DATABASE_URL=sqlite:"+path))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.checkDatabase(t.Context()); err == nil || err.Error() != "p.yaml:14:1: target: table flights has no column delay: it has sequence_number" {
		t.Errorf("got %v", err)
	}
	if got := query(t, db, "SELECT count(*) FROM sqlite_schema"); got != "1" {
		t.Errorf("Check left %s tables", got)
	}
	if err := os.WriteFile(path+"2", []byte(strings.Repeat("not a database\n", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	p.database = sqliteDatabase{path + "2"}
	if err := p.checkDatabase(t.Context()); err == nil || !strings.Contains(err.Error(), "file is not a database") {
		t.Errorf("got %v", err)
	}
}

package pipeline

import (
	"database/sql"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/sluicetest"
)

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

func TestSQLiteInsert(t *testing.T) {
	path, db := sqliteFile(t)
	p, parts, got := insertsFlights(t, "sqlite:"+path, db)
	want := []string{
		`body: not JSON at byte 1: 'o' where the rest of null should be`,
		`column delay: body.delay: "n/a" where a whole number should be`,
		`column delay: body.delay: 3.7 is not a whole number`,
	}
	if !slices.Equal(got, want) {
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
	letters := refusesRows(t, "sqlite:"+path, db)
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
	storesLastDelays(t, "sqlite:"+path, db, `  statement:
    sql: |
      INSERT INTO last VALUES (:origin, :delay, 1)  -- :not a parameter
      ON CONFLICT (origin) DO UPDATE SET delay = :delay, n = n + 1;
    parameters:
      origin: body.origin
      delay: {from: body.delay, type: integer}
`, "SELECT * FROM last ORDER BY origin", "LAX 2 1\nSAN 5 3", "CHECK constraint failed")
}

func TestSQLiteTarget(t *testing.T) {
	const create = "create: true"
	checksTargets(t, map[string]targetCase{
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
	}, func(t *testing.T) (string, *sql.DB) {
		path, db := sqliteFile(t)
		mustExec(t, db, "CREATE TABLE other (a)")
		return "sqlite:" + path, db
	})
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

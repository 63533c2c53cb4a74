package pipeline

import (
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/audit"
)

func sqliteFile(t testing.TB) (address string, db *sql.DB) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "test.db")
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return "sqlite:" + path, db
}

var sqliteEngine = testedEngine{
	database: sqliteFile, dialect: audit.SQLite(),
	text: "TEXT", short: "TEXT CHECK (length(date) < 4)", serial: "id INTEGER PRIMARY KEY", generated: "INTEGER AS (1)",
	check:   `constraint failed: CHECK constraint failed: delay < 100 \(275\)`,
	tooLong: `constraint failed: CHECK constraint failed: length\(date\) < 4 \(275\)`,
	types: typesCase{
		bodies: []string{`{"a":"007","b":1,"c":9007199254740993,"d":2.5,"e":1.10,"f":true,"g":"2026-01-31T09:30:00.5+01:00","h":"AP8=","i":{"x":[1.0]}}`},
		given: func(t *testing.T, db *sql.DB) (name, from string) {
			mustExec(t, db, "CREATE TABLE given (A CLOB, b BIGINT, c INT, d REAL, e, f, g VARCHAR(40), h, i TEXT NOT NULL, j, k, l)")
			return "given", "given"
		},
		rows: "SELECT a, b, c, d, e, f, g, hex(h), i, j, typeof(a), typeof(b), typeof(d), typeof(e), typeof(g), typeof(h), typeof(i)",
		want: `007 1 9007199254740993 2.5 1.10 1 2026-01-31 08:30:00.5+00:00 00FF {"x":[1.0]} none text integer real text text blob text`,
	},
	statement: statementCase{
		table: "CREATE TABLE last (origin TEXT PRIMARY KEY, delay INTEGER CHECK (delay < 100), n INTEGER, price TEXT, at TEXT, raw TEXT)",
		sql: `      INSERT INTO last VALUES (:origin, :delay, 1, :price, :at, :raw)  -- :not a parameter
      ON CONFLICT (origin) DO UPDATE SET delay = :delay, n = n + 1;
`,
		rows:    "SELECT origin, delay, n, price, at, json_extract(raw, '$.origin')",
		want:    "LAX 2 1 0.10 2026-01-31 08:30:00+00:00 LAX\nSAN 5 3 1.5 <nil> SAN",
		refused: "CHECK constraint failed",
	},
	leavesOut: map[string]leavesOutCase{
		"trigger":      {unique("") + "; CREATE TRIGGER leave BEFORE INSERT ON flights WHEN NEW.delay = 7 BEGIN SELECT RAISE(IGNORE); END", `0 of 1 rows were written: a trigger`},
		"key":          {unique(""), "UNIQUE constraint failed: flights.delay"},
		"ignore":       {unique("ON CONFLICT IGNORE"), "UNIQUE constraint failed: flights.delay"},
		"replace":      {unique("on/**/conflict -- the newest\n replace"), "UNIQUE constraint failed: flights.delay"},
		"fail":         {unique("ON CONFLICT FAIL"), "UNIQUE constraint failed: flights.delay"},
		"rollback":     {unique("ON CONFLICT ROLLBACK"), "UNIQUE constraint failed: flights.delay"},
		"unique index": {unique("") + "; CREATE UNIQUE INDEX again ON flights (delay)", "UNIQUE constraint failed: flights.delay"},
	},
	targets: map[string]targetCase{
		"affinity": {"CREATE TABLE flights (hub_partition TEXT, sequence_number INTEGER, date TEXT, delay VARCHAR(5))", flightsTarget,
			"table flights: column delay is TEXT, which can't hold the mapping's integer: change one of them"},
		"statement": {"", "  statement: {sql: 'INSERT INTO nowhere VALUES (:a)', parameters: {a: key}}\n", "prepare the statement: SQL logic error: no such table: nowhere (1)"},
		"fits":      {"CREATE TABLE flights (id INTEGER PRIMARY KEY NOT NULL, Hub_Partition TEXT, sequence_number INT, date CLOB, delay, made TEXT NOT NULL DEFAULT 'now')", flightsTarget, ""},
	},
	kinds: columnKinds{
		dialect: &sqliteDialect, escaped: strings.NewReplacer("'", "''"), bytes: "X'%x'", timeSuffix: "+00:00",
		kinds: []string{"TEXT", "VARCHAR(3)", "CLOB", "INTEGER", "BIGINT", "REAL", "DOUBLE PRECISION", "NUMERIC", "DECIMAL(9,1)", "DATE", "DATETIME", "BOOLEAN", "JSON", "BLOB", ""},
		shown: func(string) string { return "typeof(c) || ' ' || quote(c)" },
	},
	alterations: map[string]alteration{
		"integer to bigint": {`INTEGER`, typeInteger, `12`, `ALTER TABLE changing RENAME TO old; CREATE TABLE changing (id int NOT NULL PRIMARY KEY, c BIGINT); INSERT INTO changing SELECT * FROM old; DROP TABLE old`,
			`column c has changed from INTEGER to BIGINT`, ``, ``, `12`},
		"integer to real": {`INTEGER`, typeInteger, `12`, `ALTER TABLE changing RENAME TO old; CREATE TABLE changing (id int NOT NULL PRIMARY KEY, c REAL); INSERT INTO changing SELECT * FROM old; DROP TABLE old`,
			`column c has changed from INTEGER to REAL`, `column c is REAL, which can't hold the mapping's integer`, `ALTER TABLE changing RENAME TO old; CREATE TABLE changing (id int NOT NULL PRIMARY KEY, c INTEGER); INSERT INTO changing SELECT * FROM old; DROP TABLE old`, `12`},
		"integer to text": {`INTEGER`, typeInteger, `12`, `ALTER TABLE changing RENAME TO old; CREATE TABLE changing (id int NOT NULL PRIMARY KEY, c TEXT); INSERT INTO changing SELECT * FROM old; DROP TABLE old`,
			`column c has changed from INTEGER to TEXT`, `column c is TEXT, which can't hold the mapping's integer`, `ALTER TABLE changing RENAME TO old; CREATE TABLE changing (id int NOT NULL PRIMARY KEY, c INTEGER); INSERT INTO changing SELECT * FROM old; DROP TABLE old`, `12`},
		"text to integer": {`TEXT`, typeText, `"007"`, `ALTER TABLE changing RENAME TO old; CREATE TABLE changing (id int NOT NULL PRIMARY KEY, c INTEGER); INSERT INTO changing SELECT * FROM old; DROP TABLE old`,
			`column c has changed from TEXT to INTEGER`, `column c is INTEGER, which can't hold the mapping's text`, `ALTER TABLE changing RENAME TO old; CREATE TABLE changing (id int NOT NULL PRIMARY KEY, c TEXT); INSERT INTO changing SELECT * FROM old; DROP TABLE old`, `007`},
		"text to numeric": {`TEXT`, typeNumeric, `1.10`, `ALTER TABLE changing RENAME TO old; CREATE TABLE changing (id int NOT NULL PRIMARY KEY, c NUMERIC); INSERT INTO changing SELECT * FROM old; DROP TABLE old`,
			`column c has changed from TEXT to NUMERIC`, `column c is NUMERIC, which can't hold the mapping's numeric`, `ALTER TABLE changing RENAME TO old; CREATE TABLE changing (id int NOT NULL PRIMARY KEY, c TEXT); INSERT INTO changing SELECT * FROM old; DROP TABLE old`, `1.10`},
		"no type": {`TEXT`, typeText, `"007"`, `ALTER TABLE changing RENAME TO old; CREATE TABLE changing (id int NOT NULL PRIMARY KEY, c ); INSERT INTO changing SELECT * FROM old; DROP TABLE old`,
			`column c has changed from TEXT to a column without a type`, ``, ``, `007`},
		"wider": {`VARCHAR(9)`, typeText, `"a"`, `ALTER TABLE changing RENAME TO old; CREATE TABLE changing (id int NOT NULL PRIMARY KEY, c VARCHAR(90)); INSERT INTO changing SELECT * FROM old; DROP TABLE old`,
			`column c has changed from VARCHAR\(9\) to VARCHAR\(90\)`, ``, ``, `a`},
		"not null": {`INTEGER`, typeInteger, `12`, `ALTER TABLE changing RENAME TO old; CREATE TABLE changing (id int NOT NULL PRIMARY KEY, c INTEGER NOT NULL); INSERT INTO changing SELECT * FROM old; DROP TABLE old`,
			`column c has changed from INTEGER to INTEGER not null`, ``, ``, `12`},
		"a default": {`INTEGER`, typeInteger, `12`, `ALTER TABLE changing RENAME TO old; CREATE TABLE changing (id int NOT NULL PRIMARY KEY, c INTEGER DEFAULT 7); INSERT INTO changing SELECT * FROM old; DROP TABLE old`,
			`column c has changed from INTEGER to INTEGER with a default`, ``, ``, `12`},
		"renamed and back": {`INTEGER`, typeInteger, `12`, `ALTER TABLE changing RENAME COLUMN c TO d`,
			`column c is gone: it was INTEGER, column d is new: it is INTEGER`, `has no column c: it has id, d`, `ALTER TABLE changing RENAME COLUMN d TO c`, `12`},
		"dropped and put back": {`INTEGER`, typeInteger, `12`, `ALTER TABLE changing DROP COLUMN c`,
			`column c is gone`, `has no column c: it has id`, `ALTER TABLE changing ADD COLUMN c BIGINT`, `12`},
		"a required column": {`INTEGER`, typeInteger, `12`, `DROP TABLE changing; CREATE TABLE changing (id int NOT NULL PRIMARY KEY, c INTEGER, n INTEGER NOT NULL)`,
			`column n is new: it is INTEGER not null`, `column n must have a value and has no default`, `ALTER TABLE changing DROP COLUMN n`, `12`},
		"generated": {`INTEGER`, typeInteger, `12`, `DROP TABLE changing; CREATE TABLE changing (id int NOT NULL PRIMARY KEY, c INTEGER AS (id + 1))`,
			`column c has changed from INTEGER to INTEGER generated`, `column c is generated and takes no values`, `DROP TABLE changing; CREATE TABLE changing (id int NOT NULL PRIMARY KEY, c INTEGER)`, `12`},
		"the table renamed and back": {`INTEGER`, typeInteger, `12`, `ALTER TABLE changing RENAME TO gone`,
			`table changing: the table is gone`, `table changing does not exist`, `ALTER TABLE gone RENAME TO changing`, `12`},
	},
	alone: true,
}

// unique is a table flights whose key is the delay, with what it does about a second row of a key.
func unique(conflict string) string {
	return "CREATE TABLE flights (hub_partition TEXT, sequence_number INTEGER, date TEXT, delay INTEGER PRIMARY KEY " + conflict + ")"
}

func TestSQLite(t *testing.T) { sqliteEngine.test(t) }

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

	address, db := sqliteFile(t)
	mustExec(t, db, "CREATE TABLE flights (sequence_number INTEGER)")
	p, err := Parse("p.yaml", []byte(sound), environment("DATABASE_URL="+address))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.checkDatabase(t.Context()); err == nil || err.Error() != "p.yaml:14:1: target: table flights has no column delay: it has sequence_number" {
		t.Errorf("got %v", err)
	}
	if got := query(t, db, "SELECT count(*) FROM sqlite_schema"); got != "1" {
		t.Errorf("Check left %s tables", got)
	}
	path := filepath.Join(dir, "other.db")
	if err := os.WriteFile(path, []byte(strings.Repeat("not a database\n", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	p.storage.database = sqliteDatabase{path}
	if err := p.checkDatabase(t.Context()); err == nil || !strings.Contains(err.Error(), "file is not a database") {
		t.Errorf("got %v", err)
	}
}

func TestSQLiteColumnTypes(t *testing.T) { sqliteEngine.testColumnTypes(t) }

func TestSQLiteColumnChanges(t *testing.T) { sqliteEngine.testColumnChanges(t) }

func TestSQLiteAlterations(t *testing.T) { sqliteEngine.testAlterations(t) }

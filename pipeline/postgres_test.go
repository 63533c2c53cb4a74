package pipeline

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/audit"
	"github.com/sluice-go/sluice/internal/proof/pgtest"
	"github.com/sluice-go/sluice/pgstore"
)

var postgresEngine = testedEngine{
	database: emptyDatabases(pgtest.Database), dialect: audit.PostgreSQL(),
	text: "text", short: "varchar(3)", serial: "id serial", generated: "int GENERATED ALWAYS AS (1) STORED",
	formats: "CREATE TABLE flights (sequence_number bigint, number text, delay integer, date date, price numeric(9,2), id uuid)",
	check:   `ERROR: new row for relation "flights" violates check constraint "flights_delay_check" \(SQLSTATE 23514\)`,
	tooLong: `ERROR: value too long for type character varying\(3\) \(SQLSTATE 22001\)`,
	types: typesCase{
		bodies: []string{`{"a":"9b2c2b62-3d0c-4d5c-8a2f-0d4b4a0a7e11","b":1,"c":9007199254740993,"d":2.5,"e":1.10e1,"f":true,"g":"2026-01-31T09:30:00.5+01:00","h":"AP8=","i":{"x":[1.0]}}`},
		given: func(t *testing.T, db *sql.DB) (name, from string) {
			mustExec(t, db, `CREATE TYPE word AS ENUM ('none', 'some'); CREATE SCHEMA air;
				CREATE TABLE air."Types" (id bigint GENERATED ALWAYS AS IDENTITY, a uuid, b bigint, c numeric, d float8, e numeric(9,1), f bool,
				                          g timestamp, h bytea, i jsonb NOT NULL, j word, k bigint, l timestamptz)`)
			return "air.Types", `air."Types"`
		},
		rows: "SELECT a::text, b, c::text, d, e::text, f, (to_timestamp(extract(epoch FROM g)) AT TIME ZONE 'UTC')::text, h::text, i::text, j::text, k",
		want: `9b2c2b62-3d0c-4d5c-8a2f-0d4b4a0a7e11 1 9007199254740993 2.5 11.0 true 2026-01-31 08:30:00.5 \x00ff {"x": [1.0]} none <nil>`,
	},
	leavesOut: map[string]leavesOutCase{
		"key": {"CREATE TABLE flights (hub_partition text, sequence_number bigint, date text, delay int PRIMARY KEY)", "duplicate key"},
		"trigger": {`CREATE TABLE flights (hub_partition text, sequence_number bigint, date text, delay int);
			CREATE FUNCTION leave() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
			CREATE TRIGGER leave BEFORE INSERT ON flights FOR EACH ROW WHEN (NEW.delay = 7) EXECUTE FUNCTION leave()`, "0 of 1 rows were written: a trigger"},
	},
	statement: statementCase{
		table: "CREATE TABLE last (origin text PRIMARY KEY, delay int CHECK (delay < 100), n int, price numeric, at timestamptz, raw jsonb)",
		sql: `      INSERT INTO last VALUES (:origin, :delay, 1, :price, :at, :raw)  -- :not a parameter
      ON CONFLICT (origin) DO UPDATE SET delay = :delay::int, n = last.n + 1;
`,
		rows:    "SELECT origin, delay, n, price::text, (at AT TIME ZONE 'UTC')::text, raw->>'origin'",
		want:    "LAX 2 1 0.10 2026-01-31 08:30:00 LAX\nSAN 5 3 1.5 <nil> SAN",
		refused: "check constraint",
	},
	targets: map[string]targetCase{
		"schema": {"", strings.Replace(flightsTarget, "table: flights", "table: air.flights", 1), `create table air.flights: ERROR: schema "air" does not exist (SQLSTATE 3F000)`},
		"narrow": {"CREATE TABLE flights (hub_partition text, sequence_number int, date text, delay int2)", flightsTarget,
			"table flights: column sequence_number is int4, which can't hold the mapping's bigint: change one of them"},
		"unlogged": {"CREATE UNLOGGED TABLE flights (hub_partition text, sequence_number bigint, date text, delay int)", flightsTarget,
			"table flights is not safe: it is UNLOGGED, so a crash of the server empties it while the checkpoint stays: ALTER TABLE flights SET LOGGED"},
		"array": {"CREATE TABLE flights (hub_partition text, sequence_number money, date name, delay text[])", flightsTarget,
			"table flights: column date is name, which can't hold the mapping's text: change one of them\n" +
				`table flights: column delay is _text, which can't hold the mapping's integer (ERROR: malformed array literal: "12" (SQLSTATE 22P02)): change one of them`},
		"no such":   {"", "  statement: {sql: 'INSERT INTO nowhere VALUES (:a)', parameters: {a: key}}\n", `prepare the statement: ERROR: relation "nowhere" does not exist (SQLSTATE 42P01)`},
		"parameter": {"CREATE TABLE flights (delay int)", "  statement: {sql: 'INSERT INTO flights VALUES (:a)', parameters: {a: key}}\n", "parameter a is int4 in the statement, which can't hold the mapping's text: change the type, or write a cast such as :a::text"},
		"fits":      {"CREATE TABLE flights (id bigint GENERATED ALWAYS AS IDENTITY, hub_partition varchar(9), sequence_number numeric, date text, delay bigint, at timestamptz NOT NULL DEFAULT now())", flightsTarget, ""},
	},
}

func TestPostgres(t *testing.T) { postgresEngine.test(t) }

func TestPostgresCheck(t *testing.T) {
	const tables = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"
	postgresEngine.testCheck(t, tables, "postgres://", "/d", func(*url.URL) []string {
		return []string{"postgres://app@127.0.0.1:1/d?password=" + secret + "&sslmode=nonsense"}
	})
}

// TestPostgresCheckOfStandby: a server that accepts no writes is found before the pipeline runs.
func TestPostgresCheckOfStandby(t *testing.T) {
	primary := pgtest.New(t, nil)
	address, err := primary.CreateDatabase(t.Context(), "flights")
	if err != nil {
		t.Fatal(err)
	}
	standby := primary.NewStandby(t)
	check := func(address string) error {
		p, err := Parse("p.yaml", []byte(sound), environment("DATABASE_URL="+address))
		if err != nil {
			t.Fatal(err)
		}
		return p.checkDatabase(t.Context())
	}
	if err := check(standby.URL("flights")); err == nil || !strings.Contains(err.Error(), "25006 the server accepts no writes: it is a standby") {
		t.Errorf("the check of a standby: %v", err)
	}
	both := strings.Replace(address, primary.Addr(), standby.Addr()+","+primary.Addr(), 1) + "&target_session_attrs=read-write"
	if err := check(both); err != nil {
		t.Errorf("the check of both servers: %v", err)
	}
}

// TestPostgresConnections: the file's number counts, also above that of the URL.
func TestPostgresConnections(t *testing.T) {
	address, _ := postgresEngine.database(t)
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	query.Set("pool_max_conns", "5")
	u.RawQuery = query.Encode()
	for database, want := range map[string]int32{"${DATABASE_URL}": 5, "\n  url: ${DATABASE_URL}\n  connections: 3": 3} {
		p, err := Parse("p.yaml", []byte(strings.Replace(plainFile, "sqlite:x.db", database, 1)), environment("DATABASE_URL="+u.String()))
		if err != nil {
			t.Fatal(err)
		}
		parts, err := p.Open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if n := parts.catalog.(postgresCatalog).db.(*pgxpool.Pool).Config().MaxConns; n != want {
			t.Errorf("%s: %d connections, want %d", database, n, want)
		}
		if err := parts.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	postgresEngine.testConnections(t)
}

// BenchmarkPostgres maps and writes batches of 1,000 flights, each batch in a
// transaction of its own.
func BenchmarkPostgres(b *testing.B) {
	url, db := postgresEngine.database(b)
	conn, err := pgx.Connect(b.Context(), url)
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := db.ExecContext(b.Context(), "CREATE TABLE flights (hub_partition text, sequence_number bigint, date text, delay int, distance int, origin text, destination text)"); err != nil {
		b.Fatal(err)
	}
	data, err := os.ReadFile("../examples/flights.yaml")
	if err != nil {
		b.Fatal(err)
	}
	insert, err := Parse("flights.yaml", data, environment("DATABASE_URL="+url))
	if err != nil {
		b.Fatal(err)
	}
	statement, err := Parse("p.yaml", []byte(strings.Replace(sound, sound[strings.Index(sound, "  insert:"):], `  statement:
    sql: INSERT INTO flights VALUES (:partition, :sequence, :date, :delay, :distance, :origin, :destination)
    parameters:
      partition: partition
      sequence: sequence
      date: body.date
      delay: {from: body.delay, type: integer}
      distance: {from: body.distance, type: integer}
      origin: body.origin
      destination: body.destination
`, 1)), environment("DATABASE_URL="+url))
	if err != nil {
		b.Fatal(err)
	}
	batch := sluice.Batch{Partition: "0"}
	for i := range 1000 {
		batch.Events = append(batch.Events, &sluice.Event{Partition: "0", Sequence: int64(i),
			Body: []byte(`{"date":"2001/01/14 21:55","delay":310,"distance":480,"origin":"SAN","destination":"SMF"}`)})
	}
	for name, p := range map[string]*Pipeline{"insert": insert, "statement": statement} {
		b.Run(name, func(b *testing.B) {
			handle := targetOf[transactionalTarget](p).postgresHandler()
			b.ReportAllocs()
			for b.Loop() {
				if err := pgx.BeginFunc(b.Context(), conn, func(tx pgx.Tx) error { return handle(b.Context(), tx, batch) }); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(len(batch.Events)*b.N)/b.Elapsed().Seconds(), "events/s")
		})
	}
}

// TestPostgresReader: what reads a database takes the same URL as a pipeline. It says in one line
// which server and database it cannot connect to, why, and what to do.
func TestPostgresReader(t *testing.T) {
	address := pgtest.Database(t)
	db, err := OpenReader(address + "&pool_max_conns=3")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.PingContext(t.Context()); err != nil {
		t.Errorf("with pool_max_conns: %v", err)
	}
	for address, want := range map[string]string{
		"postgres://app:" + secret + "@127.0.0.1:1/flights": "connect to PostgreSQL at 127.0.0.1:1, database flights, as app: connection refused: check host and port, and whether the server runs",
		"postgres://app:p@x/" + secret + "@h/flights":       "special characters",
	} {
		db, err := OpenReader(address)
		if err == nil {
			defer db.Close()
			err = db.PingContext(t.Context())
		}
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), secret) {
			t.Errorf("got %v, want one line with %q", err, want)
		}
	}
}

// TestPostgresRights: a check finds that the role cannot use the tables, or cannot make them.
func TestPostgresRights(t *testing.T) {
	address := pgtest.Database(t)
	db, err := OpenReader(address)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	mustExec(t, db, `DROP ROLE IF EXISTS guest; CREATE ROLE guest LOGIN PASSWORD 'guest'; REVOKE CREATE ON SCHEMA public FROM PUBLIC`)
	guest, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	guest.User = url.UserPassword("guest", "guest")
	check := func(want string) {
		t.Helper()
		_, done, err := postgresDatabase{url: guest.String()}.inspect(t.Context())
		if err == nil {
			done()
		}
		if text := fmt.Sprint(err); !strings.Contains(text, want) || strings.Contains(text, "\n") || err != nil && !strings.Contains(text, "as guest") {
			t.Errorf("got %v, want one line with %q and the role", err, want)
		}
	}
	check("grant the role CREATE on schema public")
	mustExec(t, db, `GRANT CREATE ON SCHEMA public TO guest`)
	check("<nil>")
	store, err := pgstore.Open(t.Context(), address, nil)
	if err != nil {
		t.Fatal(err)
	}
	store.Close()
	check("permission denied for table sluice_schema: the tables in schema public are another role's: grant")
	mustExec(t, db, `GRANT SELECT ON sluice_schema TO guest`)
	check("<nil>")
	mustExec(t, db, `UPDATE sluice_schema SET version = version - 1`)
	check("or run `sluice migrate` with the URL of their owner")
	mustExec(t, db, `UPDATE sluice_schema SET version = 999, oldest_compatible = 999`)
	check("run one that knows version 999")
}

//go:build postgres

package pipeline

import (
	"context"
	"database/sql"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/audit"
	"github.com/sluice-go/sluice/internal/proof/pgtest"
)

func init() { servers = append(servers, pgtest.Around) }

func postgresURL(t testing.TB) (url string, db *sql.DB) {
	t.Helper()
	url = pgtest.Database(t)
	db, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return url, db
}

func TestPostgresInsert(t *testing.T) {
	url, db := postgresURL(t)
	insertsFlights(t, url, db)
}

func TestPostgresRefuses(t *testing.T) {
	url, db := postgresURL(t)
	mustExec(t, db, "CREATE TABLE flights (hub_partition text, sequence_number bigint, date text, delay integer CHECK (delay < 100))")
	letters := refusesRows(t, url, db)
	const refused = `insert into flights: ERROR: new row for relation "flights" violates check constraint "flights_delay_check" (SQLSTATE 23514)`
	if want := []string{`column delay: body.delay: "x" where a whole number should be`, refused, refused}; !slices.Equal(letters, want) {
		t.Errorf("dead letters %q, want %q", letters, want)
	}
}

func TestPostgresTypes(t *testing.T) {
	const columns = `    columns:
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
      k: {from: body.k, type: integer, required: false}
`
	body := `{"a":"9b2c2b62-3d0c-4d5c-8a2f-0d4b4a0a7e11","b":1,"c":9007199254740993,"d":2.5,"e":1.10e1,"f":true,"g":"2026-01-31T09:30:00.5+01:00","h":"AP8=","i":{"x":[1.0]}}`
	want := `9b2c2b62-3d0c-4d5c-8a2f-0d4b4a0a7e11 1 9007199254740993 2.5 11.0 true 2026-01-31 08:30:00.5 \x00ff {"x": [1.0]} none <nil>`
	storesTypes(t, postgresURL, columns, []string{body}, func(t *testing.T, db *sql.DB) (name, from string) {
		mustExec(t, db, `CREATE TYPE word AS ENUM ('none', 'some'); CREATE SCHEMA air;
			CREATE TABLE air."Types" (id bigint GENERATED ALWAYS AS IDENTITY, a uuid, b bigint, c numeric, d float8, e numeric(9,1), f bool,
			                          g timestamp, h bytea, i jsonb NOT NULL, j word, k bigint)`)
		return "air.Types", `air."Types"`
	}, func(from string) string {
		at := "g"
		if from == "types" {
			at = "(g AT TIME ZONE 'UTC')"
		}
		return "SELECT a::text, b, c::text, d, e::text, f, " + at + "::text, h::text, i::text, j::text, k FROM " + from
	}, want)
}

func TestPostgresStatement(t *testing.T) {
	url, db := postgresURL(t)
	mustExec(t, db, "CREATE TABLE last (origin text PRIMARY KEY, delay int CHECK (delay < 100), n int, price numeric, at timestamptz, raw jsonb)")
	storesLastDelays(t, url, db, `  statement:
    sql: |
      INSERT INTO last VALUES (:origin, :delay, 1, :price, :at, :raw)  -- :not a parameter
      ON CONFLICT (origin) DO UPDATE SET delay = :delay::int, n = last.n + 1;
    parameters:
      origin: body.origin
      delay: {from: body.delay, type: integer}
      price: {from: body.price, type: numeric, default: 1.5}
      at: {from: body.at, type: timestamp, required: false}
      raw: {from: body, type: json}
`, "SELECT origin, delay, n, price::text, (at AT TIME ZONE 'UTC')::text, raw->>'origin' FROM last ORDER BY origin",
		"LAX 2 1 0.10 2026-01-31 08:30:00 LAX\nSAN 5 3 1.5 <nil> SAN", "check constraint")
}

func TestPostgresAudit(t *testing.T) {
	url, db := postgresURL(t)
	auditsOneGroup(t, url, db, audit.PostgreSQL())
}

func TestPostgresTarget(t *testing.T) {
	url, db := postgresURL(t)
	checksTargets(t, map[string]targetCase{
		"missing": {"", strings.Replace(flightsTarget, "create: true", "create: false", 1), "table flights does not exist: create it, or set create: true"},
		"schema":  {"", strings.Replace(flightsTarget, "table: flights", "table: air.flights", 1), `create table air.flights: ERROR: schema "air" does not exist (SQLSTATE 3F000)`},
		"column":  {"CREATE TABLE flights (hub_partition text, sequence_number bigint, date text)", flightsTarget, "table flights has no column delay: it has hub_partition, sequence_number, date"},
		"type": {"CREATE TABLE flights (hub_partition text, sequence_number bigint, date text, delay text)", flightsTarget,
			"table flights: column delay is text, which can't hold the mapping's integer: change one of them"},
		"narrow": {"CREATE TABLE flights (hub_partition text, sequence_number bigint, date text, delay int2)", flightsTarget,
			"table flights: column delay is int2, which can't hold the mapping's integer: change one of them"},
		"must": {"CREATE TABLE flights (id serial, hub_partition text, sequence_number bigint, date text, delay int, origin text NOT NULL)", flightsTarget,
			"table flights: column origin must have a value and has no default: add it to the mapping"},
		"generated": {"CREATE TABLE flights (hub_partition text, sequence_number bigint, date text, delay int GENERATED ALWAYS AS (1) STORED)", flightsTarget,
			"table flights: column delay is generated and takes no values: remove it from the mapping"},
		"no such":   {"", "  statement: {sql: 'INSERT INTO nowhere VALUES (:a)', parameters: {a: key}}\n", `prepare the statement: ERROR: relation "nowhere" does not exist (SQLSTATE 42P01)`},
		"parameter": {"CREATE TABLE flights (delay int)", "  statement: {sql: 'INSERT INTO flights VALUES (:a)', parameters: {a: key}}\n", "parameter a is int4 in the statement, which can't hold the mapping's text: change the type, or write a cast such as :a::text"},
		"fits":      {"CREATE TABLE flights (id bigint GENERATED ALWAYS AS IDENTITY, hub_partition varchar(9), sequence_number numeric, date text, delay bigint, at timestamptz NOT NULL DEFAULT now())", flightsTarget, ""},
	}, func(t *testing.T) (string, *sql.DB) {
		mustExec(t, db, "DROP TABLE IF EXISTS flights")
		return url, db
	})
}

func TestPostgresCreateTogether(t *testing.T) {
	url, db := postgresURL(t)
	createsTogether(t, url, db)
}

// Neither Open nor Check shows the password, and Check creates no table.
func TestPostgresCheck(t *testing.T) {
	url, db := postgresURL(t)
	checkLeavesNothing(t, url, db, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'")
	hidesPassword(t,
		"postgres://app:"+secret+"@127.0.0.1:1/d",
		"postgres://app:"+secret+"@no.such.host.invalid/d",
		"postgres://app@127.0.0.1:1/d?password="+secret+"&sslmode=nonsense",
		"postgres://app:"+secret+"@127.0.0.1:port/d",
		"postgres://app:"+secret+"%zz@h/d",
		"postgres://app:x@"+secret+"@h:x/d",
	)
}

// BenchmarkPostgres maps and writes batches of 1,000 flights, each batch in a
// transaction of its own.
func BenchmarkPostgres(b *testing.B) {
	url, db := postgresURL(b)
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
			handle := p.target.postgresHandler()
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

//go:build mariadb

package pipeline

import (
	"database/sql"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/audit"
	"github.com/sluice-go/sluice/internal/proof/mariadbtest"
)

func init() { servers = append(servers, mariadbtest.Around) }

func mariaURL(t testing.TB) (address string, db *sql.DB) {
	t.Helper()
	address = mariadbtest.Database(t)
	db, err := OpenReader(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return address, db
}

func TestMariaDBInsert(t *testing.T) {
	address, db := mariaURL(t)
	insertsFlights(t, address, db)
}

func TestMariaDBRefuses(t *testing.T) {
	address, db := mariaURL(t)
	mustExec(t, db, "CREATE TABLE flights (hub_partition text, sequence_number bigint, date varchar(3), delay integer CHECK (delay < 100))")
	letters := refusesRows(t, address, db, `{"delay":6,"date":"long"}`)
	refused := "insert into flights: Error 4025 (23000): CONSTRAINT `flights.delay` failed for `" + query(t, db, "SELECT DATABASE()") + "`.`flights`"
	if want := []string{`column delay: body.delay: "x" where a whole number should be`, "insert into flights: Error 1406 (22001): Data too long for column 'date' at row 1",
		refused, refused}; !slices.Equal(letters, want) {
		t.Errorf("dead letters %q, want %q", letters, want)
	}
}

func TestMariaDBTypes(t *testing.T) {
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
      l: {from: body.l, type: timestamp}
`
	body := `{"a":"9b2c2b62-3d0c-4d5c-8a2f-0d4b4a0a7e11","b":1,"c":9007199254740993,"d":2.5,"e":1.10e1,"f":true,"g":"2026-01-31T09:30:00.5000019+01:00","h":"AP8=","i":{"x":["\ud83d\ude00"]},"l":"0001-01-01T00:00:00Z"}`
	want := `9b2c2b62-3d0c-4d5c-8a2f-0d4b4a0a7e11 1 9007199254740993 2.5 11.0 1 2026-01-31 08:30:00.500001 00FF {"x":["\ud83d\ude00"]} none <nil> 0001-01-01 00:00:00.000000`
	storesTypes(t, mariaURL, columns, []string{body}, func(t *testing.T, db *sql.DB) (name, from string) {
		mustExec(t, db, "CREATE TABLE `Types` (id bigint AUTO_INCREMENT PRIMARY KEY, A uuid, b bigint, c decimal(20), d double, e numeric(9,1), f bit, "+
			"g datetime(6), h varbinary(9), i mediumtext NOT NULL, j enum('none', 'some'), k bigint, l datetime(6))")
		from = query(t, db, "SELECT DATABASE()") + ".Types"
		return from, from
	}, func(from string) string {
		return "SELECT a, b, c, d, CAST(e AS DECIMAL(9,1)), f + 0, CAST(g AS CHAR), HEX(h), i, j, k, CAST(l AS CHAR) FROM " + from
	}, want)
}

func TestMariaDBStatement(t *testing.T) {
	address, db := mariaURL(t)
	mustExec(t, db, "CREATE TABLE last (origin varchar(9) PRIMARY KEY, delay int CHECK (delay < 100), n int, price decimal(9,2), at datetime(6), raw json)")
	storesLastDelays(t, address, db, `  statement:
    sql: |
      INSERT INTO last VALUES (:origin, :delay, 1, :price, :at, :raw)  -- :not a parameter
      ON DUPLICATE KEY UPDATE delay = :delay, n = n + 1; # :nor this
    parameters:
      origin: body.origin
      delay: {from: body.delay, type: integer}
      price: {from: body.price, type: numeric, default: 1.5}
      at: {from: body.at, type: timestamp, required: false}
      raw: {from: body, type: json}
`, "SELECT origin, delay, n, price, CAST(at AS CHAR), json_value(raw, '$.origin') FROM last ORDER BY origin",
		"LAX 2 1 0.10 2026-01-31 08:30:00.000000 LAX\nSAN 5 3 1.50 <nil> SAN", "CONSTRAINT `last.delay` failed")
}

func TestMariaDBTarget(t *testing.T) {
	address, db := mariaURL(t)
	name := query(t, db, "SELECT DATABASE()")
	checksTargets(t, map[string]targetCase{
		"missing": {"", strings.Replace(flightsTarget, "create: true", "create: false", 1), "table flights does not exist: create it, or set create: true"},
		"schema":  {"", strings.Replace(flightsTarget, "table: flights", "table: air.flights", 1), "create table air.flights: Error 1049 (42000): Unknown database 'air'"},
		"case":    {"CREATE TABLE Flights (delay int)", strings.Replace(flightsTarget, "create: true", "create: false", 1), "table flights does not exist: create it, or set create: true"},
		"column":  {"CREATE TABLE flights (hub_partition text, sequence_number bigint, date text)", flightsTarget, "table flights has no column delay: it has hub_partition, sequence_number, date"},
		"type": {"CREATE TABLE flights (hub_partition text, sequence_number bigint, date text, delay text)", flightsTarget,
			"table flights: column delay is text, which can't hold the mapping's integer: change one of them"},
		"narrow": {"CREATE TABLE flights (hub_partition text, sequence_number bigint, date text, delay mediumint)", flightsTarget,
			"table flights: column delay is mediumint, which can't hold the mapping's integer: change one of them"},
		"must": {"CREATE TABLE flights (id serial, hub_partition text, sequence_number bigint, date text, delay int, origin text NOT NULL)", flightsTarget,
			"table flights: column origin must have a value and has no default: add it to the mapping"},
		"generated": {"CREATE TABLE flights (hub_partition text, sequence_number bigint, date text, delay int AS (1) STORED)", flightsTarget,
			"table flights: column delay is generated and takes no values: remove it from the mapping"},
		"no such": {"", "  statement: {sql: 'INSERT INTO nowhere VALUES (:a)', parameters: {a: key}}\n", "prepare the statement: Error 1146 (42S02): Table '" + name + ".nowhere' doesn't exist"},
		"fits": {"CREATE TABLE flights (id bigint AUTO_INCREMENT PRIMARY KEY, HUB_PARTITION varchar(9), sequence_number decimal(20), date text, delay bigint, " +
			"at datetime NOT NULL DEFAULT now(), n int NOT NULL DEFAULT (1 + 1), twice int AS (delay * 2))", flightsTarget, ""},
	}, func(t *testing.T) (string, *sql.DB) {
		mustExec(t, db, "DROP TABLE IF EXISTS flights, Flights")
		return address, db
	})
}

func TestMariaDBCreateTogether(t *testing.T) {
	address, db := mariaURL(t)
	createsTogether(t, address, db)
}

func TestMariaDBAudit(t *testing.T) {
	address, db := mariaURL(t)
	auditsOneGroup(t, address, db, audit.MySQL())
}

// Neither Open nor Check shows the password, and Check creates no table.
func TestMariaDBCheck(t *testing.T) {
	address, db := mariaURL(t)
	checkLeavesNothing(t, address, db, "SELECT count(*) FROM information_schema.tables WHERE table_schema = DATABASE()")
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	hidesPassword(t,
		"mysql://app:"+secret+"@127.0.0.1:1/d",
		"mysql://app:"+secret+"@no.such.host.invalid/d",
		"mysql://app:"+secret+"@127.0.0.1:port/d",
		"mysql://app:"+secret+"%zz@h/d",
		"mysql://app:x@"+secret+"@h:x/d",
		"mysql://app:1/"+secret+"@h/d",
		"mysql://app@"+u.Host+"/d?password="+secret,
		"mysql://app@"+u.Host+"/d?sslpassword="+secret,
		"mysql://app:"+secret+"@"+u.Host+"/d",
		"mariadb://sluice:"+secret+"@"+u.Host+u.Path,
	)
}

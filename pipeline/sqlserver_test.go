//go:build sqlserver

package pipeline

import (
	"database/sql"
	"net/url"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/audit"
	"github.com/sluice-go/sluice/internal/proof/sqlservertest"
)

func init() { servers = append(servers, sqlservertest.Around) }

func sqlServerURL(t testing.TB) (address string, db *sql.DB) {
	t.Helper()
	address = sqlservertest.Database(t)
	db, err := OpenReader(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return address, db
}

func TestSQLServerInsert(t *testing.T) {
	address, db := sqlServerURL(t)
	insertsFlights(t, address, db)
}

// SQL Server reports a text that is too long by 2628, Babelfish by 8152.
func TestSQLServerRefuses(t *testing.T) {
	address, db := sqlServerURL(t)
	mustExec(t, db, "CREATE TABLE flights (hub_partition nvarchar(9), sequence_number bigint, date nvarchar(3), delay integer CHECK (delay < 100))")
	letters := refusesRows(t, address, db, `{"delay":6,"date":"long"}`)
	if len(letters) != 4 || letters[0] != `column delay: body.delay: "x" where a whole number should be` {
		t.Fatalf("dead letters %q", letters)
	}
	checks, lengths := 0, 0
	for _, letter := range letters[1:] {
		switch {
		case !strings.HasPrefix(letter, "insert into flights: mssql: "):
		case strings.HasSuffix(letter, " (547)"):
			checks++
		case strings.HasSuffix(letter, " (2628)"), strings.HasSuffix(letter, " (8152)"):
			lengths++
		}
	}
	if checks != 2 || lengths != 1 {
		t.Errorf("dead letters %q", letters)
	}
}

func TestSQLServerTypes(t *testing.T) {
	const columns = `    columns:
      a: {from: body.a, type: text, required: false}
      b: {from: body.b, type: integer, required: false}
      c: {from: body.c, type: bigint, required: false}
      d: {from: body.d, type: double, required: false}
      e: {from: body.e, type: numeric, required: false}
      f: {from: body.f, type: boolean, required: false}
      g: {from: body.g, type: timestamp, required: false}
      h: {from: body.h, type: bytes, required: false}
      i: {from: body.i, type: json, required: false}
      j: {from: body.j, default: none}
`
	// The first and the third are of one partition and, as a rule, of one batch.
	bodies := []string{
		`{"a":"größe","b":1,"c":9007199254740993,"d":2.5,"e":1.10e1,"f":true,"g":"2026-01-31T09:30:00.500001+01:00","h":"AP8=","i":{"x":[1.0]}}`,
		`{"b":"x"}`, `{}`,
	}
	want := "<nil> <nil> <nil> <nil> <nil> <nil> <nil> <nil> <nil> none\n" +
		`größe 1 9007199254740993 2.5 11.0 true 2026-01-31 08:30:00.500001 2 {"x":[1.0]} none`
	storesTypes(t, sqlServerURL, columns, bodies, func(t *testing.T, db *sql.DB) (name, from string) {
		mustExec(t, db, "CREATE TABLE [Types] (id bigint IDENTITY PRIMARY KEY, A nvarchar(50), b bigint, c decimal(20), d float, e numeric(9,1), f bit, "+
			"g datetime2(6), h varbinary(9), i nvarchar(max), j nvarchar(9))")
		return "dbo.Types", "[Types]"
	}, func(from string) string {
		return "SELECT a, b, CAST(c AS bigint), d, CAST(e AS decimal(9,1)), f, CONVERT(nvarchar(26), g, 121), DATALENGTH(h), i, j FROM " + from + " ORDER BY b"
	}, want)
}

func TestSQLServerStatement(t *testing.T) {
	address, db := sqlServerURL(t)
	mustExec(t, db, "CREATE TABLE last (origin nvarchar(9) PRIMARY KEY, delay int CHECK (delay < 100), n int, price decimal(9,2), at datetime2(6), raw nvarchar(max))")
	storesLastDelays(t, address, db, `  statement:
    sql: |
      UPDATE last SET delay = :delay, n = n + 1 WHERE origin = :origin; -- :not a parameter
      IF @@ROWCOUNT = 0 INSERT INTO last VALUES (:origin, :delay, 1, :price, :at, :raw); /* :nor /* this */ */
    parameters:
      origin: body.origin
      delay: {from: body.delay, type: integer}
      price: {from: body.price, type: numeric, default: 1.5}
      at: {from: body.at, type: timestamp, required: false}
      raw: {from: body, type: json}
`, "SELECT origin, delay, n, CAST(price AS nvarchar(9)), CONVERT(nvarchar(19), at, 120), JSON_VALUE(raw, '$.origin') FROM last ORDER BY origin",
		"LAX 2 1 0.10 2026-01-31 08:30:00 LAX\nSAN 5 3 1.50 <nil> SAN", "547")
}

func TestSQLServerTarget(t *testing.T) {
	address, db := sqlServerURL(t)
	missing := strings.Replace(flightsTarget, "create: true", "create: false", 1)
	checksTargets(t, map[string]targetCase{
		"missing": {"", missing, "table flights does not exist: create it, or set create: true"},
		"column":  {"CREATE TABLE flights (hub_partition nvarchar(9), sequence_number bigint, date nvarchar(9))", flightsTarget, "table flights has no column delay: it has hub_partition, sequence_number, date"},
		"narrow": {"CREATE TABLE flights (hub_partition nvarchar(9), sequence_number bigint, date nvarchar(9), delay smallint)", flightsTarget,
			"table flights: column delay is smallint, which can't hold the mapping's integer: change one of them"},
		"varchar": {"CREATE TABLE flights (hub_partition varchar(9), sequence_number bigint, date nvarchar(9), delay int)", flightsTarget,
			"table flights: column hub_partition is varchar, which can't hold the mapping's text: change one of them"},
		"must": {"CREATE TABLE flights (hub_partition nvarchar(9), sequence_number bigint, date nvarchar(9), delay int, origin nvarchar(9) NOT NULL)", flightsTarget,
			"table flights: column origin must have a value and has no default: add it to the mapping"},
		"generated": {"CREATE TABLE flights (hub_partition nvarchar(9), sequence_number bigint, date nvarchar(9), delay AS (1))", flightsTarget,
			"table flights: column delay is generated and takes no values: remove it from the mapping"},
		"identity": {"CREATE TABLE flights (hub_partition nvarchar(9), sequence_number bigint IDENTITY, date nvarchar(9), delay int)", flightsTarget,
			"table flights: column sequence_number is generated and takes no values: remove it from the mapping"},
		"fits": {"CREATE TABLE flights (id bigint IDENTITY PRIMARY KEY, HUB_PARTITION nvarchar(9), sequence_number decimal(20), date nvarchar(9), delay bigint, " +
			"at datetime2 NOT NULL DEFAULT SYSUTCDATETIME(), n int NOT NULL DEFAULT 2, twice AS (delay * 2))", flightsTarget, ""},
	}, func(t *testing.T) (string, *sql.DB) {
		mustExec(t, db, "DROP TABLE IF EXISTS flights")
		return address, db
	})
}

func TestSQLServerCreateTogether(t *testing.T) {
	address, db := sqlServerURL(t)
	createsTogether(t, address, db)
}

func TestSQLServerAudit(t *testing.T) {
	address, db := sqlServerURL(t)
	auditsOneGroup(t, address, db, audit.SQLServer())
}

// Neither Open nor Check shows the password, and Check creates no table.
func TestSQLServerCheck(t *testing.T) {
	address, db := sqlServerURL(t)
	checkLeavesNothing(t, address, db, "SELECT count(*) FROM INFORMATION_SCHEMA.TABLES")
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	wrong := *u
	wrong.User = url.UserPassword(u.User.Username(), secret)
	hidesPassword(t,
		"sqlserver://app:"+secret+"@127.0.0.1:1?database=d",
		"sqlserver://app:"+secret+"@no.such.host.invalid?database=d",
		"sqlserver://app:"+secret+"@127.0.0.1:port?database=d",
		"sqlserver://app:"+secret+"%zz@h?database=d",
		"sqlserver://app:x@"+secret+"@h:x?database=d",
		"sqlserver://app:1/"+secret+"@h?database=d",
		"sqlserver://app:"+secret+"@"+u.Host+"?database=d&password="+secret,
		wrong.String(),
	)
}

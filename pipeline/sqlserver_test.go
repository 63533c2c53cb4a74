package pipeline

import (
	"database/sql"
	"net/url"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/audit"
	"github.com/sluice-go/sluice/internal/proof/need"
	"github.com/sluice-go/sluice/internal/proof/sqlservertest"
)

var sqlServerEngine = testedEngine{
	database: emptyDatabases(sqlservertest.Database), dialect: audit.SQLServer(),
	text: "nvarchar(9)", short: "nvarchar(3)", serial: "id bigint IDENTITY", generated: "AS (1)",
	check:   `mssql: .* \(547\)`,
	tooLong: `mssql: .* \((2628|8152)\)`, // the second is Babelfish's
	types: typesCase{
		optional: true,
		bodies: []string{ // the first and the third are of one partition and, as a rule, of one batch
			`{"a":"größe","b":1,"c":9007199254740993,"d":2.5,"e":1.10e1,"f":true,"g":"2026-01-31T09:30:00.500001+01:00","h":"AP8=","i":{"x":[1.0]}}`,
			`{"b":"x"}`, `{}`,
		},
		given: func(t *testing.T, db *sql.DB) (name, from string) {
			mustExec(t, db, "CREATE TABLE [Types] (id bigint IDENTITY PRIMARY KEY, A nvarchar(50), b bigint, c decimal(20), d float, e numeric(9,1), f bit, "+
				"g datetime2(6), h varbinary(9), i nvarchar(max), j nvarchar(9), k bigint, l datetime2(6))")
			return "dbo.Types", "[Types]"
		},
		rows: "SELECT a, b, CAST(c AS bigint), d, CAST(e AS decimal(9,1)), f, CONVERT(nvarchar(26), g, 121), DATALENGTH(h), i, j",
		want: "<nil> <nil> <nil> <nil> <nil> <nil> <nil> <nil> <nil> none\n" +
			`größe 1 9007199254740993 2.5 11.0 true 2026-01-31 08:30:00.500001 2 {"x":[1.0]} none`,
	},
	slow: []string{"LeavesOut", "Replay", "ElementChanges", "Conflicts", "SharedKeys",
		"int to float", "int to bit", "bigint to datetime", "timestamp to date", "text to varchar", "wider", "fewer digits", "not null", "a default", "renamed and back", "a required column"},
	leavesOut: map[string]leavesOutCase{
		"key": {"CREATE TABLE flights (hub_partition nvarchar(9), sequence_number bigint, date nvarchar(9), delay int PRIMARY KEY)", "2627"},
	},
	statement: statementCase{
		table: "CREATE TABLE last (origin nvarchar(9) PRIMARY KEY, delay int CHECK (delay < 100), n int, price decimal(9,2), at datetime2(6), raw nvarchar(max))",
		sql: `      UPDATE last SET delay = :delay, n = n + 1 WHERE origin = :origin; -- :not a parameter
      IF @@ROWCOUNT = 0 INSERT INTO last VALUES (:origin, :delay, 1, :price, :at, :raw); /* :nor /* this */ */
`,
		rows:    "SELECT origin, delay, n, CAST(price AS nvarchar(9)), CONVERT(nvarchar(19), at, 120), JSON_VALUE(raw, '$.origin')",
		want:    "LAX 2 1 0.10 2026-01-31 08:30:00 LAX\nSAN 5 3 1.50 <nil> SAN",
		refused: "547",
	},
	targets: map[string]targetCase{
		"narrow": {"CREATE TABLE flights (hub_partition nvarchar(9), sequence_number int, date nvarchar(9), delay smallint)", flightsTarget,
			"table flights: column sequence_number is int, which can't hold the mapping's bigint: change one of them"},
		"varchar": {"CREATE TABLE flights (hub_partition varchar(9), sequence_number bigint, date nvarchar(9), delay int)", flightsTarget,
			"table flights: column hub_partition is varchar, which can't hold the mapping's text: change one of them"},
		"identity": {"CREATE TABLE flights (hub_partition nvarchar(9), sequence_number bigint IDENTITY, date nvarchar(9), delay int)", flightsTarget,
			"table flights: column sequence_number is generated and takes no values: remove it from the mapping"},
		"fits": {"CREATE TABLE flights (id bigint IDENTITY PRIMARY KEY, HUB_PARTITION nvarchar(9), sequence_number decimal(20), date nvarchar(9), delay bigint, " +
			"at datetime2 NOT NULL DEFAULT SYSUTCDATETIME(), n int NOT NULL DEFAULT 2, twice AS (delay * 2))", flightsTarget, ""},
	},
	kinds: columnKinds{
		dialect: &sqlServerDialect, escaped: strings.NewReplacer("'", "''"), texts: "N", bytes: "0x%x", slow: true,
		kinds: []string{"nvarchar(200)", "nvarchar(3)", "nchar(200)", "nvarchar(max)", "ntext", "varchar(200)", "char(9)", "text", "uniqueidentifier", "tinyint", "smallint", "int", "bigint", "decimal(38,18)",
			"decimal(9,1)", "numeric(20)", "real", "float", "money", "smallmoney", "bit", "date", "time", "datetime", "smalldatetime", "datetime2", "datetime2(0)", "datetimeoffset",
			"varbinary(max)", "varbinary(9)", "binary(9)", "image", "xml", "sql_variant"},
		shown: func(kind string) string {
			switch {
			case strings.Contains(kind, "binary"), kind == "image":
				return "CONVERT(varchar(200), CAST(c AS varbinary(99)), 1)"
			case strings.Contains(kind, "char"), kind == "ntext", kind == "text", kind == "uniqueidentifier", kind == "xml":
				return "CAST(c AS nvarchar(400))"
			case kind == "float", kind == "real":
				return "CONVERT(varchar(99), c, 3)"
			}
			return "CONVERT(varchar(99), c, 121)"
		},
	},
	alterations: map[string]alteration{
		"int to bigint": {`int`, typeInteger, `12`, `ALTER TABLE changing ALTER COLUMN c bigint`,
			`column c has changed from int to bigint`, ``, ``, `12`},
		"int to float": {`int`, typeInteger, `12`, `ALTER TABLE changing ALTER COLUMN c float`,
			`column c has changed from int to float`, ``, ``, `12`},
		"int to bit": {`int`, typeInteger, `12`, `ALTER TABLE changing DROP COLUMN c; ALTER TABLE changing ADD c bit`,
			`column c has changed from int to bit`, `column c is bit, which can't hold the mapping's integer`, `ALTER TABLE changing DROP COLUMN c; ALTER TABLE changing ADD c int`, `12`},
		"bigint to datetime": {`bigint`, typeBigint, `12`, `ALTER TABLE changing DROP COLUMN c; ALTER TABLE changing ADD c datetime`,
			`column c has changed from bigint to datetime`, `column c is datetime, which can't hold the mapping's bigint`, `ALTER TABLE changing DROP COLUMN c; ALTER TABLE changing ADD c bigint`, `12`},
		"timestamp to date": {`datetime2(6)`, typeTimestamp, `"2026-07-08T21:04:05.123456Z"`, `ALTER TABLE changing DROP COLUMN c; ALTER TABLE changing ADD c date`,
			`column c has changed from datetime2\(6\) to date`, `column c is date, which can't hold the mapping's timestamp`, `ALTER TABLE changing DROP COLUMN c; ALTER TABLE changing ADD c datetime2(6)`, `2026-07-08 21:04:05.123456`},
		"text to varchar": {`nvarchar(20)`, typeText, `"a"`, `ALTER TABLE changing DROP COLUMN c; ALTER TABLE changing ADD c varchar(20)`,
			`column c has changed from nvarchar\(20\) to varchar\(20\) in`, `column c is varchar, which can't hold the mapping's text`, `ALTER TABLE changing DROP COLUMN c; ALTER TABLE changing ADD c nvarchar(20)`, `a`},
		"wider": {`nvarchar(9)`, typeText, `"a"`, `ALTER TABLE changing ALTER COLUMN c nvarchar(90)`,
			`column c has changed from nvarchar\(9\) to nvarchar\(90\)`, ``, ``, `a`},
		"narrower": {`nvarchar(90)`, typeText, `"a"`, `ALTER TABLE changing ALTER COLUMN c nvarchar(9)`,
			`column c has changed from nvarchar\(90\) to nvarchar\(9\)`, ``, ``, `a`},
		"fewer digits": {`decimal(9,2)`, typeNumeric, `12.25`, `ALTER TABLE changing ALTER COLUMN c decimal(9,1)`,
			`column c has changed from decimal\(9,2\) to decimal\(9,1\)`, ``, ``, `12.3`},
		"not null": {`int`, typeInteger, `12`, `ALTER TABLE changing DROP COLUMN c; ALTER TABLE changing ADD c int NOT NULL`,
			`column c has changed from int to int not null`, ``, ``, `12`},
		"a default": {`int`, typeInteger, `12`, `ALTER TABLE changing ADD CONSTRAINT seven DEFAULT 7 FOR c`,
			`column c has changed from int to int with a default`, ``, ``, `12`},
		"renamed and back": {`int`, typeInteger, `12`, `EXEC sp_rename 'changing.c', 'd', 'COLUMN'`,
			`column c is gone: it was int, column d is new: it is int`, `has no column c: it has id, d`, `EXEC sp_rename 'changing.d', 'c', 'COLUMN'`, `12`},
		"dropped and put back": {`int`, typeInteger, `12`, `ALTER TABLE changing DROP COLUMN c`,
			`column c is gone`, `has no column c: it has id`, `ALTER TABLE changing ADD c bigint`, `12`},
		"a required column": {`int`, typeInteger, `12`, `ALTER TABLE changing ADD n int NOT NULL`,
			`column n is new: it is int not null`, `column n must have a value and has no default`, `ALTER TABLE changing DROP COLUMN n`, `12`},
		"generated": {`int`, typeInteger, `12`, `ALTER TABLE changing DROP COLUMN c; ALTER TABLE changing ADD c AS (id + 1)`,
			`column c has changed from int to int.* generated`, `column c is generated and takes no values`, `ALTER TABLE changing DROP COLUMN c; ALTER TABLE changing ADD c int`, `12`},
		"the table renamed and back": {`int`, typeInteger, `12`, `EXEC sp_rename 'changing', 'gone', 'OBJECT'`,
			`table changing: the table is gone`, `table changing does not exist`, `EXEC sp_rename 'gone', 'changing', 'OBJECT'`, `12`},
	},
}

func TestSQLServer(t *testing.T) { sqlServerEngine.test(t) }

func TestSQLServerConnections(t *testing.T) { sqlServerEngine.testConnections(t) }

func TestSQLServerCheck(t *testing.T) {
	sqlServerEngine.testCheck(t, "SELECT count(*) FROM INFORMATION_SCHEMA.TABLES", "sqlserver://", "?database=d", func(u *url.URL) []string {
		wrong := *u
		wrong.User = url.UserPassword(u.User.Username(), secret)
		return []string{
			"sqlserver://app:" + secret + "@" + u.Host + "?database=d&password=" + secret,
			wrong.String(),
		}
	})
}

func TestSQLServerColumnTypes(t *testing.T) { sqlServerEngine.testColumnTypes(t) }

func TestSQLServerColumnChanges(t *testing.T) {
	need.EveryDatabase(t, "has TestSQLServerAlterations")
	sqlServerEngine.testColumnChanges(t)
}

func TestSQLServerAlterations(t *testing.T) { sqlServerEngine.testAlterations(t) }

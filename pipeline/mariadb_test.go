package pipeline

import (
	"database/sql"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/audit"
	"github.com/sluice-go/sluice/internal/proof/mariadbtest"
)

var mariaEngine = testedEngine{
	database: emptyDatabases(mariadbtest.Database), dialect: audit.MySQL(),
	text: "text", short: "varchar(3)", serial: "id serial", generated: "int AS (1) STORED",
	check:   "Error 4025 \\(23000\\): CONSTRAINT `flights.delay` failed for `\\w+`.`flights`",
	tooLong: "Error 1406 \\(22001\\): Data too long for column 'date' at row 1",
	types: typesCase{
		bodies: []string{`{"a":"9b2c2b62-3d0c-4d5c-8a2f-0d4b4a0a7e11","b":1,"c":9007199254740993,"d":2.5,"e":1.10e1,"f":true,"g":"2026-01-31T09:30:00.5000019+01:00","h":"AP8=","i":{"x":["\ud83d\ude00"]},"l":"0001-01-01T00:00:00Z"}`},
		given: func(t *testing.T, db *sql.DB) (name, from string) {
			mustExec(t, db, "CREATE TABLE `Types` (id bigint AUTO_INCREMENT PRIMARY KEY, A uuid, b bigint, c decimal(20), d double, e numeric(9,1), f bit, "+
				"g datetime(6), h varbinary(9), i mediumtext NOT NULL, j enum('none', 'some'), k bigint, l datetime(6))")
			from = query(t, db, "SELECT DATABASE()") + ".Types"
			return from, from
		},
		rows: "SELECT a, b, c, d, CAST(e AS DECIMAL(9,1)), f + 0, CAST(g AS CHAR), HEX(h), i, j, k, CAST(l AS CHAR)",
		want: `9b2c2b62-3d0c-4d5c-8a2f-0d4b4a0a7e11 1 9007199254740993 2.5 11.0 1 2026-01-31 08:30:00.500001 00FF {"x":["\ud83d\ude00"]} none <nil> 0001-01-01 00:00:00.000000`,
	},
	leavesOut: map[string]leavesOutCase{
		"key": {"CREATE TABLE flights (hub_partition text, sequence_number bigint, date text, delay int PRIMARY KEY)", "Duplicate entry"},
	},
	statement: statementCase{
		table: "CREATE TABLE last (origin varchar(9) PRIMARY KEY, delay int CHECK (delay < 100), n int, price decimal(9,2), at datetime(6), raw json)",
		sql: `      INSERT INTO last VALUES (:origin, :delay, 1, :price, :at, :raw)  -- :not a parameter
      ON DUPLICATE KEY UPDATE delay = :delay, n = n + 1; # :nor this
`,
		rows:    "SELECT origin, delay, n, price, CAST(at AS CHAR), json_value(raw, '$.origin')",
		want:    "LAX 2 1 0.10 2026-01-31 08:30:00.000000 LAX\nSAN 5 3 1.50 <nil> SAN",
		refused: "CONSTRAINT `last.delay` failed",
	},
	targets: map[string]targetCase{
		"schema": {"", strings.Replace(flightsTarget, "table: flights", "table: air.flights", 1), "create table air.flights: Error 1049 (42000): Unknown database 'air'"},
		"case":   {"CREATE TABLE Flights (delay int)", uncreated, "table flights does not exist: create it, or set create: true"},
		"narrow": {"CREATE TABLE flights (hub_partition text, sequence_number int, date text, delay mediumint)", flightsTarget,
			"table flights: column sequence_number is int, which can't hold the mapping's bigint: change one of them"},
		"engine": {"CREATE TABLE flights (hub_partition text, sequence_number bigint, date text, delay int) ENGINE = MyISAM", flightsTarget,
			"table flights is not safe: its engine MyISAM has no transactions, so a rollback keeps its rows and a repetition doubles them: ALTER TABLE flights ENGINE = InnoDB"},
		"no such": {"", "  statement: {sql: 'INSERT INTO no.where VALUES (:a)', parameters: {a: key}}\n", "prepare the statement: Error 1146 (42S02): Table 'no.where' doesn't exist"},
		"fits": {"CREATE TABLE flights (id bigint AUTO_INCREMENT PRIMARY KEY, HUB_PARTITION varchar(9), sequence_number decimal(20), date text, delay bigint, " +
			"at datetime NOT NULL DEFAULT now(), n int NOT NULL DEFAULT (1 + 1), twice int AS (delay * 2))", flightsTarget, ""},
	},
	kinds: columnKinds{
		dialect: &mysqlDialect, escaped: strings.NewReplacer(`\`, `\\`, "'", "''"), bytes: "X'%x'", labels: regexp.MustCompile(`^(enum|set)\(`),
		kinds: []string{"varchar(60)", "char(9)", "tinytext", "longtext", "varchar(60) CHARACTER SET latin1", "uuid", "inet4", "inet6", "enum('none', 'some', '2', 'it''s')", "enum('a')", "set('none', 'some', '12')",
			"tinyint", "tinyint unsigned", "smallint", "mediumint", "int", "int unsigned", "bigint", "bigint unsigned", "decimal(65,30)", "decimal(9,1)", "float", "double", "bit", "bit(8)", "year",
			"date", "time", "time(6)", "datetime", "datetime(6)", "timestamp", "timestamp(6)", "tinyblob", "longblob", "varbinary(9)", "binary(9)", "json", "geometry", "point"},
		shown: func(kind string) string {
			switch {
			case strings.Contains(kind, "blob"), strings.Contains(kind, "binary"), strings.Contains(kind, "bit"):
				return "HEX(c)"
			}
			return "CAST(c AS CHAR)"
		},
	},
	alterations: map[string]alteration{
		"int to bigint": {`int`, typeInteger, `12`, `ALTER TABLE changing MODIFY c bigint`,
			`column c has changed from int(\(11\))? to bigint`, ``, ``, `12`},
		"int to double": {`int`, typeInteger, `12`, `ALTER TABLE changing MODIFY c double`,
			`column c has changed from int(\(11\))? to double`, ``, ``, `12`},
		"int to float, which is not exact": {`int`, typeInteger, `16777216`, `ALTER TABLE changing MODIFY c float`,
			`column c has changed from int(\(11\))? to float`, ``, ``, `16777200`},
		"int to date": {`int`, typeInteger, `12`, `ALTER TABLE changing MODIFY c date`,
			`column c has changed from int(\(11\))? to date`, `column c is date, which can't hold the mapping's integer`, `ALTER TABLE changing MODIFY c int`, `12`},
		"int to year": {`int`, typeInteger, `12`, `ALTER TABLE changing MODIFY c year`,
			`column c has changed from int(\(11\))? to year`, `column c is year, which can't hold the mapping's integer`, `ALTER TABLE changing MODIFY c int`, `12`},
		"bigint to timestamp": {`bigint`, typeBigint, `20260708`, `ALTER TABLE changing MODIFY c timestamp NULL`,
			`column c has changed from bigint(\(20\))? to timestamp`, `column c is timestamp, which can't hold the mapping's bigint`, `ALTER TABLE changing MODIFY c bigint`, `20260708`},
		"timestamp to date": {`datetime(6)`, typeTimestamp, `"2026-07-08T21:04:05Z"`, `ALTER TABLE changing MODIFY c date`,
			`column c has changed from datetime\(6\) to date`, `column c is date, which can't hold the mapping's timestamp`, `ALTER TABLE changing MODIFY c datetime(6)`, `2026-07-08 21:04:05.000000`},
		"text to enum": {`varchar(20)`, typeText, `"2"`, `ALTER TABLE changing MODIFY c enum('none', '2')`,
			`column c has changed from varchar\(20\) to enum\('none','2'\)`, ``, ``, `2`},
		"text to latin1": {`varchar(20)`, typeText, `"größe"`, `ALTER TABLE changing MODIFY c varchar(20) CHARACTER SET latin1`,
			`column c has changed from varchar\(20\) to varchar\(20\) in latin1`, ``, ``, `größe`},
		"wider": {`varchar(9)`, typeText, `"a"`, `ALTER TABLE changing MODIFY c varchar(90)`,
			`column c has changed from varchar\(9\) to varchar\(90\)`, ``, ``, `a`},
		"narrower": {`varchar(90)`, typeText, `"a"`, `ALTER TABLE changing MODIFY c varchar(9)`,
			`column c has changed from varchar\(90\) to varchar\(9\)`, ``, ``, `a`},
		"fewer digits": {`decimal(9,2)`, typeNumeric, `12.25`, `ALTER TABLE changing MODIFY c decimal(9,1)`,
			`column c has changed from decimal\(9,2\) to decimal\(9,1\)`, ``, ``, `12.3`},
		"not null": {`int`, typeInteger, `12`, `ALTER TABLE changing MODIFY c int NOT NULL`,
			`column c has changed from int(\(11\))? to int(\(11\))? not null`, ``, ``, `12`},
		"a default": {`int`, typeInteger, `12`, `ALTER TABLE changing MODIFY c int DEFAULT 7`,
			`column c has changed from int(\(11\))? to int(\(11\))? with a default`, ``, ``, `12`},
		"unsigned": {`int`, typeInteger, `12`, `ALTER TABLE changing MODIFY c int unsigned`,
			`column c has changed from int(\(11\))? to int(\(10\))? unsigned`, ``, ``, `12`},
		"renamed and back": {`int`, typeInteger, `12`, `ALTER TABLE changing RENAME COLUMN c TO d`,
			`column c is gone: it was int(\(11\))?, column d is new: it is int`, `has no column c: it has id, d`, `ALTER TABLE changing RENAME COLUMN d TO c`, `12`},
		"dropped and put back": {`int`, typeInteger, `12`, `ALTER TABLE changing DROP COLUMN c`,
			`column c is gone`, `has no column c: it has id`, `ALTER TABLE changing ADD COLUMN c bigint`, `12`},
		"swapped": {`int`, typeInteger, `12`, `ALTER TABLE changing RENAME COLUMN c TO old; ALTER TABLE changing ADD COLUMN c bigint`,
			`column c has changed from int(\(11\))? to bigint`, ``, ``, `12`},
		"a required column": {`int`, typeInteger, `12`, `ALTER TABLE changing ADD COLUMN n int NOT NULL`,
			`column n is new: it is int(\(11\))? not null`, `column n must have a value and has no default`, `ALTER TABLE changing DROP COLUMN n`, `12`},
		"generated": {`int`, typeInteger, `12`, `ALTER TABLE changing DROP COLUMN c; ALTER TABLE changing ADD COLUMN c int AS (id + 1) STORED`,
			`column c has changed from int(\(11\))? to int(\(11\))?.* generated`, `column c is generated and takes no values`, `ALTER TABLE changing DROP COLUMN c; ALTER TABLE changing ADD COLUMN c int`, `12`},
		"the table renamed and back": {`int`, typeInteger, `12`, `ALTER TABLE changing RENAME TO gone`,
			`table changing: the table is gone`, `table changing does not exist`, `ALTER TABLE gone RENAME TO changing`, `12`},
	},
}

func TestMariaDB(t *testing.T) { mariaEngine.test(t) }

func TestMariaDBConnections(t *testing.T) { mariaEngine.testConnections(t) }

func TestMariaDBCheck(t *testing.T) {
	const tables = "SELECT count(*) FROM information_schema.tables WHERE table_schema = DATABASE()"
	mariaEngine.testCheck(t, tables, "mysql://", "/d", func(u *url.URL) []string {
		return []string{
			"mysql://app@" + u.Host + "/d?password=" + secret,
			"mysql://app@" + u.Host + "/d?sslpassword=" + secret,
			"mysql://app:" + secret + "@" + u.Host + "/d",
			"mariadb://sluice:" + secret + "@" + u.Host + u.Path,
		}
	})
}

func TestMariaDBColumnTypes(t *testing.T) { mariaEngine.testColumnTypes(t) }

func TestMariaDBColumnChanges(t *testing.T) { mariaEngine.testColumnChanges(t) }

func TestMariaDBAlterations(t *testing.T) { mariaEngine.testAlterations(t) }

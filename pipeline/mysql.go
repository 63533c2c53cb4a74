package pipeline

import (
	"database/sql/driver"
	"time"

	"github.com/sluice-go/sluice/internal/tables"
	"github.com/sluice-go/sluice/outbox"
	"github.com/sluice-go/sluice/sqlstore"
)

// mysqlKind is MySQL or MariaDB.
var mysqlKind = serverKind{
	dialect:   &mysqlDialect,
	connector: func(address string, _ accessToken) (driver.Connector, error) { return sqlstore.MySQLConnector(address) },
	open:      sqlstore.OpenMySQL,
	check:     sqlstore.CheckMySQL,
	tables:    tables.MySQL,
	safe:      tables.CheckMySQL,
	hasKey:    sqlstore.CheckMySQLKey,
	prepares:  true,
	outboxes:  outbox.MySQL,
}

// mysqlDialect's kinds of column are those of information_schema. Values that do not fit a column
// are errors, because the store's sessions are strict.
var mysqlDialect = dialect{
	engine: mysql, parameter: "?", unnumbered: true, quotes: "``",
	// Texts are equal only if they are the same, as in the other databases.
	options: " ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
	declare: map[columnType]string{
		typeText: "LONGTEXT", typeSmallint: "SMALLINT", typeInteger: "INT", typeBigint: "BIGINT", typeReal: "FLOAT", typeDouble: "DOUBLE",
		typeNumeric: "DECIMAL(65,30)", // the largest
		typeBoolean: "BOOLEAN", typeDate: "DATE",
		// TIMESTAMP ends in 2038. Times are in UTC.
		typeTimestamp: "DATETIME(6)", typeBytes: "LONGBLOB", typeJSON: "JSON",
	},
	declareKey: map[columnType]string{typeText: "VARCHAR(255)", typeBytes: "VARBINARY(255)"}, // an index has at most 3,072 bytes
	accepts: map[columnType][]string{
		typeText:     {"varchar", "char", "tinytext", "text", "mediumtext", "longtext", "uuid", "inet4", "inet6", "enum", "set", "date", "time"},
		typeSmallint: {"tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "float", "double"},
		typeInteger:  {"tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "float", "double"},
		typeBigint:   {"bigint", "decimal", "double"},
		typeReal:     {"double", "float"}, typeDouble: {"double", "float"}, typeDate: {"date", "datetime"}, typeNumeric: {"decimal"}, typeBoolean: {"tinyint", "bit"},
		typeTimestamp: {"datetime", "timestamp"},
		typeBytes:     {"tinyblob", "blob", "mediumblob", "longblob", "varbinary", "binary"},
		typeJSON:      {"json", "text", "mediumtext", "longtext"},
	},
	guards: map[columnType]map[string]func(string) guard{
		typeText:    {"enum": amongLabels, "set": amongLabels, "date": fixed(unchanged(withoutTime)), "time": fixed(unchanged(withoutDate))},
		typeInteger: {"float": fixed(exactIn(24))}, typeBigint: {"double": fixed(exactIn(53))},
	},
	argument: mysqlArgument,
}

// mysqlArgument makes text of times, to the microsecond: the driver would round them, and write the
// year 1 as the year 0.
func mysqlArgument(_ columnType, value any) any {
	if at, ok := value.(time.Time); ok {
		return at.UTC().Format("2006-01-02 15:04:05.000000")
	}
	return value
}

func parseMySQL(address string) (sqlDatabase, error) {
	return mysqlKind.database(address, address, nil)
}

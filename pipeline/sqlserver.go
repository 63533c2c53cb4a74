package pipeline

import (
	"errors"
	"net/url"

	"github.com/sluice-go/sluice/internal/config/databasetoken"
	"github.com/sluice-go/sluice/internal/tables"
	"github.com/sluice-go/sluice/outbox"
	"github.com/sluice-go/sluice/sqlstore"
)

// sqlServerKind is SQL Server or Azure SQL. It cannot prepare every statement without executing it.
var sqlServerKind = serverKind{
	dialect:   &sqlServerDialect,
	connector: sqlstore.SQLServerConnector,
	open:      sqlstore.OpenSQLServer,
	check:     sqlstore.CheckSQLServer,
	tables:    tables.SQLServer,
	safe:      tables.CheckSQLServer,
	hasKey:    sqlstore.CheckSQLServerKey,
	outboxes:  outbox.SQLServer,
}

// sqlServerDialect's kinds of column are SQL Server's system types. A text in a varchar loses,
// without an error, the characters that its code page does not have.
var sqlServerDialect = dialect{
	engine: sqlServer, parameter: "@p", quotes: "[]",
	declare: map[columnType]string{
		typeText: "nvarchar(max)", typeSmallint: "smallint", typeInteger: "int", typeBigint: "bigint", typeReal: "real", typeDouble: "float", typeDate: "date",
		typeNumeric: "decimal(38,18)", typeBoolean: "bit", typeTimestamp: "datetime2", typeBytes: "varbinary(max)", typeJSON: "nvarchar(max)",
	},
	declareKey: map[columnType]string{typeText: "nvarchar(400)", typeBytes: "varbinary(800)"}, // an index has at most 900 bytes
	accepts: map[columnType][]string{
		typeText:     {"nvarchar", "nchar", "ntext", "varchar in UTF-8", "char in UTF-8", "uniqueidentifier", "date", "time"},
		typeSmallint: {"tinyint", "smallint", "int", "bigint", "decimal", "numeric", "real", "float"},
		typeInteger:  {"tinyint", "smallint", "int", "bigint", "decimal", "numeric", "real", "float"},
		typeBigint:   {"bigint", "decimal", "numeric", "float"},
		typeReal:     {"float", "real"}, typeDouble: {"float", "real"}, typeDate: {"date", "datetime2"}, typeNumeric: {"decimal", "numeric"}, typeBoolean: {"bit"},
		typeTimestamp: {"datetime2", "datetimeoffset"}, typeBytes: {"varbinary", "binary", "image"},
		typeJSON: {"nvarchar", "varchar in UTF-8", "json"},
	},
	guards: map[columnType]map[string]func(string) guard{
		typeText:    {"date": fixed(unchanged(withoutTime)), "time": fixed(unchanged(withoutDate))},
		typeInteger: {"real": fixed(exactIn(24))}, typeBigint: {"float": fixed(exactIn(53))},
	},
	argument: sqlServerArgument,
}

// sqlServerArgument gives NULL a type: the driver's own is a text, which is no binary.
func sqlServerArgument(t columnType, value any) any {
	if value == nil && t == typeBytes {
		return []byte(nil)
	}
	return value
}

func parseSQLServer(address string) (sqlDatabase, error) {
	if u, err := url.Parse(address); err == nil && u.Query().Has("fedauth") {
		return nil, errors.New("has the parameter fedauth: for Entra ID write credential=default and no user")
	}
	clean, token, err := databasetoken.SQLServer(address)
	if err != nil {
		return nil, err
	}
	return sqlServerKind.database(address, clean, token)
}

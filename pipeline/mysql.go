package pipeline

import (
	"context"
	"database/sql"
	"strings"
	"time"

	"github.com/sluice-go/sluice/sqlstore"
)

// mysqlDatabase is a database of MySQL or MariaDB by its URL.
type mysqlDatabase struct{ url string }

// mysqlDialect's kinds of column are those of information_schema. Values that do not fit a column are
// errors, because the store's sessions are strict.
var mysqlDialect = dialect{
	engine: mysql, parameter: "?", unnumbered: true, quotes: "``",
	// Texts are equal only if they are the same, as in the other databases.
	options: " ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
	declare: map[columnType]string{
		typeText: "LONGTEXT", typeInteger: "INT", typeBigint: "BIGINT", typeDouble: "DOUBLE",
		typeNumeric: "DECIMAL(65,30)", // the largest
		typeBoolean: "BOOLEAN",
		// TIMESTAMP ends in 2038. Times are in UTC.
		typeTimestamp: "DATETIME(6)", typeBytes: "LONGBLOB", typeJSON: "JSON",
	},
	accepts: map[columnType][]string{
		typeText:    {"varchar", "char", "tinytext", "text", "mediumtext", "longtext", "uuid"},
		typeInteger: {"int", "bigint", "decimal"}, typeBigint: {"bigint", "decimal"},
		typeDouble: {"double"}, typeNumeric: {"decimal"}, typeBoolean: {"tinyint", "bit"},
		typeTimestamp: {"datetime", "timestamp"},
		typeBytes:     {"tinyblob", "blob", "mediumblob", "longblob", "varbinary", "binary"},
		typeJSON:      {"json", "text", "mediumtext", "longtext"},
		"":            {"smallint", "mediumint", "float", "date", "time", "year"}, // store none of the types unchanged
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
	if _, err := sqlstore.MySQLConnector(address); err != nil {
		return nil, err
	}
	return mysqlDatabase{address}, nil
}

func (mysqlDatabase) dialect() *dialect { return &mysqlDialect }
func (d mysqlDatabase) address() string { return d.url }

func (d mysqlDatabase) reader() (*sql.DB, error) {
	connector, err := sqlstore.MySQLConnector(d.url)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

func (d mysqlDatabase) open(ctx context.Context, p *Pipeline, parts *Parts) error {
	store, err := sqlstore.OpenMySQL(ctx, d.url, &sqlstore.ServerConfig{LeaseFor: p.config.LeaseFor})
	if err != nil {
		return err
	}
	parts.useSQLStore(p, store, mysqlCatalog{store.DB()})
	return nil
}

func (d mysqlDatabase) inspect(ctx context.Context) (catalog, func(), error) {
	if err := sqlstore.CheckMySQL(ctx, d.url, nil); err != nil {
		return nil, nil, err
	}
	db, err := d.reader()
	if err != nil {
		return nil, nil, err
	}
	return mysqlCatalog{db}, func() { db.Close() }, nil
}

type mysqlCatalog struct{ db *sql.DB }

func (c mysqlCatalog) columns(ctx context.Context, table string) ([]existingColumn, error) {
	schema, name, ok := strings.Cut(table, ".")
	if !ok {
		schema, name = "", table
	}
	rows, err := c.db.QueryContext(ctx,
		`SELECT column_name, data_type, is_nullable = 'NO' AND column_default IS NULL AND extra NOT LIKE '%auto_increment%',
		        COALESCE(generation_expression, '') <> ''
		 FROM information_schema.columns
		 WHERE table_schema = COALESCE(NULLIF(?, ''), DATABASE()) AND table_name = ?
		 ORDER BY ordinal_position`, schema, name)
	if err != nil {
		return nil, err
	}
	return scanColumns(rows)
}

func (c mysqlCatalog) create(ctx context.Context, sql string) error {
	_, err := c.db.ExecContext(ctx, sql)
	return err
}

func (c mysqlCatalog) parameters(ctx context.Context, text string, _ int) ([]string, error) {
	stmt, err := c.db.PrepareContext(ctx, text)
	if err != nil {
		return nil, err
	}
	return nil, stmt.Close()
}

package pipeline

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	_ "modernc.org/sqlite" // the driver "sqlite", for reader

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/tables"
	"github.com/sluice-go/sluice/outbox"
	"github.com/sluice-go/sluice/sqlstore"
)

type sqliteDatabase struct{ path string }

// sqliteDialect's kinds of column are SQLite's affinities,
// https://sqlite.org/datatype3.html#determination_of_column_affinity.
var sqliteDialect = dialect{
	engine: sqlite, parameter: "?", quotes: `""`,
	declare: map[columnType]string{
		typeText: "TEXT", typeSmallint: "INTEGER", typeInteger: "INTEGER", typeBigint: "INTEGER", typeReal: "REAL", typeDouble: "REAL", typeDate: "TEXT", typeBoolean: "INTEGER",
		typeNumeric:   "TEXT", // SQLite has no exact decimals
		typeTimestamp: "TEXT", typeBytes: "BLOB", typeJSON: "TEXT",
	},
	accepts: map[columnType][]string{
		typeText: {"TEXT", "BLOB"}, typeNumeric: {"TEXT", "BLOB"},
		typeSmallint: {"INTEGER", "NUMERIC", "BLOB"}, typeReal: {"REAL", "NUMERIC", "BLOB"}, typeDate: {"TEXT", "NUMERIC", "BLOB"},
		typeInteger: {"INTEGER", "NUMERIC", "BLOB"}, typeBigint: {"INTEGER", "NUMERIC", "BLOB"},
		typeBoolean: {"INTEGER", "NUMERIC", "BLOB"}, typeDouble: {"REAL", "NUMERIC", "BLOB"},
		typeTimestamp: {"TEXT", "NUMERIC", "BLOB"}, typeJSON: {"TEXT", "NUMERIC", "BLOB"},
		typeBytes: {"TEXT", "INTEGER", "REAL", "NUMERIC", "BLOB"},
	},
	guards: map[columnType]map[string]func(string) guard{typeJSON: {"NUMERIC": fixed(unchanged(asWritten))}},
}

func parseSQLite(address string) (sqlDatabase, error) {
	_, path, _ := strings.Cut(address, ":")
	// As in the URLs of other tools: sqlite:///absolute, sqlite://relative.
	if path = strings.TrimPrefix(path, "//"); path == "" {
		return nil, errors.New("sqlite: has no path: write sqlite:PATH")
	}
	return sqliteDatabase{path}, nil
}

func (sqliteDatabase) dialect() *dialect { return &sqliteDialect }
func (d sqliteDatabase) address() string { return "sqlite:" + d.path }

func (d sqliteDatabase) reader() (*sql.DB, error) {
	return d.file("mode=ro&_pragma=busy_timeout(10000)")
}

func (d sqliteDatabase) outbox() (*sql.DB, outbox.Dialect, error) {
	db, err := d.file("_pragma=busy_timeout(10000)")
	return db, outbox.SQLite, err
}

// file opens the file with parameters of the driver. It does not connect.
func (d sqliteDatabase) file(parameters string) (*sql.DB, error) {
	path, err := filepath.Abs(d.path)
	if err != nil {
		return nil, err
	}
	path = filepath.ToSlash(path)
	if !strings.HasPrefix(path, "/") {
		path = "/" + path // C:/…
	}
	dsn := url.URL{Scheme: "file", Path: path, RawQuery: parameters}
	return sql.Open("sqlite", dsn.String())
}

func (d sqliteDatabase) open(_ context.Context, p *Pipeline, parts *Parts) error {
	store, err := sqlstore.OpenSQLite(d.path, &sqlstore.Config{NoMigrate: p.storage.noMigrate})
	if err != nil {
		return err
	}
	parts.useSQLStore(p, store, sqliteCatalog{store.DB(), d.path})
	return nil
}

func (d sqliteDatabase) inspect(ctx context.Context) (catalog, func(), error) {
	if err := sqlstore.CheckSQLite(ctx, d.path); err != nil {
		return nil, nil, err
	}
	if _, err := os.Stat(d.path); errors.Is(err, os.ErrNotExist) {
		return nil, func() {}, nil
	}
	db, err := d.reader()
	if err != nil {
		return nil, nil, err
	}
	return sqliteCatalog{db, d.path}, func() { db.Close() }, nil
}

type sqliteCatalog struct {
	db   *sql.DB
	path string // for errors
}

// safe: every table is, also the virtual ones.
func (c sqliteCatalog) safe(context.Context, string) error { return nil }

func (c sqliteCatalog) columns(ctx context.Context, table string) ([]existingColumn, error) {
	list, err := tables.SQLite.Columns(ctx, c.db, table)
	return existingColumns(&sqliteDialect, list), err
}

// affinity returns the affinity of a declared type, which is in upper case.
func affinity(declared string) string {
	holds := func(parts ...string) bool {
		return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(declared, part) })
	}
	switch {
	case holds("INT"):
		return "INTEGER"
	case holds("CHAR", "CLOB", "TEXT"):
		return "TEXT"
	case holds("BLOB") || declared == "":
		return "BLOB"
	case holds("REAL", "FLOA", "DOUB"):
		return "REAL"
	}
	return "NUMERIC"
}

func (c sqliteCatalog) hasKey(ctx context.Context, table string, columns []string, k driver.Keyed) error {
	return sqlstore.CheckSQLiteKey(ctx, c.db, table, columns, k)
}

func (c sqliteCatalog) create(ctx context.Context, sql string) error {
	if _, err := c.db.ExecContext(ctx, sql); err != nil {
		return fmt.Errorf("database %s: %w", c.path, err)
	}
	return nil
}

// parameters runs EXPLAIN on the statement, which compiles it.
func (c sqliteCatalog) parameters(ctx context.Context, sql string, count int) ([]existingColumn, error) {
	rows, err := c.db.QueryContext(ctx, "EXPLAIN "+sql, make([]any, count)...)
	if err != nil {
		return nil, err
	}
	return nil, rows.Close()
}

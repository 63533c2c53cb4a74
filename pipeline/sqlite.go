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

	"go.opentelemetry.io/otel/trace"
	_ "modernc.org/sqlite" // the driver "sqlite", for inspect

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/sqlstore"
)

type sqliteDatabase struct{ path string }

// sqliteDialect's kinds of column are SQLite's affinities,
// https://sqlite.org/datatype3.html#determination_of_column_affinity.
var sqliteDialect = dialect{
	parameter: "?",
	declare: map[columnType]string{
		typeText: "TEXT", typeInteger: "INTEGER", typeBigint: "INTEGER", typeDouble: "REAL", typeBoolean: "INTEGER",
		typeNumeric:   "TEXT", // SQLite has no exact decimals
		typeTimestamp: "TEXT", typeBytes: "BLOB", typeJSON: "TEXT",
	},
	accepts: map[columnType][]string{
		typeText: {"TEXT", "BLOB"}, typeNumeric: {"TEXT", "BLOB"},
		typeInteger: {"INTEGER", "NUMERIC", "BLOB"}, typeBigint: {"INTEGER", "NUMERIC", "BLOB"},
		typeBoolean: {"INTEGER", "NUMERIC", "BLOB"}, typeDouble: {"REAL", "NUMERIC", "BLOB"},
		typeTimestamp: {"TEXT", "NUMERIC", "BLOB"}, typeJSON: {"TEXT", "NUMERIC", "BLOB"},
		typeBytes: {"TEXT", "INTEGER", "REAL", "NUMERIC", "BLOB"},
	},
}

func (sqliteDatabase) dialect() *dialect { return &sqliteDialect }

func (d sqliteDatabase) open(_ context.Context, p *Pipeline, parts *Parts) error {
	store, err := sqlstore.OpenSQLite(d.path, nil)
	if err != nil {
		return err
	}
	parts.Leases, parts.DeadLetters, parts.Checkpoints = store.Leases(), store, store
	parts.store, _ = any(store).(driver.AtLeastOnceStore)
	parts.catalog = sqliteCatalog{store.DB(), d.path}
	parts.delivery = func(traces trace.TracerProvider) sluice.Delivery {
		return sluice.Transactional(store, traced(traces, p.target.sqliteHandler()))
	}
	parts.close = append(parts.close, func(context.Context) error { return store.Close() })
	return nil
}

func (d sqliteDatabase) inspect(ctx context.Context) (catalog, func(), error) {
	if err := sqlstore.CheckSQLite(ctx, d.path); err != nil {
		return nil, nil, err
	}
	path, err := filepath.Abs(d.path)
	if err != nil {
		return nil, nil, err
	}
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return nil, func() {}, nil
	}
	dsn := url.URL{Scheme: "file", Path: filepath.ToSlash(path), RawQuery: "mode=ro&_pragma=busy_timeout(10000)"}
	db, err := sql.Open("sqlite", dsn.String())
	if err != nil {
		return nil, nil, err
	}
	return sqliteCatalog{db, d.path}, func() { db.Close() }, nil
}

// sqliteHandler writes batches to the target.
func (t *target) sqliteHandler() sluice.Handler[*sqlstore.Tx] {
	names := t.mapping.names()
	return func(ctx context.Context, tx *sqlstore.Tx, b sluice.Batch) error {
		rows, err := t.mapping.rows(b.Events)
		if err != nil {
			return err
		}
		if t.table != "" {
			err := tx.Insert(ctx, t.table, names, rows)
			if refused, ok := errors.AsType[*sqlstore.RowError](err); ok {
				return &sluice.EventError{Index: refused.Row, Err: fmt.Errorf("insert into %s: %w", t.table, refused.Err)}
			}
			return err
		}
		stmt, err := tx.PrepareContext(ctx, t.statement.text)
		if err != nil {
			return fmt.Errorf("prepare the statement: %w", err)
		}
		defer stmt.Close()
		for i, row := range rows {
			if _, err := stmt.ExecContext(ctx, row...); err != nil {
				return &sluice.EventError{Index: i, Err: err}
			}
		}
		return nil
	}
}

type sqliteCatalog struct {
	db   *sql.DB
	path string // for errors
}

func (c sqliteCatalog) columns(ctx context.Context, table string) ([]existingColumn, error) {
	schema, name, ok := strings.Cut(table, ".")
	if !ok {
		schema, name = "main", table
	}
	// hidden 2 and 3 are generated columns. A primary key of one INTEGER column has
	// a value by default.
	rows, err := c.db.QueryContext(ctx,
		`SELECT name, upper(type), "notnull" AND dflt_value IS NULL AND NOT (pk = 1 AND upper(type) = 'INTEGER'), hidden > 1
		 FROM pragma_table_xinfo(?, ?)`, name, schema)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []existingColumn
	for rows.Next() {
		var e existingColumn
		if err := rows.Scan(&e.name, &e.kind, &e.required, &e.generated); err != nil {
			return nil, err
		}
		e.kind = affinity(e.kind)
		list = append(list, e)
	}
	return list, rows.Err()
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

func (c sqliteCatalog) create(ctx context.Context, sql string) error {
	if _, err := c.db.ExecContext(ctx, sql); err != nil {
		return fmt.Errorf("database %s: %w", c.path, err)
	}
	return nil
}

// parameters runs EXPLAIN on the statement, which compiles it.
func (c sqliteCatalog) parameters(ctx context.Context, sql string, count int) ([]string, error) {
	rows, err := c.db.QueryContext(ctx, "EXPLAIN "+sql, make([]any, count)...)
	if err != nil {
		return nil, err
	}
	return nil, rows.Close()
}

package pipeline

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"go.opentelemetry.io/otel/trace"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/databasetoken"
	internalpostgres "github.com/sluice-go/sluice/internal/postgres"
	"github.com/sluice-go/sluice/pgstore"
)

// postgresDatabase is a database by its URL, which may say credential=default.
type postgresDatabase struct{ url string }

// postgresDialect's kinds of column are PostgreSQL's types, by their internal names.
var postgresDialect = dialect{
	engine: postgres, parameter: "$", quotes: `""`,
	declare: map[columnType]string{
		typeText: "text", typeInteger: "integer", typeBigint: "bigint", typeDouble: "double precision", typeNumeric: "numeric",
		typeBoolean: "boolean", typeTimestamp: "timestamptz", typeBytes: "bytea", typeJSON: "jsonb",
	},
	accepts: map[columnType][]string{
		typeText:    {"text", "varchar", "bpchar", "uuid"},
		typeInteger: {"int4", "int8", "numeric"}, typeBigint: {"int8", "numeric"},
		typeDouble: {"float8"}, typeNumeric: {"numeric"}, typeBoolean: {"bool"},
		typeTimestamp: {"timestamptz", "timestamp"}, typeBytes: {"bytea"}, typeJSON: {"json", "jsonb", "text"},
		"": {"int2", "float4"}, // store none of the types unchanged
	},
}

func parsePostgres(address string) (sqlDatabase, error) {
	u, err := url.Parse(address)
	if err != nil || u.Opaque != "" {
		scheme, _, _ := strings.Cut(address, ":")
		return nil, fmt.Errorf("not a %s:// URL: special characters in the user's name and password must be percent-encoded", scheme)
	}
	if _, _, err := databasetoken.Postgres(address); err != nil {
		return nil, err
	}
	return postgresDatabase{url: address}, nil
}

func (postgresDatabase) dialect() *dialect { return &postgresDialect }
func (d postgresDatabase) address() string { return d.url }

func (d postgresDatabase) reader() (*sql.DB, error) {
	address, password, err := databasetoken.Postgres(d.url)
	if err != nil {
		return nil, err
	}
	pc, err := internalpostgres.ParseURL(address)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(postgresReader{stdlib.GetConnector(*pc.ConnConfig, stdlib.OptionBeforeConnect(func(ctx context.Context, cc *pgx.ConnConfig) (err error) {
		if password == nil {
			return nil
		}
		if cc.Password, err = password(ctx); err != nil {
			err = fmt.Errorf("connect to PostgreSQL at %s:%d, database %s, as %s: %w", cc.Host, cc.Port, cc.Database, cc.User, err)
		}
		return err
	}))}), nil
}

// postgresReader says in errors which database it could not connect to, and what to do.
type postgresReader struct{ sqldriver.Connector }

func (c postgresReader) Connect(ctx context.Context) (sqldriver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if failed, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		err = internalpostgres.ConnectError(failed)
	}
	return conn, err
}

func (d postgresDatabase) open(ctx context.Context, p *Pipeline, parts *Parts) error {
	url, password, err := databasetoken.Postgres(d.url)
	if err != nil {
		return err
	}
	store, err := pgstore.Open(ctx, url, &pgstore.Config{MaxConns: p.connections, LeaseFor: p.config.LeaseFor, Password: password})
	if err != nil {
		return err
	}
	parts.Leases, parts.DeadLetters, parts.Checkpoints = store.Leases(), store, store
	parts.store, _ = any(store).(driver.AtLeastOnceStore)
	parts.catalog = postgresCatalog{store.Pool()}
	parts.delivery = func(traces trace.TracerProvider) sluice.Delivery {
		return sluice.Transactional(store, traced(p, traces, decoded(p, routed(p, (*target).postgresHandler))))
	}
	parts.close = append(parts.close, func(context.Context) error { store.Close(); return nil })
	return nil
}

func (d postgresDatabase) inspect(ctx context.Context) (catalog, func(), error) {
	url, password, err := databasetoken.Postgres(d.url)
	if err != nil {
		return nil, nil, err
	}
	pool, err := pgstore.Connect(ctx, url, &pgstore.Config{Password: password})
	if err != nil {
		return nil, nil, err
	}
	if err := pool.AcquireFunc(ctx, func(c *pgxpool.Conn) error { return internalpostgres.CheckTables(ctx, c.Conn()) }); err != nil {
		pool.Close()
		return nil, nil, err
	}
	return postgresCatalog{pool}, pool.Close, nil
}

// postgresHandler writes batches to the target.
func (t *target) postgresHandler() sluice.Handler[pgx.Tx] {
	names := t.mapping.names()
	return func(ctx context.Context, tx pgx.Tx, b sluice.Batch) error {
		if t.table != "" {
			cells, err := copyCellsOf(ctx, tx, t.table, names)
			if err != nil {
				return err
			}
			err = pgstore.InsertFunc(ctx, tx, t.table, names, len(b.Events), t.mapping.each(b.Events, cells.box))
			if refused, ok := errors.AsType[*pgstore.RowError](err); ok {
				return &sluice.EventError{Index: refused.Row, Err: fmt.Errorf("insert into %s: %w", t.table, refused.Err)}
			}
			return err
		}
		rows, err := t.mapping.rows(b.Events)
		if err != nil {
			return err
		}
		var batch pgx.Batch
		for _, row := range rows {
			batch.Queue(t.statement.text, row...)
		}
		results := tx.SendBatch(ctx, &batch)
		for i := range rows {
			if _, err := results.Exec(); err != nil {
				results.Close()
				return &sluice.EventError{Index: i, Err: err}
			}
		}
		return results.Close()
	}
}

type postgresCatalog struct{ pool *pgxpool.Pool }

func (c postgresCatalog) columns(ctx context.Context, table string) ([]existingColumn, error) {
	rows, err := c.pool.Query(ctx,
		`SELECT a.attname, t.typname, a.attnotnull AND NOT a.atthasdef AND a.attidentity = '',
		        a.attgenerated <> '' OR a.attidentity = 'a'
		 FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
		 WHERE a.attrelid = to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped
		 ORDER BY a.attnum`, postgresDialect.quoteTable(table))
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (existingColumn, error) {
		var e existingColumn
		err := row.Scan(&e.name, &e.kind, &e.required, &e.generated)
		return e, err
	})
}

func (c postgresCatalog) create(ctx context.Context, sql string) error {
	_, err := c.pool.Exec(ctx, sql)
	return err
}

func (c postgresCatalog) parameters(ctx context.Context, sql string, _ int) ([]string, error) {
	conn, err := c.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Release()
	described, err := conn.Conn().Prepare(ctx, "", sql)
	if err != nil {
		return nil, err
	}
	kinds := make([]string, len(described.ParamOIDs))
	for i, oid := range described.ParamOIDs {
		kinds[i] = fmt.Sprintf("a type numbered %d", oid)
		if t, ok := conn.Conn().TypeMap().TypeForOID(oid); ok {
			kinds[i] = t.Name
		}
	}
	return kinds, nil
}

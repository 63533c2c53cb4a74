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
	"github.com/sluice-go/sluice/internal/config/databasetoken"
	internalpostgres "github.com/sluice-go/sluice/internal/postgres"
	"github.com/sluice-go/sluice/outbox"
	"github.com/sluice-go/sluice/pgstore"
)

// postgresDatabase is a database by its URL, which may say credential=default.
type postgresDatabase struct{ url string }

// postgresDialect's kinds of column are PostgreSQL's types, by their internal names.
var postgresDialect = dialect{
	engine: postgres, parameter: "$", quotes: `""`,
	declare: map[columnType]string{
		typeText: "text", typeSmallint: "smallint", typeInteger: "integer", typeBigint: "bigint", typeReal: "real", typeDouble: "double precision",
		typeNumeric: "numeric", typeDate: "date", typeBoolean: "boolean", typeTimestamp: "timestamptz", typeBytes: "bytea", typeJSON: "jsonb",
	},
	accepts: map[columnType][]string{
		typeText:     {"text", "varchar", "bpchar", "uuid", "timestamptz", "date", "time", "interval", "hstore", "vector", "halfvec", "geometry", "geography"},
		typeSmallint: {"int2", "int4", "int8", "numeric", "float4", "float8"}, typeDate: {"date", "timestamp"},
		typeInteger: {"int2", "int4", "int8", "numeric", "float4", "float8"}, typeBigint: {"int8", "numeric", "float8"},
		typeReal: {"float8", "float4"}, typeDouble: {"float8", "float4"}, typeNumeric: {"numeric"}, typeBoolean: {"bool"},
		typeTimestamp: {"timestamptz", "timestamp"}, typeBytes: {"bytea"},
		typeJSON: {"json", "jsonb", "text", "hstore", "vector", "halfvec", "geometry", "geography"}, // a vector is a JSON array, and PostGIS reads GeoJSON
		"":       {"name", "char", "timetz", "xid", "cid", "xid8"},                                  // store none of the types unchanged: these cut texts
	},
	guards: map[columnType]map[string]func(string) guard{
		typeText:    {"date": fixed(unchanged(withoutTime)), "time": fixed(unchanged(withoutDate))},
		typeInteger: {"float4": fixed(exactIn(24))}, typeBigint: {"float8": fixed(exactIn(53))},
		typeJSON: {"hstore": fixed(toHstore)},
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

func (d postgresDatabase) outbox() (*sql.DB, outbox.Dialect, error) {
	db, err := d.reader()
	return db, outbox.PostgreSQL, err
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
	store, err := pgstore.Open(ctx, url, &pgstore.Config{MaxConns: p.storage.connections, LeaseFor: p.config.LeaseFor, NoMigrate: p.storage.noMigrate, Password: password})
	if err != nil {
		return err
	}
	parts.Leases, parts.DeadLetters, parts.Checkpoints = store.Leases(), store, store
	parts.store, _ = any(store).(driver.AtLeastOnceStore)
	parts.catalog = postgresCatalog{store.Pool()}
	parts.delivery = func(traces trace.TracerProvider) sluice.Delivery {
		return sluice.Transactional(store, traced(p, traces, decoded(p, routed(p, transactionalTarget.postgresHandler))))
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

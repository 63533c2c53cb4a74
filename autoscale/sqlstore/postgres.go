package sqlstore

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	_ "embed"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/sluice-go/sluice/internal/postgres"
)

// PostgresConfig holds the options. The zero value, like nil, takes every default.
type PostgresConfig struct {
	// Schema is the schema of the tables, which is created if it is missing. Default: the
	// first of the role's search_path.
	Schema string
	// MaxConns is the largest number of connections. Default: 4.
	MaxConns int
	// Password, if set, returns the password of each new connection, such as a token of
	// Entra ID. The connection then needs TLS.
	Password func(context.Context) (string, error)
}

//go:embed postgres.sql
var postgresTables string

// postgresMigrations are the versions of the tables, the first is 1.
var postgresMigrations = []postgres.Migration{{SQL: postgresTables, Oldest: 1}}

const (
	// postgresSilence is how long a connection may give no answer before both sides take
	// it for lost.
	postgresSilence = 15 * time.Second
	// postgresPatience bounds connecting and preparing the tables.
	postgresPatience = 30 * time.Second
	// postgresNow is the present time by the clock of the server, in nanoseconds.
	postgresNow = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint * 1000"
)

// OpenPostgres opens the state in a database of PostgreSQL 13 or later, and creates the
// tables sluice_autoscale_… if they are missing; for that the role needs CREATE on the
// schema once. It works through PgBouncer too. url is that of libpq. Errors are one line
// without the password.
func OpenPostgres(ctx context.Context, url string, cfg *PostgresConfig) (*Store, error) {
	var c PostgresConfig
	if cfg != nil {
		c = *cfg
	}
	pc, err := postgres.Parse(url, postgres.Settings{LeaseFor: postgresSilence, RequestTimeout: postgresSilence, Password: c.Password})
	if err != nil {
		return nil, err
	}
	connector := &postgresConnector{pc}
	schema, err := connector.prepare(ctx, c.Schema)
	if postgres.RefusedParameter(err) {
		postgres.AdaptToPooler(pc.ConnConfig)
		schema, err = connector.prepare(ctx, c.Schema)
	}
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector)
	if c.MaxConns <= 0 {
		c.MaxConns = 4
	}
	db.SetMaxOpenConns(c.MaxConns)
	db.SetMaxIdleConns(c.MaxConns)
	db.SetConnMaxIdleTime(5 * time.Minute)
	s := &Store{where: fmt.Sprintf("in PostgreSQL at %s:%d, database %s, schema %s", pc.ConnConfig.Host, pc.ConnConfig.Port, pc.ConnConfig.Database, schema), db: db,
		dialect: newDialect(pgx.Identifier{schema}.Sanitize()+".sluice_autoscale_", postgresNow, "FOR UPDATE SKIP LOCKED")}
	s.numbered, s.snapshot = true, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true}
	return s, nil
}

// postgresConnector opens connections whose errors are one line that says what to do.
type postgresConnector struct{ config *pgxpool.Config }

// prepare brings the tables up to date, and returns their schema.
func (c *postgresConnector) prepare(ctx context.Context, schema string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, postgresPatience)
	defer cancel()
	conn, err := c.Connect(ctx)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	return postgres.PrepareTables(ctx, conn.(*stdlib.Conn).Conn(), schema, "autoscale", postgresMigrations)
}

// Connect implements [sqldriver.Connector].
func (c *postgresConnector) Connect(ctx context.Context) (sqldriver.Conn, error) {
	config := c.config.ConnConfig.Copy()
	if c.config.BeforeConnect != nil {
		if err := c.config.BeforeConnect(ctx, config); err != nil {
			return nil, err
		}
	}
	conn, err := stdlib.GetConnector(*config).Connect(ctx)
	if failed, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return nil, postgres.ConnectError(failed)
	}
	return conn, err
}

// Driver implements [sqldriver.Connector].
func (*postgresConnector) Driver() sqldriver.Driver { return stdlib.GetDefaultDriver() }

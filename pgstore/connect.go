package pgstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sluice-go/sluice/internal/postgres"
)

// parse makes a pool's configuration from a URL.
func parse(url string, cfg Config) (*pgxpool.Config, error) {
	pc, err := postgres.Parse(url, postgres.Settings{LeaseFor: cfg.LeaseFor, RequestTimeout: cfg.requestTimeout(), Password: cfg.Password})
	if err == nil && cfg.MaxConns > 0 {
		pc.MaxConns = int32(cfg.MaxConns)
	}
	return pc, err
}

// acquire takes a connection from a pool. Its errors are one line that names host, port, database,
// user and cause.
func acquire(ctx context.Context, pool *pgxpool.Pool) (*pgxpool.Conn, error) {
	conn, err := pool.Acquire(ctx)
	var failed *pgconn.ConnectError
	switch {
	case err == nil:
		return conn, nil
	case errors.As(err, &failed):
		return nil, postgres.ConnectError(failed)
	case ctx.Err() != nil:
		return nil, postgres.NoConnection(&pool.Config().ConnConfig.Config, context.Cause(ctx))
	case err.Error() == "closed pool": // puddle.ErrClosedPool, of a module that this one does not name
		return nil, fmt.Errorf("%w: close the store, and its pool, after its consumers have stopped", err)
	}
	return nil, err
}

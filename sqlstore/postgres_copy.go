package sqlstore

import (
	"context"
	"database/sql/driver"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/sluice-go/sluice/internal/postgres"
)

// postgresCopy is what [postgresConn] copies, as the argument of a statement.
type postgresCopy struct {
	table   string
	columns []string
	rows    [][]any
}

// postgresBatch is a statement for each of several rows, as the argument of a statement.
type postgresBatch struct {
	query string
	rows  [][]any
}

// copy writes rows by COPY: all of them, or none.
func (c *postgresConn) copy(ctx context.Context, b postgresCopy) (driver.Result, error) {
	name := pgx.Identifier(strings.SplitN(clean(b.table), ".", 2))
	source := &copiedRows{rows: b.rows, at: -1}
	n, err := c.pgx().CopyFrom(ctx, name, b.columns, source)
	if err == nil && n != int64(len(b.rows)) {
		err = postgres.RowsLeftOut(n, len(b.rows))
	}
	c.note(err)
	if row, ok := postgres.CopyRow(err, name[len(name)-1], source.at, len(b.rows)); ok {
		err = &RowError{Row: row, Err: err}
	}
	return driver.RowsAffected(n), err
}

// batch runs the statements in one round trip.
func (c *postgresConn) batch(ctx context.Context, b postgresBatch) (driver.Result, error) {
	var queue pgx.Batch
	for _, row := range b.rows {
		queue.Queue(b.query, row...)
	}
	return driver.RowsAffected(len(b.rows)), c.note(c.pgx().SendBatch(ctx, &queue).Close())
}

// copiedRows are rows on their way to the server.
type copiedRows struct {
	rows [][]any
	at   int
}

func (s *copiedRows) Next() bool             { s.at++; return s.at < len(s.rows) }
func (s *copiedRows) Values() ([]any, error) { return s.rows[s.at], nil }
func (s *copiedRows) Err() error             { return nil }

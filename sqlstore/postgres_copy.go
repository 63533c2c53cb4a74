package sqlstore

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/sluice-go/sluice/internal/keyed"
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

// postgresUpsert is what [postgresConn] writes by key, as the argument of a statement.
type postgresUpsert struct{ *keyed.Write }

// upsert writes rows by key: all of them, or none.
func (c *postgresConn) upsert(ctx context.Context, w postgresUpsert) (driver.Result, error) {
	u := postgres.Upsert{Table: strings.SplitN(clean(w.Table), ".", 2), Write: w.Write}
	return driver.RowsAffected(len(w.Rows)), c.note(u.Run(ctx, c.pgx()))
}

// copy writes rows by COPY: all of them, or none.
func (c *postgresConn) copy(ctx context.Context, b postgresCopy) (driver.Result, error) {
	statement := postgres.Copy{Table: strings.SplitN(clean(b.table), ".", 2), Columns: b.columns, Row: func(i int) ([]any, error) {
		if i == len(b.rows) {
			return nil, io.EOF
		}
		return b.rows[i], nil
	}}
	n, err := statement.Run(ctx, c.pgx())
	c.note(err)
	refused, named := errors.AsType[*postgres.CopyError](err)
	switch {
	case named:
		err = &RowError{Row: refused.Row, Err: refused.Err}
	case err == nil && n != int64(len(b.rows)):
		err = postgres.RowsLeftOut(n, len(b.rows))
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

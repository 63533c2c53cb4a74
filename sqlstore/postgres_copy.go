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

// postgresNative is what only pgx can run, as the argument of a statement without a text of its
// own.
type postgresNative interface {
	run(ctx context.Context, conn *pgx.Conn) (driver.Result, error)
}

// postgresCopy is rows to copy.
type postgresCopy struct {
	table   string
	columns []string
	rows    [][]any
}

// postgresBatch is a statement for each of several rows.
type postgresBatch struct {
	query string
	rows  [][]any
}

// postgresUpsert is what is written by key.
type postgresUpsert struct{ *keyed.Write }

// run writes rows by key: all of them, or none.
func (w postgresUpsert) run(ctx context.Context, conn *pgx.Conn) (driver.Result, error) {
	u := postgres.Upsert{Table: strings.SplitN(clean(w.Table), ".", 2), Write: w.Write}
	return driver.RowsAffected(len(w.Rows)), u.Run(ctx, conn)
}

// run writes rows by COPY: all of them, or none.
func (b postgresCopy) run(ctx context.Context, conn *pgx.Conn) (driver.Result, error) {
	statement := postgres.Copy{Table: strings.SplitN(clean(b.table), ".", 2), Columns: b.columns, Row: func(i int) ([]any, error) {
		if i == len(b.rows) {
			return nil, io.EOF
		}
		return b.rows[i], nil
	}}
	n, err := statement.Run(ctx, conn)
	refused, named := errors.AsType[*postgres.CopyError](err)
	switch {
	case named:
		err = &RowError{Row: refused.Row, Err: refused.Err}
	case err == nil && n != int64(len(b.rows)):
		err = postgres.RowsLeftOut(n, len(b.rows))
	}
	return driver.RowsAffected(n), err
}

// run runs the statements in one round trip.
func (b postgresBatch) run(ctx context.Context, conn *pgx.Conn) (driver.Result, error) {
	var queue pgx.Batch
	for _, row := range b.rows {
		queue.Queue(b.query, row...)
	}
	return driver.RowsAffected(len(b.rows)), conn.SendBatch(ctx, &queue).Close()
}

package pgstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/postgres"
)

// RowError is an error of [Insert] that names the row that was refused. A handler with one row for
// each event can convert it to a [driver.EventError], which saves the engine the search for the
// event.
type RowError struct {
	Row int // index in rows
	Err error
}

func (e *RowError) Error() string { return fmt.Sprintf("row %d: %v", e.Row, e.Err) }

// Unwrap returns the cause.
func (e *RowError) Unwrap() error { return e.Err }

// Insert writes rows to a table by COPY, the fastest way in. The table is a
// name, or schema.name; each row has a value for each column, in order. It is
// all or nothing, as any statement. If it is known which row failed, the error is
// a [*RowError]. That a trigger leaves a row out is an error too.
//
// The values go as text, which PostgreSQL parses for the type of the column: a
// string can be a value of every type. If the type of a column was changed, nothing
// is written, and the engine repeats the batch with what the column is now.
func Insert(ctx context.Context, tx pgx.Tx, table string, columns []string, rows [][]any) error {
	return InsertFunc(ctx, tx, table, columns, len(rows), func(i int) ([]any, error) { return rows[i], nil })
}

// InsertFunc is [Insert] of n rows that are made on their way, while PostgreSQL
// takes in those before them: row returns the one of an index, and may use its
// memory again for the next. It runs on another goroutine, which has ended when
// InsertFunc returns. Its first error, or its panic as a [*driver.PanicError],
// ends the insert and is returned as it is.
func InsertFunc(ctx context.Context, tx pgx.Tx, table string, columns []string, n int, row func(i int) ([]any, error)) error {
	c := postgres.Copy{Table: strings.Split(table, "."), Columns: columns, Row: func(i int) ([]any, error) {
		if i == n {
			return nil, io.EOF
		}
		return row(i)
	}}
	taken, err := c.RunTx(ctx, tx)
	failed, ofRow := errors.AsType[*postgres.RowFailed](err)
	refused, named := errors.AsType[*postgres.CopyError](err)
	switch {
	case ofRow && failed.Err != nil:
		return failed.Err
	case ofRow:
		return &driver.PanicError{Value: failed.Panic, Stack: failed.Stack}
	case named:
		err = &RowError{Row: refused.Row, Err: refused.Err}
	case err == nil && taken != int64(n):
		err = postgres.RowsLeftOut(taken, n)
	case err == nil:
		return nil
	}
	return fmt.Errorf("insert into %s: %w", table, err)
}

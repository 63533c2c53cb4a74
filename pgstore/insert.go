package pgstore

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/postgres"
)

// RowError is an error of [Insert] that names the row that was refused. A handler with one row for
// each event can convert it to a [sluice.EventError], which saves the engine the search for the
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
// all or nothing, as any statement. If PostgreSQL names the row that failed,
// the error is a [*RowError]. That a trigger leaves a row out is an error too.
func Insert(ctx context.Context, tx pgx.Tx, table string, columns []string, rows [][]any) error {
	return InsertFunc(ctx, tx, table, columns, len(rows), func(i int) ([]any, error) { return rows[i], nil })
}

// InsertFunc is [Insert] of n rows that are made on their way, while PostgreSQL
// takes in those before them: row returns the one of an index, and may use its
// memory again for the next. It runs on another goroutine, which has ended when
// InsertFunc returns. Its first error, or its panic as a [*sluice.PanicError],
// ends the insert and is returned as it is.
func InsertFunc(ctx context.Context, tx pgx.Tx, table string, columns []string, n int, row func(i int) ([]any, error)) error {
	source := &rowSource{row: row, n: n, at: -1}
	name := pgx.Identifier(strings.Split(table, "."))
	taken, err := tx.CopyFrom(ctx, name, columns, source)
	switch {
	case source.err != nil:
		return source.err
	case err != nil:
		err = source.blame(err, name[len(name)-1])
	case taken != int64(n):
		err = postgres.RowsLeftOut(taken, n)
	default:
		return nil
	}
	return fmt.Errorf("insert into %s: %w", table, err)
}

// rowSource passes rows to pgx and records which one was the last.
type rowSource struct {
	row func(i int) ([]any, error)
	n   int
	at  int
	err error // of row
}

// errNoRow is sent to PostgreSQL instead of row's error: the server ends the session of a client whose
// reason is longer than 10,000 bytes.
var errNoRow = errors.New("the client has no row")

func (s *rowSource) Next() bool { s.at++; return s.at < s.n }
func (s *rowSource) Err() error { return nil }

// Values is called on a goroutine of pgx's, where a panic would end the process.
func (s *rowSource) Values() (values []any, err error) {
	defer func() {
		if v := recover(); v != nil {
			s.err = &sluice.PanicError{Value: v, Stack: debug.Stack()}
		}
		if s.err != nil {
			err = errNoRow
		}
	}()
	values, s.err = s.row(s.at)
	return values, nil
}

// blame names the row that an error is about, if that is known.
func (s *rowSource) blame(err error, table string) error {
	if row, found := postgres.CopyRow(err, table, s.at, s.n); found {
		return &RowError{Row: row, Err: err}
	}
	return err
}

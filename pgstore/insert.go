package pgstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// RowError is an error of [Insert] that tells which row was refused. A handler
// with one row for each event can make a [sluice.EventError] of it, which
// spares the search for the event.
type RowError struct {
	Row int // index in rows
	Err error
}

func (e *RowError) Error() string { return fmt.Sprintf("row %d: %v", e.Row, e.Err) }

// Unwrap gives the cause.
func (e *RowError) Unwrap() error { return e.Err }

// Insert writes rows to a table by COPY, the fastest way in. The table is a
// name, or schema.name; each row has a value for each column, in order. It is
// all or nothing, as any statement. If a row is to blame, as far as PostgreSQL
// says so, the error is a [*RowError].
func Insert(ctx context.Context, tx pgx.Tx, table string, columns []string, rows [][]any) error {
	source := &rowSource{rows: rows, at: -1}
	name := pgx.Identifier(strings.Split(table, "."))
	n, err := tx.CopyFrom(ctx, name, columns, source)
	switch {
	case err != nil:
		err = source.blame(err, name[len(name)-1])
	case n != int64(len(rows)):
		err = fmt.Errorf("%d of %d rows were taken", n, len(rows))
	default:
		return nil
	}
	return fmt.Errorf("insert into %s: %w", table, err)
}

// rowSource hands rows to pgx, and knows which one was handed out last.
type rowSource struct {
	rows [][]any
	at   int
}

func (s *rowSource) Next() bool             { s.at++; return s.at < len(s.rows) }
func (s *rowSource) Values() ([]any, error) { return s.rows[s.at], nil }
func (s *rowSource) Err() error             { return nil }

// blame finds the row that an error is about: the last one if it could not be
// encoded, else the one that PostgreSQL names as the error's context.
func (s *rowSource) blame(err error, table string) error {
	var e *pgconn.PgError
	if !errors.As(err, &e) {
		return err
	}
	row := -1
	if encodingFailed(e) {
		row = s.at
	} else {
		for line := range strings.Lines(e.Where) {
			if rest, found := strings.CutPrefix(line, "COPY "+table+", line "); found {
				digits := rest[:len(rest)-len(strings.TrimLeft(rest, "0123456789"))]
				if n, err := strconv.Atoi(digits); err == nil {
					row = n - 1
				}
			}
		}
	}
	if row < 0 || row >= len(s.rows) {
		return err
	}
	return &RowError{Row: row, Err: err}
}

package pgstore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/keyed"
	"github.com/sluice-go/sluice/internal/postgres"
)

// Upsert writes rows to a table by key: it inserts, updates and deletes as k says. The table is a
// name, or schema.name; each row has a value for each column, in order, as for [Insert]. It is all
// or nothing.
//
// After the writes it looks for the rows: one that a trigger or a policy has left out is an error.
// If it is known which row failed, the error is a [*RowError]. A table without the key is a
// [*driver.NoKeyError], an outage that no event is blamed for.
//
// It takes two round trips, and a third for a COPY of 100 new rows or more; needs the rights to
// SELECT, INSERT, UPDATE and DELETE as far as the rows do; and makes no temporary table. Triggers
// run as for INSERT … ON CONFLICT: those BEFORE INSERT may run also for a row that exists.
func Upsert(ctx context.Context, tx pgx.Tx, table string, columns []string, rows [][]any, k driver.Keyed) error {
	w, err := keyed.New(table, columns, rows, k)
	if err == nil && len(rows) > 0 {
		u := postgres.Upsert{Table: strings.Split(table, "."), Write: w}
		err = u.RunTx(ctx, tx)
	}
	if refused, named := errors.AsType[*keyed.RowError](err); named {
		err = &RowError{Row: refused.Row, Err: refused.Err}
	}
	if err != nil {
		return fmt.Errorf("upsert into %s: %w", table, err)
	}
	return nil
}

// UpsertRows implements [postgres.Upserter].
func (s *scope) UpsertRows(ctx context.Context, u *postgres.Upsert) error {
	if err := s.watch.admit(""); err != nil {
		return err
	}
	if s.ended {
		return pgx.ErrTxClosed
	}
	err := u.Run(ctx, s.Tx.Conn())
	if errors.Is(err, driver.ErrUnsafeTable) {
		s.watch.unsafe = err
	}
	return s.watch.note(err, "INSERT INTO "+u.Table.Sanitize()+" "+pgx.Identifier(u.Columns).Sanitize())
}

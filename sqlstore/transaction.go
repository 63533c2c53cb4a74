package sqlstore

import (
	"context"
	"database/sql"
	"errors"
)

// transaction is one transaction on the writing connection.
type transaction struct {
	*sql.Tx
	conn   *sql.Conn
	watch  *watch
	detach func() bool // the caller's context no longer ends the transaction; false if it has ended it
	cancel context.CancelFunc
	turns  *turns
	over   bool
}

// begin waits for the writing connection and for transactions of other processes.
func (s *Store) begin(ctx context.Context) (*transaction, error) {
	conn, err := s.writer.Conn(ctx)
	if err != nil {
		return nil, err
	}
	t := &transaction{conn: conn, turns: &s.turns}
	if err := conn.Raw(func(c any) error { t.watch = c.(*watchedConn).watch; return nil }); err != nil {
		conn.Close()
		return nil, err
	}
	// Its own context, because database/sql rolls back when the context of a
	// transaction ends, and the commit must not be interrupted.
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	t.detach, t.cancel = context.AfterFunc(ctx, cancel), cancel
	if err = s.turns.take(ctx); err == nil {
		err = retryBusy(ctx, s.dialect, s.busy, func() error {
			t.Tx, err = conn.BeginTx(inner, s.dialect.txOptions())
			return err
		})
	}
	if err != nil {
		t.detach()
		t.cancel()
		conn.Close()
		return nil, err
	}
	return t, nil
}

// end rolls back what was not committed, and returns when the transaction is over. It may be called
// more than once.
func (t *transaction) end() {
	if t.over {
		return
	}
	t.over = true
	t.watch.release()
	t.detach()
	t.Rollback() // fails if the transaction is over already, which is fine
	t.cancel()
	t.turns.end()
	t.conn.Close() // waits for a rollback that the end of ctx has started
}

// inTransaction runs a transaction without a handler. Its error says what could not be done.
func (s *Store) inTransaction(ctx context.Context, what string, fn func(t *transaction) error) error {
	t, err := s.begin(ctx)
	if err != nil {
		return s.outage(ctx, what, err)
	}
	defer t.end()
	if err := fn(t); err != nil {
		return s.outage(ctx, what, err)
	}
	if !t.detach() {
		return s.outage(ctx, what, ctx.Err())
	}
	if err := t.Commit(); err != nil {
		return s.outage(context.WithoutCancel(ctx), what, err)
	}
	return nil
}

// write is a statement that writes, and its arguments.
type write struct {
	query string
	args  []any
}

// errRaced means that another process has inserted the row between an UPDATE that did not find it
// and the INSERT.
var errRaced = errors.New("another process has just inserted the same row")

// upsert runs update, and insert if update has changed nothing, and reports whether one of the two
// has changed a row. It is a part of a transaction, which [untilDecided] repeats.
func upsert(ctx context.Context, q querier, d dialect, update, insert write) (bool, error) {
	n, err := changed(ctx, q, update.query, update.args...)
	if err != nil || n > 0 {
		return n > 0, err
	}
	n, err = changed(ctx, q, insert.query, insert.args...)
	if err != nil && d.duplicate(err) {
		return false, errRaced
	}
	return n > 0, err
}

// untilDecided repeats a transaction as long as another process inserts the row that it is about,
// which can happen once: nothing deletes these rows.
func untilDecided(transaction func() error) (err error) {
	for range 3 {
		if err = transaction(); !errors.Is(err, errRaced) {
			return err
		}
	}
	return err
}

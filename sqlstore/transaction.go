package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"time"
)

// transaction is one transaction on the writing connection.
type transaction struct {
	*sql.Tx
	conn   *sql.Conn
	watch  *watch
	driver driver.Driver
	detach func() bool // the caller's context no longer ends the transaction; false if it has ended it
	cancel context.CancelFunc
	turns  *turns
	mark   string // of the dialect's guard, or of its lock; empty: there is none
	moved  bool   // the checkpoint has been moved
	pins   []*pin // what the handler's writes rely on
	// reader is other connections; ended asks one of them whether the handler has ended the
	// transaction, where its own session cannot say. The dialect's lock sets it, or leaves it nil.
	reader   querier
	ended    func(ctx context.Context) (bool, error)
	finished bool
	// rolledBack is called after a rollback; nil: for nothing.
	rolledBack func()
}

// begin waits for the writing connection and for transactions of other processes.
func (s *Store) begin(ctx context.Context) (*transaction, error) {
	conn, err := s.writer.Conn(ctx)
	if err != nil {
		return nil, err
	}
	t := &transaction{conn: conn, turns: s.turns, reader: s.reader, driver: s.writer.Driver()}
	if err := conn.Raw(func(c any) error { t.watch = c.(*watchedConn).watch; return nil }); err != nil {
		conn.Close()
		return nil, err
	}
	// Its own context, because database/sql rolls back when the context of a
	// transaction ends, and the commit must not be interrupted.
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	t.detach, t.cancel = context.AfterFunc(ctx, cancel), cancel
	if err = s.turns.take(ctx); err == nil {
		err = s.beginOn(ctx, conn, inner, t)
	}
	if err != nil {
		t.detach()
		t.cancel()
		conn.Close()
		return nil, err
	}
	return t, nil
}

// beginOn begins a transaction that lasts until inner ends. A server that does not answer in time
// is given up.
func (s *Store) beginOn(ctx context.Context, conn *sql.Conn, inner context.Context, t *transaction) error {
	if s.patience > 0 {
		late := time.AfterFunc(s.patience, t.cancel)
		defer late.Stop()
	}
	err := retryBusy(ctx, s.dialect, s.busy, func() (err error) {
		t.Tx, err = conn.BeginTx(inner, s.dialect.txOptions())
		return err
	})
	if err != nil && inner.Err() != nil && ctx.Err() == nil {
		return fmt.Errorf("no answer within %v", s.patience)
	}
	return err
}

// undone returns the error for a transaction that the server has aborted or rolled back: errUndone,
// or errEnded if that is not the one of the step.
func (t *transaction) undone(ctx context.Context) error {
	ended, err := t.ended(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("check the handler's transaction: %w", err)
	case ended:
		return errEnded
	}
	return errUndone
}

// ran returns the shapes of the statements that the handler ran. One that was checked at the commit
// is among them.
func (t *transaction) ran() []string {
	ran, _, _ := t.watch.statements()
	return ran.Shapes()
}

// end rolls back what was not committed, and returns when the transaction is over. It may be called
// more than once.
func (t *transaction) end() {
	if t.finished {
		return
	}
	t.finished = true
	t.watch.release()
	t.detach()
	if err := t.Rollback(); err == nil && t.rolledBack != nil { // it fails if the transaction is over already
		t.rolledBack()
	}
	t.cancel()
	t.turns.end()
	t.conn.Close() // waits for a rollback that the end of ctx has started
}

// bounded bounds a round trip, or several that belong together, of the store's own.
func (s *Store) bounded(ctx context.Context, do func(context.Context) error) error {
	if s.patience == 0 {
		return do(ctx)
	}
	bounded, cancel := context.WithTimeoutCause(ctx, s.patience, fmt.Errorf("no answer within %v", s.patience))
	defer cancel()
	return do(bounded)
}

// inTransaction runs a transaction without a handler. Its error says what could not be done.
func (s *Store) inTransaction(ctx context.Context, what string, fn func(t *transaction) error) error {
	err := retryBusy(ctx, s.dialect, s.busy, func() error {
		t, err := s.begin(ctx)
		if err != nil {
			return err
		}
		defer t.end()
		if err := fn(t); err != nil {
			return err
		}
		if !t.detach() {
			return ctx.Err()
		}
		return t.Commit()
	})
	if err != nil {
		return s.outage(ctx, what, err)
	}
	return nil
}

// write is a statement that writes, and its arguments.
type write struct {
	query string
	args  []any
}

// upsert runs update, and insert if update has changed nothing, and reports whether one of the two
// has changed a row. If there is a row by the time of the insert, of a process that has just
// inserted it or one that update may not change, update decides again: it sees the row now.
func upsert(ctx context.Context, tx querier, d dialect, update, insert write) (bool, error) {
	for _, w := range []write{update, insert, update} {
		n, err := changed(ctx, tx, w.query, w.args...)
		if n > 0 || err != nil && !d.duplicate(err) {
			return n > 0, err
		}
	}
	return false, nil
}

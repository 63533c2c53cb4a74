package sqlstore

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"sync"
)

// watch observes one physical connection while a handler uses its transaction. It refuses every
// commit, however the handler attempts it; it refuses statements that would run outside the
// transaction after that is over; and it keeps the first failure of the database itself, even if the
// handler drops that error.
//
// It is below database/sql, because that gives the handler rows and statements of its own, whose
// errors only the handler sees.
type watch struct {
	fault func(error) fault

	mu       sync.Mutex
	guarding bool
	ended    bool
	outage   error
}

// guard begins to watch.
func (w *watch) guard() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.guarding, w.ended, w.outage = true, false, nil
}

// release stops watching.
func (w *watch) release() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.guarding = false
}

// state reports whether the transaction is over, and the failure of the database itself.
func (w *watch) state() (ended bool, outage error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ended, w.outage
}

// mayCommit reports whether a commit on the connection is allowed; it is called before each.
func (w *watch) mayCommit() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.guarding
}

// rolledBack is called after every rollback on the connection, including those that the database
// decides on.
func (w *watch) rolledBack() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.guarding {
		w.ended = true
	}
}

// before refuses a statement that would run outside the transaction.
func (w *watch) before() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.guarding && w.ended {
		return errEnded
	}
	return nil
}

// after records the outcome of a statement.
func (w *watch) after(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	f := w.fault(err)
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case !w.guarding:
		return err
	case f == faultVetoed:
		return errEnded
	case f.outage() && w.outage == nil:
		w.outage = err
	}
	return err
}

// fullConn, fullStmt and fullRows are the optional interfaces that the driver implements and that
// database/sql must still find on the wrapped values.
type (
	fullConn interface {
		driver.Conn
		driver.ConnBeginTx
		driver.ConnPrepareContext
		driver.ExecerContext
		driver.QueryerContext
		driver.Pinger
		driver.SessionResetter
		driver.Validator
	}
	fullStmt interface {
		driver.Stmt
		driver.StmtExecContext
		driver.StmtQueryContext
	}
	fullRows interface {
		driver.Rows
		driver.RowsColumnTypeDatabaseTypeName
		driver.RowsColumnTypeLength
		driver.RowsColumnTypeNullable
		driver.RowsColumnTypePrecisionScale
		driver.RowsColumnTypeScanType
	}
)

type watchedConn struct {
	fullConn
	watch *watch
}

func (c *watchedConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if err := c.watch.before(); err != nil {
		return nil, err
	}
	result, err := c.fullConn.ExecContext(ctx, query, args)
	return result, c.watch.after(err)
}

func (c *watchedConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if err := c.watch.before(); err != nil {
		return nil, err
	}
	rows, err := c.fullConn.QueryContext(ctx, query, args)
	return c.watch.rows(rows, err)
}

func (c *watchedConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	stmt, err := c.fullConn.PrepareContext(ctx, query)
	if err != nil {
		return nil, c.watch.after(err)
	}
	return &watchedStmt{stmt.(fullStmt), c.watch}, nil
}

type watchedStmt struct {
	fullStmt
	watch *watch
}

func (s *watchedStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	if err := s.watch.before(); err != nil {
		return nil, err
	}
	result, err := s.fullStmt.ExecContext(ctx, args)
	return result, s.watch.after(err)
}

func (s *watchedStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	if err := s.watch.before(); err != nil {
		return nil, err
	}
	rows, err := s.fullStmt.QueryContext(ctx, args)
	return s.watch.rows(rows, err)
}

type watchedRows struct {
	fullRows
	watch *watch
}

func (w *watch) rows(rows driver.Rows, err error) (driver.Rows, error) {
	if err != nil {
		return nil, w.after(err)
	}
	return &watchedRows{rows.(fullRows), w}, nil
}

func (r *watchedRows) Next(dest []driver.Value) error {
	return r.watch.after(r.fullRows.Next(dest))
}

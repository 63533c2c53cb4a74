package sqlstore

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/sluice-go/sluice/internal/sqlshape"
)

// watch observes one physical connection while a handler uses its transaction. It refuses every
// commit, however the handler attempts it; it refuses statements that would run outside the
// transaction after that is over; and it keeps the first failure of the database itself, even if
// the handler drops that error.
//
// It is below database/sql, because that gives the handler rows and statements of its own, whose
// errors only the handler sees.
type watch struct {
	fault func(error) fault
	// ends reports whether a statement ends a transaction; nil: the database asks mayCommit.
	ends func(query string) bool
	// oneResult: the connection takes no statement while the rows of another are open.
	oneResult bool

	mu       sync.Mutex
	guarding bool
	ended    bool
	outage   error
	open     *watchedRows // if oneResult
	handling bool
	ran      sqlshape.Log // the handler's statements that succeeded
	refused  string       // the last one that failed for a reason that may be every event's; empty: none did
	why      error        // how
}

// guard begins to watch.
func (w *watch) guard() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.guarding, w.ended, w.outage, w.open = true, false, nil, nil
	w.handling, w.ran, w.refused, w.why = true, sqlshape.Log{}, "", nil
}

// handled notes that the handler has returned: the statements that follow are the store's.
func (w *watch) handled() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.handling = false
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

// check refuses a statement that would end the transaction, or run outside it. A deadlock, among
// other failures, has rolled the transaction back: MySQL commits each statement after it by itself.
func (w *watch) check(query string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case !w.guarding:
		return nil
	case w.outage != nil:
		return w.outage
	case w.ended || w.ends != nil && w.ends(query):
		return errEnded
	case w.open != nil:
		return errRowsOpen
	}
	return nil
}

// rowsOpen reports whether the connection takes no statement because rows are open.
func (w *watch) rowsOpen() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.open != nil
}

// record records the outcome of a statement.
func (w *watch) record(err error, text string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.guarding {
		return err
	}
	if err == nil || errors.Is(err, io.EOF) {
		if w.handling {
			w.ran.Note(text)
		}
		return err
	}
	switch f := w.fault(err); {
	case f == faultVetoed:
		return errEnded
	case f.outage() && w.outage == nil:
		w.outage = err
	case f.open() && w.handling:
		w.refused, w.why = text, err
	}
	return err
}

// statements returns the statements that the handler ran, by shape, and the one that was refused,
// and why.
func (w *watch) statements() (ran *sqlshape.Log, refused string, why error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return &w.ran, w.refused, w.why
}

// textKey is the key, in a context, of the text that stands for what the store runs for a handler.
type textKey struct{}

// textOf returns the text under which a statement is recorded.
func textOf(ctx context.Context, query string) string {
	if text, ok := ctx.Value(textKey{}).(string); ok {
		return text
	}
	return query
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
		driver.RowsColumnTypeNullable
		driver.RowsColumnTypePrecisionScale
		driver.RowsColumnTypeScanType
	}
)

type watchedConn struct {
	fullConn
	watch    *watch
	socket   net.Conn // to a server; nil: there is none
	patience time.Duration
}

func (c *watchedConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if err := c.watch.check(query); err != nil {
		return nil, err
	}
	result, err := c.fullConn.ExecContext(ctx, query, args)
	return result, c.watch.record(err, textOf(ctx, query))
}

func (c *watchedConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if err := c.watch.check(query); err != nil {
		return nil, err
	}
	rows, err := c.fullConn.QueryContext(ctx, query, args)
	return c.watch.rows(rows, err, textOf(ctx, query))
}

func (c *watchedConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	if err := c.watch.check(query); err != nil {
		return nil, err
	}
	stmt, err := c.fullConn.PrepareContext(ctx, query)
	text := textOf(ctx, query)
	if err != nil {
		return nil, c.watch.record(err, text)
	}
	return &watchedStmt{stmt.(fullStmt), c.watch, text}, nil
}

// BeginTx begins a transaction, whose end is bounded: it has no context.
func (c *watchedConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	tx, err := c.fullConn.BeginTx(ctx, opts)
	if err != nil || c.socket == nil {
		return tx, err
	}
	return &boundedTx{tx, c.socket, c.patience}, nil
}

// Close closes the connection. That a server cannot be notified any more is no error.
func (c *watchedConn) Close() error {
	err := c.fullConn.Close()
	if c.socket != nil {
		return nil
	}
	return err
}

// CheckNamedValue leaves it to the driver, if it wants to, how a Go value becomes an argument.
func (c *watchedConn) CheckNamedValue(v *driver.NamedValue) error {
	if checker, ok := c.fullConn.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

// boundedTx ends within a time, also if the server is silent: then the connection is broken.
type boundedTx struct {
	driver.Tx
	socket   net.Conn
	patience time.Duration
}

func (t *boundedTx) Commit() error   { return t.bounded(t.Tx.Commit) }
func (t *boundedTx) Rollback() error { return t.bounded(t.Tx.Rollback) }

func (t *boundedTx) bounded(end func() error) error {
	if err := t.socket.SetDeadline(time.Now().Add(t.patience)); err != nil {
		return driver.ErrBadConn
	}
	err := end()
	if reset := t.socket.SetDeadline(time.Time{}); err == nil {
		return reset
	}
	return err // which has ended the socket, or is the server's answer
}

type watchedStmt struct {
	fullStmt
	watch *watch
	text  string
}

func (s *watchedStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	if err := s.watch.check(""); err != nil {
		return nil, err
	}
	result, err := s.fullStmt.ExecContext(ctx, args)
	return result, s.watch.record(err, s.text)
}

func (s *watchedStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	if err := s.watch.check(""); err != nil {
		return nil, err
	}
	rows, err := s.fullStmt.QueryContext(ctx, args)
	return s.watch.rows(rows, err, s.text)
}

// CheckNamedValue is as that of the connection.
func (s *watchedStmt) CheckNamedValue(v *driver.NamedValue) error {
	if checker, ok := s.fullStmt.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

type watchedRows struct {
	fullRows
	watch  *watch
	text   string
	failed bool
}

func (w *watch) rows(rows driver.Rows, err error, text string) (driver.Rows, error) {
	if err != nil {
		return nil, w.record(err, text)
	}
	watched := &watchedRows{fullRows: rows.(fullRows), watch: w, text: text}
	if w.oneResult {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.open = watched
	}
	return watched, nil
}

// Close closes the rows.
func (r *watchedRows) Close() error {
	err := r.fullRows.Close()
	if !r.failed {
		_ = r.watch.record(nil, r.text)
	}
	r.watch.mu.Lock()
	defer r.watch.mu.Unlock()
	if r.watch.open == r {
		r.watch.open = nil
	}
	return err
}

// ColumnTypeLength returns no length if the driver knows none.
func (r *watchedRows) ColumnTypeLength(column int) (length int64, ok bool) {
	if rows, has := r.fullRows.(driver.RowsColumnTypeLength); has {
		return rows.ColumnTypeLength(column)
	}
	return 0, false
}

// HasNextResultSet is false if the driver has one result set a statement.
func (r *watchedRows) HasNextResultSet() bool {
	rows, has := r.fullRows.(driver.RowsNextResultSet)
	return has && rows.HasNextResultSet()
}

// NextResultSet goes to the next result set of a statement that has several.
func (r *watchedRows) NextResultSet() error {
	rows, has := r.fullRows.(driver.RowsNextResultSet)
	if !has {
		return io.EOF
	}
	return r.record(rows.NextResultSet())
}

func (r *watchedRows) Next(dest []driver.Value) error {
	return r.record(r.fullRows.Next(dest))
}

func (r *watchedRows) record(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	r.failed = true
	return r.watch.record(err, r.text)
}

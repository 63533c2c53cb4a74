package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// A handle is a [*sql.DB] of the program, which a store shares with it: [NewPostgres] and so on.
// The store's own pools are above it: each of their connections is one that was borrowed from the
// handle for a single use, and that uses nothing but the methods of [*sql.Conn]. So it does not
// matter which driver, or wrapper of a driver, is below.

// handleConnector borrows connections from a handle.
type handleConnector struct {
	db       *sql.DB
	kind     handleKind
	fault    func(error) fault // of the dialect
	patience time.Duration
}

// handleKind is what borrowed connections to a kind of database need.
type handleKind interface {
	// wrap completes a borrowed connection.
	wrap(c *handleConn) fullConn
	// begin begins a transaction with its limits. If only a part of it was done, the connection is
	// broken.
	begin(ctx context.Context, c *handleConn) error
	// end ends a transaction by COMMIT or ROLLBACK. Without an error it has ended so.
	end(ctx context.Context, c *handleConn, how string) error
	// restore gives the session back as it was.
	restore(ctx context.Context, c *handleConn) error
	// failure makes an error of the driver one that the dialect knows.
	failure(err error) error
}

// least is how many connections a handle to a server must allow: one for a handler, one for its
// leases, and one that reads beside it.
const least = 3

// roomOf returns how many steps a handle to a server has connections for, at most so many, and an
// error if it has too few. Its limit may change later.
func roomOf(db *sql.DB, most int) (int, error) {
	limit := db.Stats().MaxOpenConnections
	switch {
	case limit == 0:
		return most, nil
	case limit < least:
		return 0, fmt.Errorf("the *sql.DB allows %d connections, and the store needs %d, because it renews leases while a handler runs: raise SetMaxOpenConns", limit, least)
	}
	return min(most, limit-least+1), nil
}

// ofHandle stands in errors for the name of a database that has not yet said it.
const ofHandle = "of the *sql.DB"

// checkHandle refuses a nil handle.
func checkHandle(db *sql.DB) error {
	if db == nil {
		return errors.New("the *sql.DB is nil: check the error of sql.Open")
	}
	return nil
}

// unlike is the error of a handle's first answer, which says whether it is of the right kind.
func (h *handleConnector) unlike(want string, err error) error {
	return fmt.Errorf("%w: its driver is %T: this store needs %s, which may be wrapped", err, h.db.Driver(), want)
}

// Driver implements [driver.Connector].
func (h *handleConnector) Driver() driver.Driver { return h.db.Driver() }

// Connect borrows a connection, for which it waits while all are in use.
func (h *handleConnector) Connect(ctx context.Context) (driver.Conn, error) {
	c := &handleConn{handle: h}
	if err := c.borrow(ctx); err != nil {
		return nil, err
	}
	c.self = h.kind.wrap(c)
	return c.self, nil
}

// handleConn is a borrowed connection.
type handleConn struct {
	handle        *handleConnector
	self          fullConn // of the handle's kind
	conn          *sql.Conn
	used          bool // a statement has been answered
	inTransaction bool // a transaction that BeginTx has begun
	broken        bool // it must not be used again
	// changed: begin has set something in the session.
	changed bool
	// done is closed when a call that was given up has ended; nil: none was.
	done   chan struct{}
	failed *pgconn.PgError // the last one in the transaction
	tx     *sql.Tx         // that of begin; nil: it sends a text
}

func (c *handleConn) borrow(ctx context.Context) (err error) {
	c.broken = false
	c.conn, err = call(ctx, c, func() (*sql.Conn, error) { return c.handle.db.Conn(ctx) })
	c.used, c.changed = false, false
	if s := c.handle.db.Stats(); err != nil && ctx.Err() != nil && s.MaxOpenConnections > 0 && s.InUse >= s.MaxOpenConnections {
		return fmt.Errorf("%w: all %d connections of the *sql.DB are in use: raise SetMaxOpenConns, or close rows and transactions sooner", ctx.Err(), s.MaxOpenConnections)
	}
	return err
}

// giveUpAfter is how long a driver may take to notice the end of a context.
const giveUpAfter = 2 * time.Second

// errGivenUp is the error of a connection whose driver did not return in time.
var errGivenUp = errors.New("the connection was given up: its driver did not return after the context's end")

// errConnLost is the error of a connection that was lost, whatever the driver says about what was
// sent.
var errConnLost = fmt.Errorf("the connection to the database was lost: %w", sql.ErrConnDone)

// call runs a call of the handle's driver, which may ignore the end of its context: then the call
// and the connection are given up. The outcome of a COMMIT that is given up is unknown.
func call[T any](ctx context.Context, c *handleConn, do func() (T, error)) (T, error) {
	type result struct {
		value    T
		err      error
		panicked any
	}
	var none T
	switch {
	case c.done != nil:
		return none, errGivenUp
	case c.broken:
		return none, sql.ErrConnDone
	}
	results, over := make(chan result, 1), make(chan struct{})
	go func() {
		defer close(over)
		var r result
		defer func() { results <- r }()
		defer func() { r.panicked = recover() }() // of a driver.Valuer, which is the handler's
		r.value, r.err = do()
	}()
	var r result
	select {
	case r = <-results:
	case <-ctx.Done():
		late := time.NewTimer(giveUpAfter)
		defer late.Stop()
		select {
		case r = <-results:
		case <-late.C:
			c.done = over
			return none, fmt.Errorf("%w: %w", ctx.Err(), errGivenUp)
		}
	}
	if r.panicked != nil {
		panic(r.panicked)
	}
	if r.err != nil {
		return r.value, c.failure(r.err)
	}
	c.used = true
	return r.value, nil
}

// failure notes an error and returns it as the dialect knows it. database/sql must not repeat a
// statement for it, because a driver may be wrong about whether it was sent.
func (c *handleConn) failure(err error) error {
	if errors.Is(err, driver.ErrBadConn) {
		c.broken = true
		return errConnLost
	}
	err = c.handle.kind.failure(err)
	if e, ok := errors.AsType[*pgconn.PgError](err); ok && e.Code != postgresAborted {
		c.failed = e
	}
	return err
}

// exec runs a statement of the store's without arguments.
func (c *handleConn) exec(ctx context.Context, query string) error {
	_, err := call(ctx, c, func() (sql.Result, error) { return c.conn.ExecContext(ctx, query) })
	return err
}

// ExecContext implements [driver.ExecerContext].
func (c *handleConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	return call(ctx, c, func() (driver.Result, error) { return c.conn.ExecContext(ctx, query, arguments(args)...) })
}

// QueryContext implements [driver.QueryerContext].
func (c *handleConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	rows, err := call(ctx, c, func() (driver.Rows, error) {
		return nestedRowsOf(c.conn.QueryContext(ctx, query, arguments(args)...))
	})
	if err != nil {
		return nil, err
	}
	return &handleRows{rows.(*nestedRows), c}, nil
}

// PrepareContext prepares nothing: a statement of the handle's would outlive the transaction.
func (c *handleConn) PrepareContext(_ context.Context, query string) (driver.Stmt, error) {
	return &textStmt{c.self, query}, nil
}

// BeginTx begins a transaction. A connection that the server has ended while it was idle, which the
// first statement shows, is replaced.
func (c *handleConn) BeginTx(ctx context.Context, _ driver.TxOptions) (driver.Tx, error) {
	c.failed = nil
	for stale := 2 + c.handle.db.Stats().OpenConnections; ; stale-- {
		err := c.handle.kind.begin(ctx, c)
		if err == nil {
			c.inTransaction = true
			return handleTx{c}, nil
		}
		if c.used || stale == 0 || ctx.Err() != nil || c.handle.fault(err) != faultBroken {
			return nil, err
		}
		c.broken = true
		c.giveBack()
		if err := c.borrow(ctx); err != nil {
			c.broken = true
			return nil, err
		}
	}
}

// handleTx ends within a time, also if the server is silent.
type handleTx struct{ conn *handleConn }

func (t handleTx) Commit() error   { return t.end("COMMIT") }
func (t handleTx) Rollback() error { return t.end("ROLLBACK") }

// end ends the transaction. One that may not have ended ends with its connection.
func (t handleTx) end(how string) error {
	c := t.conn
	ctx, cancel := context.WithTimeout(context.Background(), c.handle.patience)
	defer cancel()
	c.inTransaction = false
	err := c.handle.kind.end(ctx, c, how)
	if err == nil {
		return nil
	}
	if how == "ROLLBACK" || c.tx != nil || c.handle.kind.end(ctx, c, "ROLLBACK") != nil {
		c.broken = true
	}
	return err
}

// Begin implements [driver.Conn].
func (*handleConn) Begin() (driver.Tx, error) { return nil, errNoContext }

// Prepare implements [driver.Conn].
func (*handleConn) Prepare(string) (driver.Stmt, error) { return nil, errNoContext }

// Ping implements [driver.Pinger].
func (c *handleConn) Ping(ctx context.Context) error {
	_, err := call(ctx, c, func() (struct{}, error) { return struct{}{}, c.conn.PingContext(ctx) })
	return err
}

// ResetSession implements [driver.SessionResetter]: the handle resets it.
func (*handleConn) ResetSession(context.Context) error { return nil }

// IsValid implements [driver.Validator].
func (c *handleConn) IsValid() bool { return !c.broken && c.done == nil }

// CheckNamedValue leaves it to the handle's driver how a Go value becomes an argument.
func (*handleConn) CheckNamedValue(*driver.NamedValue) error { return nil }

// Close gives the connection back to the handle, or has the handle close it.
func (c *handleConn) Close() error {
	if c.inTransaction && c.IsValid() {
		_ = handleTx{c}.end("ROLLBACK") // else it is broken
	}
	if c.IsValid() {
		ctx, cancel := context.WithTimeout(context.Background(), c.handle.patience)
		defer cancel()
		c.broken = c.handle.kind.restore(ctx, c) != nil
	}
	c.giveBack()
	return nil
}

// giveBack gives the connection back, or has the handle close it.
func (c *handleConn) giveBack() {
	if c.IsValid() {
		_ = c.conn.Close()
		return
	}
	conn := c.conn
	discard := func() {
		_ = conn.Raw(func(any) error { return driver.ErrBadConn })
		_ = conn.Close()
	}
	if c.done == nil {
		discard()
		return
	}
	over := c.done
	go func() { // it holds a connection of the handle until its driver returns
		<-over
		discard()
	}()
}

// handleRows are rows of a borrowed connection.
type handleRows struct {
	*nestedRows
	conn *handleConn
}

// Next implements [driver.Rows].
func (r *handleRows) Next(dest []driver.Value) error {
	err := r.nestedRows.Next(dest)
	if err == nil || err == io.EOF {
		return err
	}
	return r.conn.failure(err)
}

// Close implements [driver.Rows].
func (r *handleRows) Close() error {
	if err := r.nestedRows.Close(); err != nil {
		return r.conn.failure(err)
	}
	return nil
}

// newHandle makes a store over a handle to a server.
func newHandle(ctx context.Context, name string, h *handleConnector, d dialect, c ServerConfig) (*Store, error) {
	steps, err := roomOf(h.db, c.MaxConns)
	if err != nil {
		return nil, fmt.Errorf("database %s: %w", name, err)
	}
	pool := func(conns int) *sql.DB {
		db := sql.OpenDB(&watchedConnector{Connector: h, dialect: d, patience: c.patience()})
		db.SetMaxOpenConns(conns)
		db.SetMaxIdleConns(-1) // a connection returns to the handle after each use
		return db
	}
	c.MaxConns = steps
	s, err := prepareServer(ctx, name, pool, d, c)
	if err != nil {
		return nil, err
	}
	s.shared = h.db
	return s, nil
}

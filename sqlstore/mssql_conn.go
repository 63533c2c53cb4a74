package sqlstore

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"time"

	mssql "github.com/microsoft/go-mssqldb"
	"github.com/microsoft/go-mssqldb/msdsn"
)

// mssqlConnector opens connections of go-mssqldb as this package needs them.
type mssqlConnector struct {
	*mssql.Connector
	patience time.Duration
}

func newMSSQLConnector(params msdsn.Config, c ServerConfig) (*mssqlConnector, error) {
	connector := mssql.NewConnectorConfig(params)
	if c.AccessToken != nil {
		var err error
		if connector, err = mssql.NewSecurityTokenConnector(params, c.AccessToken); err != nil {
			return nil, err
		}
	}
	// The server resets these with the session.
	connector.SessionInitSQL = mssqlSession(c)
	connector.Dialer = mssqlDialer{&c}
	return &mssqlConnector{connector, c.patience()}, nil
}

// mssqlSession sets what a step needs of its session.
func mssqlSession(c ServerConfig) string {
	return fmt.Sprintf("SET LOCK_TIMEOUT %d; SET XACT_ABORT OFF; SET IMPLICIT_TRANSACTIONS OFF", c.LockTimeout.Milliseconds())
}

// Connect opens a connection. The driver's login waits without the context: a deadline of the
// socket ends it.
func (c *mssqlConnector) Connect(ctx context.Context) (driver.Conn, error) {
	login := &mssqlLogin{ctx: ctx}
	conn, err := c.Connector.Connect(context.WithValue(ctx, mssqlLoginKey{}, login))
	if !login.lasted() {
		if err == nil {
			conn.Close()
		}
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, err
	}
	return &mssqlConn{Conn: conn.(*mssql.Conn), socket: login.socket, patience: c.patience}, nil
}

// mssqlLoginKey is the key of the context's value with a *mssqlLogin.
type mssqlLoginKey struct{}

// mssqlLogin is a login in progress.
type mssqlLogin struct {
	ctx    context.Context
	socket net.Conn
	stop   func() bool
}

// lasted reports whether the context lasted until the end of the login. It does not end the socket
// any more.
func (l *mssqlLogin) lasted() bool { return l.stop == nil || l.stop() }

// mssqlDialer resolves names too: the driver would do so without the context, and dial all
// addresses at once.
type mssqlDialer struct{ cfg *ServerConfig }

// HostName makes the driver leave names to the dialer.
func (mssqlDialer) HostName() string { return "" }

// DialContext opens the socket of a login. A server that redirects has one dialled after the other.
func (d mssqlDialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := d.cfg.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	login := ctx.Value(mssqlLoginKey{}).(*mssqlLogin)
	if login.stop != nil {
		login.stop()
	}
	login.socket = conn
	login.stop = context.AfterFunc(login.ctx, func() { conn.SetDeadline(time.Now()) })
	return conn, nil
}

// mssqlConn runs statements without preparing them first; the driver prepares on the client alone.
type mssqlConn struct {
	*mssql.Conn
	socket   net.Conn
	patience time.Duration
	broken   bool
}

// cancelWithin is how long the server may take to confirm that it has cancelled a statement.
const cancelWithin = 2 * time.Second

// bounded has a statement end soon after its context, also if the server is silent. The driver
// waits 5 s and longer.
func (c *mssqlConn) bounded(ctx context.Context) (over func()) {
	late := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(late)
		c.socket.SetDeadline(time.Now().Add(cancelWithin))
	})
	return func() {
		if !stop() {
			<-late
			c.socket.SetDeadline(time.Time{})
		}
	}
}

// failure returns the error of a statement: that the server did not confirm the end of one whose
// context had ended says less than that end.
func (c *mssqlConn) failure(ctx context.Context, err error) error {
	ended := ctx.Err()
	if answered := (mssql.Error{}); err == nil || ended == nil || errors.As(err, &answered) {
		return mssqlErrorOf(err)
	}
	if cause := context.Cause(ctx); cause != ended {
		return fmt.Errorf("%w: %v", ended, cause)
	}
	return ended
}

// ExecContext implements [driver.ExecerContext].
func (c *mssqlConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if len(args) == 1 {
		if bulk, ok := args[0].Value.(mssqlBulk); ok {
			return c.copy(ctx, bulk)
		}
	}
	stmt, err := c.prepare(ctx, query)
	if err != nil {
		return nil, err
	}
	return stmt.ExecContext(ctx, args)
}

// QueryContext implements [driver.QueryerContext].
func (c *mssqlConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	stmt, err := c.prepare(ctx, query)
	if err != nil {
		return nil, err
	}
	return stmt.QueryContext(ctx, args)
}

// PrepareContext prepares a statement, which keeps nothing on the server.
func (c *mssqlConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	return c.prepare(ctx, query)
}

func (c *mssqlConn) prepare(ctx context.Context, query string) (*mssqlStmt, error) {
	stmt, err := c.Conn.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	plain, ok := stmt.(*mssql.Stmt)
	if !ok {
		return nil, errors.New("mssql.CopyIn: not in a handler: write many rows with Tx.Insert")
	}
	return &mssqlStmt{plain, c}, nil
}

// ResetSession begins another use of the connection, within a time. It takes a round trip for the
// session's settings, and is needed after each use: the server may not have rolled back yet what
// was cut off.
func (c *mssqlConn) ResetSession(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.patience)
	defer cancel()
	defer c.bounded(ctx)()
	return c.Conn.ResetSession(ctx)
}

type mssqlStmt struct {
	*mssql.Stmt
	conn *mssqlConn
}

// ExecContext implements [driver.StmtExecContext].
func (s *mssqlStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	defer s.conn.bounded(ctx)()
	result, err := s.Stmt.ExecContext(ctx, args)
	return result, s.conn.failure(ctx, err)
}

// QueryContext implements [driver.StmtQueryContext].
func (s *mssqlStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	defer s.conn.bounded(ctx)()
	rows, err := s.Stmt.QueryContext(ctx, args)
	if err != nil {
		return nil, s.conn.failure(ctx, err)
	}
	plain, ok := rows.(*mssql.Rows)
	if !ok {
		return nil, errors.Join(errors.New("sqlexp.ReturnMessage: not in a handler: use rows"), rows.Close())
	}
	return &mssqlRows{plain}, nil
}

// CheckNamedValue has the driver convert an argument, which may have one of its own types.
func (s *mssqlStmt) CheckNamedValue(v *driver.NamedValue) error { return s.conn.CheckNamedValue(v) }

type mssqlRows struct{ *mssql.Rows }

// Next implements [driver.Rows].
func (r *mssqlRows) Next(dest []driver.Value) error { return mssqlErrorOf(r.Rows.Next(dest)) }

// Close implements [driver.Rows].
func (r *mssqlRows) Close() error { return mssqlErrorOf(r.Rows.Close()) }

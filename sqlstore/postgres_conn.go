package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/sluice-go/sluice/internal/postgres"
)

// postgresConnector opens connections of pgx as this package needs them.
type postgresConnector struct {
	config        *pgx.ConnConfig
	beforeConnect func(context.Context, *pgx.ConnConfig) error // nil: nothing
	limits        string                                       // of a transaction, as statements
	patience      time.Duration
}

// postgresDefaults are the settings of sessions, which single statements need. Transactions have
// them all the same where a pooler refuses them.
func postgresDefaults(c ServerConfig) map[string]string {
	return map[string]string{
		"default_transaction_isolation":       "read committed",
		"default_transaction_read_only":       "off",
		"lock_timeout":                        fmt.Sprint(c.LockTimeout.Milliseconds()),
		"idle_in_transaction_session_timeout": fmt.Sprint(c.LeaseFor.Milliseconds()),
	}
}

func newPostgresConnector(pc *pgxpool.Config, c ServerConfig) *postgresConnector {
	params, limits := pc.ConnConfig.RuntimeParams, ""
	for _, name := range []string{"lock_timeout", "idle_in_transaction_session_timeout"} {
		if _, set := params[name]; !set {
			limits += "; SET LOCAL " + name + " = " + postgresDefaults(c)[name]
		}
	}
	setDefaults(params, postgresDefaults(c))
	params["default_transaction_isolation"], params["default_transaction_read_only"] = "read committed", "off"
	return &postgresConnector{pc.ConnConfig, pc.BeforeConnect, limits, c.patience()}
}

// adaptToPooler leaves out what a pooler refuses.
func (c *postgresConnector) adaptToPooler() {
	postgres.AdaptToPooler(c.config)
	for name := range postgresDefaults(ServerConfig{}) {
		delete(c.config.RuntimeParams, name)
	}
}

// prepare makes the database ready and returns the schema of the tables.
func (c *postgresConnector) prepare(ctx context.Context, schema string, noMigrate bool) (string, error) {
	bounded, cancel := context.WithTimeout(ctx, c.patience)
	defer cancel()
	conn, err := c.Connect(bounded)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	return postgres.Prepare(bounded, conn.(*postgresConn).pgx(), schema, noMigrate)
}

// Connect opens a connection.
func (c *postgresConnector) Connect(ctx context.Context) (driver.Conn, error) {
	config := c.config.Copy()
	if c.beforeConnect != nil {
		if err := c.beforeConnect(ctx, config); err != nil {
			return nil, err
		}
	}
	conn, err := stdlib.GetConnector(*config).Connect(ctx)
	if failed := (*pgconn.ConnectError)(nil); errors.As(err, &failed) {
		return nil, postgres.ConnectError(failed)
	}
	if err != nil {
		return nil, err
	}
	return &postgresConn{Conn: conn.(*stdlib.Conn), limits: c.limits, patience: c.patience}, nil
}

// Driver implements [driver.Connector].
func (*postgresConnector) Driver() driver.Driver { return stdlib.GetDefaultDriver() }

// postgresConn also copies rows, keeps nothing prepared on the server but what pgx keeps, and
// records why a transaction was aborted.
type postgresConn struct {
	*stdlib.Conn
	limits        string
	patience      time.Duration
	inTransaction bool            // a transaction that BeginTx has begun
	failed        *pgconn.PgError // its last error, without those that follow from it
}

func (c *postgresConn) pgx() *pgx.Conn { return c.Conn.Conn() }

// state is that of the transaction, and the error that has aborted it.
func (c *postgresConn) state() (status byte, failed *pgconn.PgError) {
	return c.pgx().PgConn().TxStatus(), c.failed
}

// ending implements [postgresSession].
func (c *postgresConn) ending(query string) bool {
	return postgres.Ending(c.pgx().PgConn(), query) != ""
}

// ready refuses statements where the driver knows that the server has ended the transaction: they
// would be committed by themselves.
func (c *postgresConn) ready() error {
	switch {
	case !c.IsValid():
		return driver.ErrBadConn
	case c.inTransaction && c.pgx().PgConn().TxStatus() == 'I':
		return errEnded
	}
	return nil
}

// note records an error and returns it.
func (c *postgresConn) note(err error) error {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok && e.Code != postgresAborted {
		c.failed = e
	}
	return err
}

// Close closes the connection. That a server cannot be notified any more is no error.
func (c *postgresConn) Close() error {
	c.Conn.Close()
	return nil
}

// IsValid implements [driver.Validator].
func (c *postgresConn) IsValid() bool { return !c.pgx().IsClosed() }

// ResetSession begins another use of the connection, within a time.
func (c *postgresConn) ResetSession(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.patience)
	defer cancel()
	return c.Conn.ResetSession(ctx)
}

// ExecContext implements [driver.ExecerContext].
func (c *postgresConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if err := c.ready(); err != nil {
		return nil, err
	}
	if len(args) == 1 {
		if native, ok := args[0].Value.(postgresNative); ok {
			result, err := native.run(ctx, c.pgx())
			return result, c.note(err)
		}
	}
	values := make([]any, len(args))
	for i := range args {
		values[i] = args[i].Value
	}
	tag, err := c.pgx().Exec(ctx, query, values...)
	return driver.RowsAffected(tag.RowsAffected()), c.note(err)
}

// errLost is the error for a connection that was lost in a statement. pgx may say of it that
// nothing was sent ([pgconn.SafeToRetry]), which is true only if the connection was closed before:
// stdlib would have database/sql repeat a statement that was carried out.
var errLost = errors.New("the connection to PostgreSQL was lost")

// QueryContext implements [driver.QueryerContext].
func (c *postgresConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if err := c.ready(); err != nil {
		return nil, err
	}
	rows, err := c.Conn.QueryContext(ctx, query, args)
	switch {
	case errors.Is(err, driver.ErrBadConn) && ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, driver.ErrBadConn):
		return nil, errLost
	case err != nil:
		return nil, c.note(err)
	}
	return &postgresRows{rows.(*stdlib.Rows), c}, nil
}

// PrepareContext prepares nothing: pgx prepares a statement when it is used for the first time, and
// a pooler may give the connection to others after the transaction.
func (c *postgresConn) PrepareContext(_ context.Context, query string) (driver.Stmt, error) {
	return &textStmt{c, query}, nil
}

var postgresLevels = map[sql.IsolationLevel]string{
	sql.LevelDefault: "READ COMMITTED", sql.LevelReadCommitted: "READ COMMITTED",
	sql.LevelRepeatableRead: "REPEATABLE READ", sql.LevelSnapshot: "REPEATABLE READ", sql.LevelSerializable: "SERIALIZABLE",
}

// BeginTx begins a transaction with its limits, in one round trip. Nothing in it depends on the
// session.
func (c *postgresConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	level, ok := postgresLevels[sql.IsolationLevel(opts.Isolation)]
	switch {
	case !ok:
		return nil, fmt.Errorf("isolation level %v: PostgreSQL has none of that name", sql.IsolationLevel(opts.Isolation))
	case !c.IsValid():
		return nil, driver.ErrBadConn
	}
	access := "READ WRITE"
	if opts.ReadOnly {
		access = "READ ONLY"
	}
	c.failed = nil
	if _, err := c.pgx().Exec(ctx, "BEGIN ISOLATION LEVEL "+level+" "+access+c.limits); err != nil {
		c.Close()
		return nil, err
	}
	c.inTransaction = true
	return &postgresTx{c}, nil
}

// postgresTx ends within a time, also if the server is silent: then the connection is closed.
type postgresTx struct{ conn *postgresConn }

func (t *postgresTx) Commit() error   { return t.end("COMMIT") }
func (t *postgresTx) Rollback() error { return t.end("ROLLBACK") }

func (t *postgresTx) end(how string) error {
	ctx, cancel := context.WithTimeout(context.Background(), t.conn.patience)
	defer cancel()
	conn := t.conn.pgx()
	if conn.IsClosed() {
		return errRolledBack
	}
	tag, err := conn.Exec(ctx, how)
	t.conn.inTransaction = false
	switch {
	case err != nil && conn.PgConn().TxStatus() != 'I':
		conn.Close(ctx)
	case err == nil && tag.String() != how:
		return errRolledBack
	}
	return err
}

// textConn runs statements as texts.
type textConn interface {
	driver.ExecerContext
	driver.QueryerContext
}

// textStmt is a statement that is sent as a text with each use.
type textStmt struct {
	conn  textConn
	query string
}

func (s *textStmt) Close() error  { return nil }
func (s *textStmt) NumInput() int { return -1 }

func (s *textStmt) Exec([]driver.Value) (driver.Result, error) { return nil, errNoContext }
func (s *textStmt) Query([]driver.Value) (driver.Rows, error)  { return nil, errNoContext }

// errNoContext is the error of methods that database/sql does not call.
var errNoContext = errors.New("statement without a context")

// ExecContext implements [driver.StmtExecContext].
func (s *textStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	return s.conn.ExecContext(ctx, s.query, args)
}

// QueryContext implements [driver.StmtQueryContext].
func (s *textStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return s.conn.QueryContext(ctx, s.query, args)
}

// CheckNamedValue leaves it to the connection how a Go value becomes an argument.
func (s *textStmt) CheckNamedValue(*driver.NamedValue) error { return nil }

type postgresRows struct {
	*stdlib.Rows
	conn *postgresConn
}

// Next implements [driver.Rows].
func (r *postgresRows) Next(dest []driver.Value) error { return r.conn.note(r.Rows.Next(dest)) }

// Close implements [driver.Rows].
func (r *postgresRows) Close() error { return r.conn.note(r.Rows.Close()) }

// ColumnTypeNullable does not know.
func (*postgresRows) ColumnTypeNullable(int) (nullable, ok bool) { return false, false }

package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"math"
	"net"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sluice-go/sluice/internal/postgres"
	"github.com/sluice-go/sluice/internal/tables"
)

// OpenPostgres opens the database at url in a server of PostgreSQL 13 or later, and brings its tables
// up to date. They are those of package pgstore, so that a group may change from one to the other, and
// processes with either may divide its partitions: pgstore is for handlers that use pgx, OpenPostgres for
// those that use database/sql. url is as postgres://user:password@host:5432/database, or keywords and
// values as libpq takes them. The context is for opening only. Errors never contain the password. A nil
// cfg takes every default.
//
// A handler writes parameters as $1, $2 and so on, and must close the rows of a query before its
// next statement. [Tx.Insert] uses COPY. Its transaction is READ COMMITTED; use SET LOCAL for
// settings: a plain SET stays with the connection. Statements that end the transaction are refused.
//
// A Claim ends the session of a paused owner that holds the checkpoint (pg_terminate_backend, which a
// role may do to its own sessions), after half of [ServerConfig.LockTimeout]. It ends no session of another
// user, which may be no consumer: it waits for the whole of it, and returns an error that names that
// session. The server itself ends sessions that idle in a transaction for longer than
// [ServerConfig.LeaseFor].
//
// A pooler in transaction mode may be between store and server. If it refuses startup parameters,
// as PgBouncer does, the role's defaults must be transactions that are READ COMMITTED and may
// write.
func OpenPostgres(ctx context.Context, url string, cfg *ServerConfig) (*Store, error) {
	c, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	pc, err := postgres.Parse(url, postgres.Settings{LeaseFor: c.LeaseFor, RequestTimeout: c.patience(), Password: c.AccessToken})
	if err != nil {
		return nil, err
	}
	connector := newPostgresConnector(pc, c)
	schema, err := connector.prepare(ctx, c.Schema, c.NoMigrate)
	if postgres.RefusedParameter(err) {
		connector.adaptToPooler()
		schema, err = connector.prepare(ctx, c.Schema, c.NoMigrate)
	}
	if err != nil {
		return nil, err
	}
	cc := pc.ConnConfig
	name := cc.Database + " on " + net.JoinHostPort(cc.Host, strconv.Itoa(int(cc.Port)))
	return openServer(ctx, name, connector, newPostgresDialect(schema), c)
}

// postgresDialect names the tables with their schema, so that nothing depends on the search_path,
// which handlers may change.
type postgresDialect struct {
	schema string // quoted, with its dot
	sql    *statements
	plain  bool // the connections are not known to be pgx's
}

// postgresSession is a connection to PostgreSQL.
type postgresSession interface {
	// state is that of the transaction ('I': none, 'T', 'E': aborted, 0: not known), and the error
	// that has aborted it.
	state() (status byte, failed *pgconn.PgError)
	// ending reports whether a statement ends the transaction.
	ending(query string) bool
}

func (d *postgresDialect) statements() *statements { return d.sql }

func (*postgresDialect) inserting(context.Context, querier, string) (string, bool, error) {
	return "INSERT", true, nil
}

func (*postgresDialect) savepoint(name string) savepoint { return standardSavepoint(name) }

// steps are none: the migrations are those of package postgres.
func (*postgresDialect) steps(string) []step         { return nil }
func (*postgresDialect) script(text string) []string { return []string{text} }
func (*postgresDialect) variables() int              { return math.MaxUint16 }
func (*postgresDialect) chunk() int                  { return 1000 }
func (*postgresDialect) quote(name string) string    { return pgx.Identifier{clean(name)}.Sanitize() }
func (*postgresDialect) time(t time.Time) any        { return storable(t) }
func (*postgresDialect) ends(conn driver.Conn, query string) bool {
	return conn.(postgresSession).ending(query)
}

func (*postgresDialect) catalog() *tables.Catalog                    { return nil } // COPY checks the columns itself
func (*postgresDialect) kept(context.Context, querier) (bool, error) { return false, nil }

func (*postgresDialect) first(cond string) string {
	return "id IN (SELECT id FROM sluice_dead_letters WHERE " + cond + " ORDER BY id LIMIT ?)"
}

// txOptions: at higher levels the fence would fail where it waits for a row at READ COMMITTED.
func (*postgresDialect) txOptions() *sql.TxOptions {
	return &sql.TxOptions{Isolation: sql.LevelReadCommitted}
}

// guard has nothing to do: lock has made the mark.
func (*postgresDialect) guard(context.Context, *transaction) error { return nil }

// lock keeps the transaction's number.
func (d *postgresDialect) lock(ctx context.Context, t *transaction, args []any) (bool, error) {
	t.ended = func(ctx context.Context) (bool, error) {
		var aborted bool
		found, err := one(ctx, t.reader, `SELECT coalesce(pg_xact_status(CAST(CAST($1 AS text) AS xid8)) = 'aborted', false)`, []any{t.mark}, &aborted)
		return found && !aborted, err
	}
	return one(ctx, t, d.sql.Lock, args, &t.mark)
}

// intact asks the server only if the driver knows of no end. In a transaction that an error has
// aborted, that error decides whether the database or the handler is at fault.
func (*postgresDialect) intact(ctx context.Context, t *transaction) error {
	var status byte
	var failed *pgconn.PgError
	err := t.conn.Raw(func(c any) error {
		status, failed = c.(*watchedConn).fullConn.(postgresSession).state()
		return nil
	})
	var current string
	if err == nil && status != 'I' && status != 'E' {
		_, err = one(ctx, t, `SELECT CAST(pg_current_xact_id() AS text)`, nil, &current)
		if e, ok := errors.AsType[*pgconn.PgError](err); ok && status == 0 && e.Code == postgresAborted {
			status, err = 'E', nil
		}
	}
	switch {
	case err != nil:
		return err
	case status == 'I':
		return errEnded
	case status == 'E' && failed != nil && postgres.OutageIn(failed) != nil:
		return failed
	case status == 'E':
		return t.undone(ctx)
	}
	if current != t.mark {
		return errEnded
	}
	return nil
}

// errRolledBack is the error for a COMMIT that the server answered with ROLLBACK.
var errRolledBack = errors.New("PostgreSQL has rolled the transaction back")

func (*postgresDialect) fault(err error) fault {
	e, ok := errors.AsType[*pgconn.PgError](err)
	switch {
	case ok:
		return postgresFault(e)
	case errors.Is(err, errRolledBack):
		return faultRefused
	case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled):
		return faultTimeLimit
	}
	var network net.Error
	var connect *pgconn.ConnectError
	if errors.Is(err, errLost) || errors.Is(err, pgconn.ErrConnClosed) || errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &network) || errors.As(err, &connect) {
		return faultBroken
	}
	return faultStatement
}

// postgresFault goes by the SQLSTATE, https://www.postgresql.org/docs/current/errcodes-appendix.html.
func postgresFault(e *pgconn.PgError) fault {
	switch {
	case postgres.EncodingFailed(e):
		return faultConstraint
	case postgres.ColumnsChanged(e):
		return faultRefused
	case postgres.TimeLimit(e):
		return faultTimeLimit
	case e.Code == postgresAborted:
		return faultStatement
	case postgres.StatementFault(e):
		return faultOpen
	case postgres.Uncertain(e):
		return faultBroken
	}
	switch e.Code {
	case "40001", "40P01": // serialization failure, deadlock
		return faultBusy
	case "55P03", "25006", "57P03": // lock time-out, read-only, starting up
		return faultRefused
	}
	switch {
	case e.Code[:min(2, len(e.Code))] == "53": // no resources
		return faultRefused
	case postgres.OutageIn(e) != nil:
		return faultBroken
	}
	return faultConstraint
}

// postgresAborted is the SQLSTATE of every statement after an error in a transaction.
const postgresAborted = "25P02"

func (*postgresDialect) hint(err error) string {
	e, ok := errors.AsType[*pgconn.PgError](err)
	switch {
	case !ok:
		return ""
	case e.Code == "55P03":
		return "another transaction holds the row: look for a paused process or a long transaction (pg_stat_activity, pg_blocking_pids)"
	}
	return postgres.Advice(e)
}

package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/sluice-go/sluice/internal/postgres"
)

// NewPostgres makes a store over the program's own [*sql.DB], which stays open when the store is
// closed, and brings the tables up to date. Its driver is pgx's stdlib, or any other whose errors
// have SQLSTATE codes, such as lib/pq; either may be wrapped, for traces or metrics. NewPostgres
// tries out what the store needs of it, and says what is missing. Otherwise it is as
// [OpenPostgres].
//
// The store borrows a connection for each step, read or renewal, and leaves nothing set in its
// session. It takes at most [ServerConfig.MaxConns] and 6 more at once; db must allow 3 at least,
// and should belong to one store. AccessToken and Dial are ignored.
//
// COPY and arrays are pgx's: where the store cannot reach that, because of a wrapper without a
// method Raw() driver.Conn, [Tx.Insert] sends INSERT statements with many rows, and [Tx.Upsert]
// makes temporary tables, for which the role needs the right TEMPORARY on the database.
func NewPostgres(ctx context.Context, db *sql.DB, cfg *ServerConfig) (*Store, error) {
	c, err := cfg.withDefaults()
	if err := cmp.Or(err, checkHandle(db)); err != nil {
		return nil, err
	}
	h := &handleConnector{db: db, kind: postgresHandle{c}, fault: (*postgresDialect)(nil).fault, patience: c.patience()}
	single := sql.OpenDB(h)
	defer single.Close()
	single.SetMaxIdleConns(-1)
	bounded, cancel := context.WithTimeout(ctx, c.patience())
	defer cancel()
	conn, err := single.Conn(bounded)
	if err != nil {
		return nil, outage(ctx, &postgresDialect{}, ofHandle, "connect", err)
	}
	defer conn.Close()
	name, plain, err := tryPostgres(bounded, conn, c)
	if err != nil {
		if name == ofHandle {
			err = h.unlike("pgx's stdlib or lib/pq", err)
		}
		return nil, outage(ctx, &postgresDialect{}, name, "check the *sql.DB", err)
	}
	schema, err := postgres.PrepareOver(bounded, postgresOver{conn}, name, c.Schema, c.NoMigrate)
	if err != nil {
		return nil, err
	}
	conn.Close() // the handle may allow few
	d := newPostgresDialect(schema)
	d.plain = plain
	return newHandle(ctx, name, h, d, c)
}

// tryPostgres finds out whether a handle is one that a store can use, and whether it cannot reach
// pgx. It changes nothing.
func tryPostgres(ctx context.Context, conn *sql.Conn, c ServerConfig) (name string, plain bool, err error) {
	name = ofHandle
	var readOnly, limit string
	err = conn.QueryRowContext(ctx, `SELECT current_database(), current_setting('default_transaction_read_only')`).Scan(&name, &readOnly)
	switch {
	case err != nil:
		return name, false, err
	case readOnly == "on":
		return name, false, errors.New("its sessions are read-only (default_transaction_read_only): switch that off")
	}
	moment := time.Date(2026, 1, 2, 3, 4, 5, 678_901_000, time.UTC)
	var back time.Time
	if err := conn.QueryRowContext(ctx, `SELECT CAST($1 AS timestamptz)`, moment).Scan(&back); err != nil {
		return name, false, fmt.Errorf("its driver does not pass a time: %w: use pgx's stdlib or lib/pq", err)
	} else if !back.Equal(moment) {
		return name, false, fmt.Errorf("its driver returns the time %v as %v: use pgx's stdlib or lib/pq", moment, back)
	}
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return name, false, err
	}
	defer tx.Rollback()
	if err := tx.QueryRowContext(ctx, `SELECT current_setting('lock_timeout')`).Scan(&limit); err != nil {
		return name, false, err
	}
	if want := shownMilliseconds(c.LockTimeout); limit != want {
		return name, false, fmt.Errorf("its driver does not run several statements in one text: lock_timeout is %s, not %s: use pgx's stdlib or lib/pq", limit, want)
	}
	_, err = tx.ExecContext(ctx, "SELECT 1 / 0")
	if e, ok := errors.AsType[*pgconn.PgError](err); !ok || e.Code != "22012" {
		return name, false, fmt.Errorf("the errors of its driver have no SQLSTATE (a division by zero is %T: %w): use pgx's stdlib or lib/pq, and a wrapper that keeps its errors", err, err)
	}
	if err := tx.Commit(); err == nil {
		return name, false, errors.New("its driver reports no error for the COMMIT of a transaction that has failed: use pgx's stdlib or lib/pq")
	}
	err = conn.Raw(func(c any) error {
		plain = c.(*postgresHandleConn).native(ctx, func(*pgx.Conn) error { return nil }) == errNotPgx
		return nil
	})
	return name, plain, err
}

// shownMilliseconds is a time limit as PostgreSQL shows it.
func shownMilliseconds(d time.Duration) string {
	for _, unit := range []struct {
		length time.Duration
		name   string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "min"}, {time.Second, "s"}} {
		if d.Truncate(time.Millisecond)%unit.length == 0 {
			return fmt.Sprint(int64(d/unit.length), unit.name)
		}
	}
	return fmt.Sprint(d.Milliseconds(), "ms")
}

// postgresHandle is [handleKind] for PostgreSQL.
type postgresHandle struct{ ServerConfig }

func (postgresHandle) wrap(c *handleConn) fullConn { return &postgresHandleConn{c} }

// begin begins a transaction with its limits, in one round trip. Nothing of it stays with the
// session.
func (h postgresHandle) begin(ctx context.Context, c *handleConn) error {
	err := c.exec(ctx, fmt.Sprintf("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL lock_timeout = %d; SET LOCAL idle_in_transaction_session_timeout = %d",
		h.LockTimeout.Milliseconds(), h.LeaseFor.Milliseconds()))
	c.broken = c.broken || err != nil
	return err
}

// end: a transaction that is aborted, or over, would end without an error. The savepoint has one.
func (postgresHandle) end(ctx context.Context, c *handleConn, how string) error {
	if how == "COMMIT" {
		how = "SAVEPOINT sluice_commit; COMMIT"
	}
	return c.exec(ctx, how)
}

func (postgresHandle) restore(context.Context, *handleConn) error { return nil }

// failure is an error of pgx, or one with its fields.
func (postgresHandle) failure(err error) error {
	var answer interface{ SQLState() string }
	if errors.As(err, new(*pgconn.PgError)) || !errors.As(err, &answer) {
		return err
	}
	e := &pgconn.PgError{Code: answer.SQLState(), Message: err.Error()}
	if of, ok := answer.(interface{ Get(field byte) string }); ok { // of lib/pq
		e.Severity, e.Message, e.ConstraintName, e.Routine = of.Get('S'), of.Get('M'), of.Get('n'), of.Get('R')
	}
	return &postgresAnswer{err, e}
}

// postgresAnswer is an error of another driver than pgx.
type postgresAnswer struct {
	err    error
	answer *pgconn.PgError
}

func (e *postgresAnswer) Error() string { return e.err.Error() }

// Unwrap returns the driver's error, and the same as one of pgx.
func (e *postgresAnswer) Unwrap() []error { return []error{e.err, e.answer} }

// postgresHandleConn is a borrowed connection to PostgreSQL.
type postgresHandleConn struct{ *handleConn }

// state implements [postgresSession].
func (c *postgresHandleConn) state() (status byte, failed *pgconn.PgError) { return 0, c.failed }

// ending implements [postgresSession].
func (*postgresHandleConn) ending(query string) bool { return postgres.EndingIn(query) != "" }

// ExecContext implements [driver.ExecerContext].
func (c *postgresHandleConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (result driver.Result, err error) {
	if len(args) != 1 {
		return c.handleConn.ExecContext(ctx, query, args)
	}
	native, ok := args[0].Value.(postgresNative)
	if !ok {
		return c.handleConn.ExecContext(ctx, query, args)
	}
	err = c.native(ctx, func(conn *pgx.Conn) error {
		result, err = native.run(ctx, conn)
		return err
	})
	return result, err
}

// errNotPgx is the error of a connection in which there is none of pgx to be found.
var errNotPgx = errors.New("not a connection of pgx")

// native calls do with pgx's connection.
func (c *postgresHandleConn) native(ctx context.Context, do func(*pgx.Conn) error) error {
	_, err := call(ctx, c.handleConn, func() (struct{}, error) {
		return struct{}{}, c.conn.Raw(func(below any) error {
			for {
				switch conn := below.(type) {
				case *stdlib.Conn:
					return do(conn.Conn())
				case interface{ Raw() driver.Conn }: // a wrapper
					below = conn.Raw()
				default:
					return errNotPgx
				}
			}
		})
	})
	return err
}

// postgresOver is a connection of database/sql as package postgres needs it.
type postgresOver struct{ *sql.Conn }

// Exec implements [postgres.Statements].
func (o postgresOver) Exec(ctx context.Context, query string, args ...any) (pgconn.CommandTag, error) {
	_, err := o.ExecContext(ctx, query, args...)
	return pgconn.CommandTag{}, err
}

// QueryRow implements [postgres.Statements].
func (o postgresOver) QueryRow(ctx context.Context, query string, args ...any) pgx.Row {
	return o.QueryRowContext(ctx, query, args...)
}

// InTransaction implements [postgres.Session].
func (o postgresOver) InTransaction(ctx context.Context, fn func(postgres.Statements) error) error {
	tx, err := o.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := fn(o); err != nil { // the transaction is the connection's
		return err
	}
	return tx.Commit()
}

package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"

	mssql "github.com/microsoft/go-mssqldb"
)

// NewSQLServer makes a store over the program's own [*sql.DB], which stays open when the store is
// closed, and brings the tables up to date. Its driver is github.com/microsoft/go-mssqldb, which
// may be wrapped, for traces or metrics. NewSQLServer tries out what the store needs of it, and
// says what is missing. Otherwise it is as [OpenSQLServer].
//
// The store borrows a connection for each step, read or renewal, and sets LOCK_TIMEOUT and
// XACT_ABORT in the session, which the driver resets before the next use. It takes at most
// [ServerConfig.MaxConns] and 6 more connections at once; db must allow 3 at least, and should
// belong to one store. AccessToken and Dial are ignored. [Tx.Insert] sends INSERT statements with
// many rows, and no bulk copy.
func NewSQLServer(ctx context.Context, db *sql.DB, cfg *ServerConfig) (*Store, error) {
	c, err := cfg.withDefaults()
	if err := cmp.Or(err, checkHandle(db)); err != nil {
		return nil, err
	}
	d := mssqlDialect{plain: true}
	h := &handleConnector{db: db, kind: mssqlHandle{c}, fault: d.fault, patience: c.patience()}
	single := sql.OpenDB(h)
	defer single.Close()
	single.SetMaxIdleConns(-1)
	bounded, cancel := context.WithTimeout(ctx, c.patience())
	defer cancel()
	conn, err := single.Conn(bounded)
	if err != nil {
		return nil, outage(ctx, d, ofHandle, "connect", err)
	}
	defer conn.Close()
	name, err := tryMSSQL(bounded, conn)
	if err != nil {
		if name == ofHandle {
			err = h.unlike("github.com/microsoft/go-mssqldb", err)
		}
		return nil, outage(ctx, d, name, "check the *sql.DB", err)
	}
	conn.Close() // the handle may allow few
	return newHandle(ctx, name, h, d, c)
}

// tryMSSQL finds out whether a handle is one that a store can use. It changes nothing.
func tryMSSQL(ctx context.Context, conn *sql.Conn) (name string, err error) {
	name = ofHandle
	if err := conn.QueryRowContext(ctx, "SELECT DB_NAME()").Scan(&name); err != nil {
		return name, err
	}
	if err := mssqlCheck(ctx, conn); err != nil {
		return name, err
	}
	_, err = conn.ExecContext(ctx, "SELECT sluice_no_such_column")
	if _, ok := errors.AsType[mssql.Error](err); !ok {
		return name, fmt.Errorf("the errors of its driver are not those of github.com/microsoft/go-mssqldb (a wrong statement is %T: %w): use that driver, and a wrapper that keeps its errors", err, err)
	}
	return name, nil
}

// mssqlHandle is [handleKind] for SQL Server.
type mssqlHandle struct{ ServerConfig }

func (mssqlHandle) wrap(c *handleConn) fullConn { return c }

// begin has the driver begin: it then refuses statements after the server has ended the
// transaction, which would be committed by themselves.
func (h mssqlHandle) begin(ctx context.Context, c *handleConn) (err error) {
	if err := c.exec(ctx, mssqlSession(h.ServerConfig)); err != nil {
		return err
	}
	outlasting := context.WithoutCancel(ctx) // database/sql would roll back at the end of ctx
	c.tx, err = call(ctx, c, func() (*sql.Tx, error) {
		return c.conn.BeginTx(outlasting, mssqlDialect{}.txOptions())
	})
	c.broken = c.broken || err != nil
	return err
}

func (mssqlHandle) end(ctx context.Context, c *handleConn, how string) error {
	_, err := call(ctx, c, func() (struct{}, error) {
		if how == "COMMIT" {
			return struct{}{}, c.tx.Commit()
		}
		return struct{}{}, c.tx.Rollback()
	})
	return err
}

func (mssqlHandle) restore(context.Context, *handleConn) error { return nil }

// failure: a wrapper's error may contain the driver's.
func (mssqlHandle) failure(err error) error {
	if known := (*mssqlError)(nil); errors.As(err, &known) {
		return err
	}
	if e, ok := errors.AsType[mssql.Error](err); ok {
		return &mssqlError{e}
	}
	return err
}

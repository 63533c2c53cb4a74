package sqlstore

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// NewSQLite makes a store over the program's own [*sql.DB], which stays open when the store is
// closed, and brings the tables up to date. Its driver is modernc.org/sqlite, which may be wrapped,
// for traces or metrics; its database must be a file, which gets a write-ahead log. NewSQLite tries
// out what the store needs of it, and says what is missing. Otherwise it is as [OpenSQLite].
//
// Steps use one connection of db at a time, so db may allow a single one. The store opens the file
// itself for reading, and the file of the leases. Pragmas, and the form of times (_time_format),
// are the program's business; only synchronous = OFF is refused. A COMMIT that a handler hides
// behind another statement of a text is found before the store's commit, and not refused.
func NewSQLite(db *sql.DB, cfg *Config) (*Store, error) {
	c, err := cfg.withDefaults()
	if err := cmp.Or(err, checkHandle(db)); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.BusyTimeout)
	defer cancel()
	h := &handleConnector{db: db, kind: sqliteHandle{}, fault: sqliteDialect{}.fault, patience: max(c.BusyTimeout, time.Minute)}
	path, err := trySQLite(ctx, h)
	if err != nil {
		return nil, outage(ctx, sqliteDialect{}, ofHandle, "check the *sql.DB", err)
	}
	d := &sqliteHandleDialect{sqliteDialect: sqliteDialect{sqliteStoreSteps, sqliteLeaseSteps}}
	writer := sql.OpenDB(&watchedConnector{Connector: h, dialect: d, patience: c.BusyTimeout, manyResults: true})
	writer.SetMaxIdleConns(-1) // a connection returns to the handle after each use
	s, err := openSQLiteWith(path, c, d, writer)
	if err != nil {
		return nil, fmt.Errorf("open %w", err)
	}
	s.shared = db
	return s, nil
}

// trySQLite finds out whether a handle is one that a store can use, and returns the file's path.
func trySQLite(ctx context.Context, h *handleConnector) (path string, err error) {
	db := sql.OpenDB(h)
	defer db.Close()
	db.SetMaxIdleConns(-1)
	conn, err := db.Conn(ctx)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.QueryRowContext(ctx, "SELECT file FROM pragma_database_list WHERE name = 'main'").Scan(&path); err != nil {
		return "", h.unlike("modernc.org/sqlite", err)
	}
	if path == "" {
		return "", errors.New("its database is in memory, where no other process finds it, and it is lost with its connection: use a file")
	}
	_, err = conn.ExecContext(ctx, "SELECT sluice_no_such_column")
	if !errors.As(err, new(*sqlite.Error)) {
		return "", fmt.Errorf("the errors of its driver are not those of modernc.org/sqlite (a wrong statement is %T: %w): use that driver, and a wrapper that keeps its errors", err, err)
	}
	var synchronous int
	if err := conn.QueryRowContext(ctx, "PRAGMA synchronous").Scan(&synchronous); err != nil {
		return "", err
	}
	if synchronous == 0 {
		return "", errors.New("its pragma synchronous is OFF, with which a crash can damage the file: set it to NORMAL or FULL")
	}
	return path, nil
}

// sqliteHandle is [handleKind] for SQLite.
type sqliteHandle struct{}

func (sqliteHandle) wrap(c *handleConn) fullConn { return &sqliteHandleConn{handleConn: c} }

// begin takes the write lock at once.
func (sqliteHandle) begin(ctx context.Context, c *handleConn) error {
	return c.exec(ctx, "BEGIN IMMEDIATE")
}

func (sqliteHandle) end(ctx context.Context, c *handleConn, how string) error {
	return c.exec(ctx, how)
}

func (sqliteHandle) restore(context.Context, *handleConn) error { return nil }
func (sqliteHandle) failure(err error) error                    { return err }

// sqliteHandleConn is a borrowed connection to SQLite, without the hooks of the driver.
type sqliteHandleConn struct {
	*handleConn
	watch *watch // nil: nobody watches
}

// watchedBy implements [watchable].
func (c *sqliteHandleConn) watchedBy(w *watch) { c.watch = w }

// ExecContext implements [driver.ExecerContext].
func (c *sqliteHandleConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	result, err := c.handleConn.ExecContext(ctx, query, args)
	c.check(ctx, err)
	return result, err
}

// QueryContext implements [driver.QueryerContext].
func (c *sqliteHandleConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	rows, err := c.handleConn.QueryContext(ctx, query, args)
	c.check(ctx, err)
	return rows, err
}

// check finds out whether an error has ended the transaction, as a conflict clause does: whatever
// follows would be committed by itself. BEGIN fails inside a transaction.
func (c *sqliteHandleConn) check(ctx context.Context, err error) {
	if err == nil || !c.inTransaction || !c.IsValid() || c.watch == nil {
		return
	}
	ctx = context.WithoutCancel(ctx)
	if c.exec(ctx, "BEGIN") != nil {
		return
	}
	_ = c.exec(ctx, "ROLLBACK")
	c.broken = true
	c.watch.rolledBack()
}

// sqliteHandleDialect finds out at the end whether the transaction was ended, as that of MySQL
// does: there are no hooks.
type sqliteHandleDialect struct {
	sqliteDialect
	sql *statements
}

var sqliteHandleEnding = regexp.MustCompile(`(?is)^(?:\s|;|--[^\n]*\n|/\*.*?\*/)*(COMMIT|END|BEGIN|ROLLBACK(?:\s+TRANSACTION)?(\s+TO)?)\b`)

// ends reports whether a text begins with a statement that ends the transaction.
func (*sqliteHandleDialect) ends(_ driver.Conn, query string) bool {
	found := sqliteHandleEnding.FindStringSubmatch(query)
	return found != nil && found[2] == ""
}

// guard makes a savepoint of a name that the handler does not know: every end of the transaction
// removes it.
func (*sqliteHandleDialect) guard(ctx context.Context, t *transaction) error {
	mark := "sluice_" + rand.Text()
	_, err := t.ExecContext(ctx, "SAVEPOINT "+mark)
	if err == nil {
		t.mark = mark
	}
	return err
}

func (*sqliteHandleDialect) intact(ctx context.Context, t *transaction) error {
	if t.mark == "" {
		return nil
	}
	_, err := t.ExecContext(ctx, "RELEASE "+t.mark)
	if e, ok := errors.AsType[*sqlite.Error](err); ok && e.Code() == sqlite3.SQLITE_ERROR && strings.Contains(e.Error(), "no such savepoint") {
		return errEnded
	}
	return err
}

// statements: the function that compares texts without regard to case is another driver's, see
// [sqliteDriver].
func (d *sqliteHandleDialect) statements() *statements {
	if d.sql == nil {
		own := *sqliteStatements
		own.ErrorContains = "instr(lower(error), lower(?)) > 0"
		d.sql = &own
	}
	return d.sql
}

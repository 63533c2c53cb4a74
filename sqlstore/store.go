// Package sqlstore keeps leases, checkpoints and dead letters in a SQL
// database over database/sql, and gives handlers a transaction in which their
// writes, the checkpoint and the dead letters commit together.
//
// The same store serves the at-least-once delivery, which has no transaction in common with the
// handler: advance.go and deadletterqueue.go.
//
// The databases are SQLite, through a driver without cgo ([OpenSQLite]), MySQL and MariaDB
// ([OpenMySQL]), SQL Server and Azure SQL ([OpenSQLServer]), and PostgreSQL ([OpenPostgres]). What
// differs between databases is behind one interface, in dialect.go.
//
// [Store.Commit] locks the checkpoint before the handler and moves it after it. In a server it
// takes, besides the handler's statements: four round trips in PostgreSQL (begin; lock; check and
// move; COMMIT); four in MySQL and MariaDB, and two more with the first statement of the handler's
// own (savepoint; its check); five in SQL Server (reset of the session; begin; lock and mark; check
// and move; COMMIT). Dead letters and causation IDs are more. Only SQLite refuses the COMMIT of a
// handler however it is sent; the others find it, and the error is [driver.ErrHandlerEnded].
//
// Reading order: store.go, commit.go, tx.go, watch.go, then the rest in any order.
package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/sluice-go/sluice/driver"
)

// Config has the settings of a store. The zero value is ready to use.
type Config struct {
	// BusyTimeout is how long a statement waits for a transaction of another
	// process before it fails. Within one process transactions queue, and wait
	// until their context ends.
	// Default: 10 s.
	BusyTimeout time.Duration
	// Readers is how many connections read, besides the one that writes.
	// Default: 4.
	Readers int
	// NoMigrate lets [OpenSQLite] create no file, and only check that the tables are up to date,
	// see [Migrations]: it fails if they are not. Default: it migrates.
	NoMigrate bool
}

func (cfg *Config) withDefaults() (Config, error) {
	var c Config
	if cfg != nil {
		c = *cfg
	}
	c.BusyTimeout = cmp.Or(c.BusyTimeout, 10*time.Second)
	c.Readers = cmp.Or(c.Readers, 4)
	switch {
	case c.BusyTimeout < time.Millisecond:
		return c, fmt.Errorf("busy timeout of %v: must be at least 1ms", c.BusyTimeout)
	case c.Readers < 0:
		return c, fmt.Errorf("%d readers: must be positive", c.Readers)
	}
	return c, nil
}

// Store keeps checkpoints and dead letters in the database that handlers write to. It is safe for
// concurrent use. In SQLite its transactions run one after the other. A handler must not call
// methods that write ([Store.Claim], [Store.Redrive] and so on): they would wait until the handler
// returns.
type Store struct {
	name    string // of the database, for errors
	dialect dialect
	sql     *statements
	writer  *sql.DB // one connection, watched: every write goes through it, see write and begin
	reader  *sql.DB
	shared  *sql.DB // of the program, which the others borrow connections from; nil: there is none
	busy    time.Duration
	turns   *turns // nil: others may write at the same time
	// patience bounds each round trip of the store's own in a step; 0: there is no server that
	// could be silent.
	patience time.Duration
	// idle is for how long a session may be idle in a step before the server ends it, or a rival
	// does; 0: for ever.
	idle   time.Duration
	leases *Leases
	safe   sync.Map // names of the tables that were found safe for [Tx.Insert]
	known  knownColumns
}

var (
	_ driver.TxStore[*Tx]    = (*Store)(nil)
	_ driver.CheckpointStore = (*Store)(nil)
	_ driver.DeadLetterQueue = (*Store)(nil)
	_ driver.DeadLetterStore = (*Store)(nil)
	_ driver.LeaseStore      = (*Leases)(nil)
)

// DB returns the database for set-up (creating tables) and for reading. A handler must write only
// through its [*Tx]: a write through DB waits for the handler's own transaction, and fails after
// [Config.BusyTimeout]. A store that was made over a [*sql.DB] returns that.
func (s *Store) DB() *sql.DB { return cmp.Or(s.shared, s.reader) }

// Leases returns the lease store that belongs to this store.
func (s *Store) Leases() *Leases { return s.leases }

// Close closes the store and its leases. Transactions in progress fail. A [*sql.DB] that the store
// was made over stays open.
func (s *Store) Close() error {
	return errors.Join(s.writer.Close(), s.reader.Close(), s.leases.db.Close())
}

// outage is the error for something that the database could not do.
func (s *Store) outage(ctx context.Context, what string, err error) error {
	return outage(ctx, s.dialect, s.name, what, err)
}

// outage says in one line what could not be done, in which database, why, and what to do. The
// driver reports a cancelled statement in several ways; here it is always the context's error.
func outage(ctx context.Context, d dialect, name, what string, err error) error {
	if cancelled := ctx.Err(); cancelled != nil {
		if cause := context.Cause(ctx); cause != cancelled {
			return fmt.Errorf("%s: %w: %v", what, cancelled, cause)
		}
		return fmt.Errorf("%s: %w", what, cancelled)
	}
	if hint := d.hint(err); hint != "" {
		return fmt.Errorf("%s: database %s: %w: %s", what, name, err, hint)
	}
	if strings.Contains(err.Error(), "sql: database is closed") { // database/sql exports no such error
		return fmt.Errorf("%s: database %s: %w: close the store, or its *sql.DB, after its consumers have stopped", what, name, err)
	}
	return fmt.Errorf("%s: database %s: %w", what, name, err)
}

// change runs a writing statement outside of transactions, see [changed].
func (s *Store) change(ctx context.Context, query string, args ...any) (n int64, err error) {
	err = retryBusy(ctx, s.dialect, s.busy, func() error {
		n, err = changed(ctx, s.writer, query, args...)
		return err
	})
	return n, err
}

// querier is a *sql.DB, *sql.Conn or *sql.Tx.
type querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// one runs a statement that returns at most one row, and reports whether it did. It reads the
// result to its end, so that outside a transaction the write is committed when one returns without
// an error.
func one(ctx context.Context, q querier, query string, args []any, dest ...any) (bool, error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return false, err
	}
	defer rows.Close()
	found := false
	for rows.Next() {
		if err := rows.Scan(dest...); err != nil {
			return false, err
		}
		found = true
	}
	return found, rows.Err()
}

// changed runs a statement and returns how many rows it changed.
func changed(ctx context.Context, q querier, query string, args ...any) (int64, error) {
	result, err := q.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// key is the primary key of a partition's lease and checkpoint.
func key(g driver.Group, partition string) []any {
	return []any{clean(g.Namespace), clean(g.Topic), clean(g.Name), clean(partition)}
}

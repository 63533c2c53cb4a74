package sqlstore

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/keyedtest"
	"github.com/sluice-go/sluice/internal/proof/suite"
	"github.com/sluice-go/sluice/storetest"
)

// handles are the ways in which a program may have made its *sql.DB, by name.
var handles = map[string]func(sqldriver.Connector) *sql.DB{
	"Plain":   sql.OpenDB,
	"Wrapped": func(c sqldriver.Connector) *sql.DB { return sql.OpenDB(hidingConnector{Connector: c}) },
}

// hidden is the handle of which a store can use nothing but database/sql. That is all that it uses
// of any handle, but of one to PostgreSQL.
func hidden() map[string]func(sqldriver.Connector) *sql.DB {
	return map[string]func(sqldriver.Connector) *sql.DB{"Wrapped": handles["Wrapped"]}
}

// hidingConnector wraps connections as drivers for traces do: what the driver's own type has
// besides the interfaces of database/sql is out of reach.
type hidingConnector struct {
	sqldriver.Connector
	// hide changes errors; nil: they stay.
	hide func(error) error
}

func (h hidingConnector) Connect(ctx context.Context) (sqldriver.Conn, error) {
	conn, err := h.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &hidingConn{conn, h.hide}, nil
}

type hidingConn struct {
	conn sqldriver.Conn
	hide func(error) error
}

func (c *hidingConn) failed(err error) error {
	if err == nil || err == sqldriver.ErrSkip || c.hide == nil {
		return err
	}
	return c.hide(err)
}

func (c *hidingConn) Begin() (sqldriver.Tx, error)                 { return nil, errors.ErrUnsupported }
func (c *hidingConn) Prepare(query string) (sqldriver.Stmt, error) { return c.conn.Prepare(query) }
func (c *hidingConn) Close() error                                 { return c.conn.Close() }
func (c *hidingConn) Ping(ctx context.Context) error               { return c.conn.(sqldriver.Pinger).Ping(ctx) }
func (c *hidingConn) ResetSession(ctx context.Context) error {
	return c.conn.(sqldriver.SessionResetter).ResetSession(ctx)
}
func (c *hidingConn) CheckNamedValue(v *sqldriver.NamedValue) error {
	if checker, ok := c.conn.(sqldriver.NamedValueChecker); ok {
		return checker.CheckNamedValue(v)
	}
	return sqldriver.ErrSkip
}

func (c *hidingConn) IsValid() bool {
	validator, ok := c.conn.(sqldriver.Validator)
	return !ok || validator.IsValid()
}

func (c *hidingConn) BeginTx(ctx context.Context, options sqldriver.TxOptions) (sqldriver.Tx, error) {
	return c.conn.(sqldriver.ConnBeginTx).BeginTx(ctx, options)
}

func (c *hidingConn) PrepareContext(ctx context.Context, query string) (sqldriver.Stmt, error) {
	stmt, err := c.conn.(sqldriver.ConnPrepareContext).PrepareContext(ctx, query)
	return stmt, c.failed(err)
}

func (c *hidingConn) ExecContext(ctx context.Context, query string, args []sqldriver.NamedValue) (sqldriver.Result, error) {
	execer, ok := c.conn.(sqldriver.ExecerContext)
	if !ok {
		return nil, sqldriver.ErrSkip
	}
	result, err := execer.ExecContext(ctx, query, args)
	return result, c.failed(err)
}

func (c *hidingConn) QueryContext(ctx context.Context, query string, args []sqldriver.NamedValue) (sqldriver.Rows, error) {
	queryer, ok := c.conn.(sqldriver.QueryerContext)
	if !ok {
		return nil, sqldriver.ErrSkip
	}
	rows, err := queryer.QueryContext(ctx, query, args)
	return rows, c.failed(err)
}

// handleWorld is a kind of database whose stores are made over handles.
type handleWorld struct {
	handle func(t testing.TB, url string) *sql.DB
	open   func(t testing.TB, db *sql.DB, cfg *ServerConfig) *Store
}

func (w handleWorld) store(t testing.TB, url string, cfg *ServerConfig) *Store {
	t.Helper()
	return w.open(t, w.handle(t, url), cfg)
}

// ofTest closes a handle with its test, after the stores that it serves.
func ofTest(t testing.TB, db *sql.DB) *sql.DB {
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Errorf("close the handle: %v", err)
		}
	})
	return db
}

// eachHandle runs a test over each kind of handle.
func eachHandle(t *testing.T, of map[string]func(sqldriver.Connector) *sql.DB, make func(wrap func(sqldriver.Connector) *sql.DB) handleWorld, run func(t *testing.T, w handleWorld)) {
	for name, wrap := range of {
		t.Run(name, func(t *testing.T) { run(t, make(wrap)) })
	}
}

// postgresHandles has handles over pgx, as programs make them.
func postgresHandles(wrap func(sqldriver.Connector) *sql.DB) handleWorld {
	return handleWorld{
		handle: func(t testing.TB, url string) *sql.DB {
			config, err := pgx.ParseConfig(url)
			suite.NoError(t, "parse", err)
			return ofTest(t, wrap(stdlib.GetConnector(*config)))
		},
		open: func(t testing.TB, db *sql.DB, cfg *ServerConfig) *Store {
			s, err := NewPostgres(t.Context(), db, cfg)
			return withTables(t, s, err, postgresSetUp)
		},
	}
}

// readOnlyConnector makes connections to SQLite that write nothing while only is set.
type readOnlyConnector struct {
	sqldriver.Connector
	only *atomic.Bool
}

func (r readOnlyConnector) Connect(ctx context.Context) (sqldriver.Conn, error) {
	conn, err := r.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	c := &readOnlyConn{&hidingConn{conn: conn}, r.only}
	return c, c.set(ctx)
}

type readOnlyConn struct {
	*hidingConn
	only *atomic.Bool
}

func (c *readOnlyConn) set(ctx context.Context) error {
	_, err := c.ExecContext(ctx, fmt.Sprintf("PRAGMA query_only = %t", c.only.Load()), nil)
	return err
}

// ResetSession is called before each use of a connection.
func (c *readOnlyConn) ResetSession(ctx context.Context) error {
	return errors.Join(c.set(ctx), c.hidingConn.ResetSession(ctx))
}

func sqliteHandled(t testing.TB, path string, wrap func(sqldriver.Connector) *sql.DB) *Store {
	t.Helper()
	db := ofTest(t, wrap(&sqliteConnector{dsn: "file:" + strings.NewReplacer("%", "%25", "#", "%23", "?", "%3f").Replace(path) + "?_pragma=foreign_keys(ON)&_pragma=busy_timeout(50)&_time_format=sqlite&_timezone=UTC"}))
	db.SetMaxOpenConns(1)
	s, err := NewSQLite(db, nil)
	return withTables(t, s, err, []string{setUp})
}

func sqliteHandleHarness(wrap func(sqldriver.Connector) *sql.DB) func(t testing.TB) storetest.TxHarness[*Tx] {
	return func(t testing.TB) storetest.TxHarness[*Tx] {
		h := harness(t)
		var only atomic.Bool
		s := sqliteHandled(t, filepath.Join(t.TempDir(), "it's 100% a #1? test.db"), func(c sqldriver.Connector) *sql.DB {
			return wrap(readOnlyConnector{c, &only})
		})
		peer := open(t, s.name)
		h.Store, h.DeadLetters, h.Peer = s, s, peer
		h.Silence, h.Lock = hold(s.name), hold(s.name)
		h.ReadOnly = func(testing.TB) (end func()) {
			only.Store(true)
			return func() { only.Store(false) }
		}
		h.Effects = func(ctx context.Context) ([]string, error) { return effects(ctx, peer) }
		h.Doors = append(doorsOf(true, "COMMIT", "END", "ROLLBACK", "COMMIT; BEGIN IMMEDIATE", "INSERT OR ROLLBACK INTO children (small) VALUES (10)"),
			doorsOf(false, "SELECT 1; COMMIT; BEGIN IMMEDIATE", "SELECT 1; ROLLBACK; BEGIN IMMEDIATE")...)
		return h
	}
}

// TestSQLiteHandle: the suites pass over a program's own handle, which allows one connection.
func TestSQLiteHandle(t *testing.T) {
	for name, wrap := range hidden() {
		t.Run(name, func(t *testing.T) {
			storetest.TestTxStore(t, sqliteHandleHarness(wrap))
			storetest.TestDeadLetterStore(t, sqliteHandleHarness(wrap))
			pair := func(t testing.TB) (s, peer *Store) {
				s = sqliteHandled(t, filepath.Join(t.TempDir(), "x.db"), wrap)
				return s, open(t, s.name)
			}
			storetest.TestCheckpoints(t, func(t testing.TB) storetest.CheckpointHarness {
				s, peer := pair(t)
				return storetest.CheckpointHarness{Store: s, Peer: peer, Silence: hold(s.name), Features: storetest.CheckpointFeatures{Ranges: 10_000}}
			})
			storetest.TestDeadLetterQueue(t, func(t testing.TB) storetest.DeadLetterQueueHarness {
				s, peer := pair(t)
				return storetest.DeadLetterQueueHarness{Store: s, DeadLetters: s, Peer: peer, Silence: hold(s.name)}
			})
			storetest.TestLeases(t, func(t testing.TB) driver.LeaseStore {
				s, _ := pair(t)
				return s.Leases()
			}, nil)
			keyedtest.Run(t, func(t testing.TB) keyedtest.Harness {
				s, _ := pair(t)
				return keyedHarness(t, s, keyedtest.SQLite)
			})
		})
	}
}

// Rows that a handler of a database with one connection reads are closed with it; and Close leaves
// the handle open.
func TestHandleStaysOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	db := ofTest(t, sql.OpenDB(&sqliteConnector{dsn: "file:" + path}))
	db.SetMaxOpenConns(1)
	s, err := NewSQLite(db, nil)
	suite.NoError(t, "make a store", err)
	if s.DB() != db {
		t.Error("DB is not the handle")
	}
	suite.NoError(t, "close", s.Close())
	suite.NoError(t, "the handle after Close of the store", db.PingContext(t.Context()))
	if open := db.Stats(); open.InUse != 0 {
		t.Errorf("%d connections are still borrowed", open.InUse)
	}
}

// What a handle lacks is said by name, and with what to do.
func TestHandleRefused(t *testing.T) {
	dir := t.TempDir()
	mute := func(err error) error { return errors.New(err.Error()) }
	for _, c := range []struct {
		name string
		db   *sql.DB
		says string
	}{
		{"memory", sql.OpenDB(&sqliteConnector{dsn: ":memory:"}), "is in memory"},
		{"not synchronous", sql.OpenDB(&sqliteConnector{dsn: "file:" + dir + "/a.db?_pragma=synchronous(OFF)"}), "set it to NORMAL or FULL"},
		{"other errors", sql.OpenDB(hidingConnector{&sqliteConnector{dsn: "file:" + dir + "/b.db"}, mute}), "use that driver, and a wrapper that keeps its errors"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := NewSQLite(ofTest(t, c.db), nil)
			saysAll(t, "make a store", err, c.says)
			if err == nil {
				s.Close()
			}
		})
	}
}

// A handle that is missing, closed, or of another database is refused, with what it should be.
func TestHandleOfAnother(t *testing.T) {
	for kind, open := range map[string]func(*sql.DB) (*Store, error){
		"pgx's stdlib or lib/pq":          func(db *sql.DB) (*Store, error) { return NewPostgres(t.Context(), db, nil) },
		"github.com/go-sql-driver/mysql":  func(db *sql.DB) (*Store, error) { return NewMySQL(t.Context(), db, nil) },
		"github.com/microsoft/go-mssqldb": func(db *sql.DB) (*Store, error) { return NewSQLServer(t.Context(), db, nil) },
		"use that driver":                 func(db *sql.DB) (*Store, error) { return NewSQLite(db, nil) },
	} {
		mute := func(err error) error { return errors.New(err.Error()) }
		db := ofTest(t, sql.OpenDB(hidingConnector{&sqliteConnector{dsn: "file:" + t.TempDir() + "/a.db"}, mute}))
		_, err := open(db)
		saysAll(t, "of another database", err, kind)
		_, err = open(nil)
		saysAll(t, "none", err, "the *sql.DB is nil")
		suite.NoError(t, "close", db.Close())
		_, err = open(db)
		saysAll(t, "closed", err, "sql: database is closed: close the store, or its *sql.DB, after its consumers have stopped")
	}
}

// A handle to a server with too few connections is refused, and never waited for without an end.
func TestHandleRoom(t *testing.T) {
	db := ofTest(t, sql.OpenDB(&sqliteConnector{dsn: ":memory:"}))
	for limit, want := range map[int]int{0: 8, 2: 0, 3: 1, 5: 3, 100: 8} {
		db.SetMaxOpenConns(limit)
		got, err := roomOf(db, 8)
		if got != want || (err == nil) != (want > 0) {
			t.Errorf("a limit of %d leaves %d steps, %v; want %d", limit, got, err, want)
		}
		if err != nil {
			saysAll(t, "room", err, "raise SetMaxOpenConns")
		}
	}
}

// stuckConn is a connection whose driver ignores contexts: COMMIT returns when the test ends.
type stuckConn struct {
	hidingConn
	release chan struct{}
}

func (c *stuckConn) ExecContext(ctx context.Context, query string, args []sqldriver.NamedValue) (sqldriver.Result, error) {
	if strings.HasSuffix(query, "COMMIT") {
		<-c.release
	}
	return sqldriver.RowsAffected(0), nil
}

type stuckConnector struct{ release chan struct{} }

func (stuckConnector) Driver() sqldriver.Driver { return sqliteDriver }
func (c stuckConnector) Connect(context.Context) (sqldriver.Conn, error) {
	return &stuckConn{hidingConn{&emptyConn{}, nil}, c.release}, nil
}

// emptyConn does nothing.
type emptyConn struct{ fullConn }

func (emptyConn) Close() error                       { return nil }
func (emptyConn) IsValid() bool                      { return true }
func (emptyConn) ResetSession(context.Context) error { return nil }

// A COMMIT whose driver never returns is given up in time, and its connection with it, which the
// handle gets back when the driver returns.
func TestHandleGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		db := sql.OpenDB(stuckConnector{release})
		defer db.Close()
		conn, err := (&handleConnector{db: db, kind: postgresHandle{}, fault: (*postgresDialect)(nil).fault, patience: 10 * time.Second}).Connect(t.Context())
		suite.NoError(t, "connect", err)
		tx, err := conn.(sqldriver.ConnBeginTx).BeginTx(t.Context(), sqldriver.TxOptions{})
		suite.NoError(t, "begin", err)
		began := time.Now()
		err = tx.Commit()
		if took := time.Since(began); !errors.Is(err, errGivenUp) || took != 12*time.Second {
			t.Errorf("COMMIT returned %v after %v, want that it is given up after 12s", err, took)
		}
		if f := (*postgresDialect)(nil).fault(err); f == faultConstraint || f == faultOpen || f == faultBusy || f == faultRefused {
			t.Errorf("fault %d: want one whose outcome is unknown", f)
		}
		suite.NoError(t, "close", conn.Close())
		if n := db.Stats().InUse; n != 1 {
			t.Errorf("%d connections are in use, want the one that is stuck", n)
		}
		close(release)
		synctest.Wait()
		if n := db.Stats().OpenConnections; n != 0 {
			t.Errorf("%d connections are open after the driver has returned, want 0", n)
		}
	})
}

// silenced keeps what silences a store's leases.
type silenced struct{ silences sync.Map }

func (s *silenced) leasesOf(store *Store, silence storetest.Silence) driver.LeaseStore {
	s.silences.Store(store.Leases(), silence)
	return store.Leases()
}

func (s *silenced) silence(t testing.TB, store driver.LeaseStore) (end func()) {
	silence, _ := s.silences.Load(store)
	return silence.(storetest.Silence)(t)
}

package sqlstore

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/batchtest"
	"github.com/sluice-go/sluice/internal/proof/suite"
	"github.com/sluice-go/sluice/storetest"
)

// setUp is what the tests' handlers write to: effects without a unique
// constraint, so that a repeat shows; and a table with the constraints that a
// database can have.
const setUp = `
	CREATE TABLE IF NOT EXISTS effects (key TEXT NOT NULL, part INTEGER);
	CREATE TABLE IF NOT EXISTS parents (id INTEGER PRIMARY KEY);
	CREATE TABLE IF NOT EXISTS children (
		id     INTEGER PRIMARY KEY,
		now    INTEGER REFERENCES parents,
		later  INTEGER REFERENCES parents DEFERRABLE INITIALLY DEFERRED,
		small  INTEGER CHECK (small < 10)
	) STRICT;`

func open(t testing.TB, path string) *Store {
	t.Helper()
	s, err := OpenSQLite(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	if _, err := s.DB().Exec(setUp); err != nil {
		t.Fatal(err)
	}
	return s
}

// pair opens one new database twice, as two processes have it.
func pair(t testing.TB) (a, b *Store) {
	path := filepath.Join(t.TempDir(), "it's 100% a #1? test.db")
	return open(t, path), open(t, path)
}

func put(ctx context.Context, tx *Tx, key string) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO effects (key) VALUES (?)", key)
	return err
}

func effects(ctx context.Context, s *Store) ([]string, error) {
	rows, err := s.DB().QueryContext(ctx, "SELECT key FROM effects ORDER BY rowid")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var keys []string
	for rows.Next() {
		var k string
		if err := rows.Scan(&k); err != nil {
			return nil, err
		}
		keys = append(keys, k)
	}
	return keys, rows.Err()
}

// hold takes the write lock of a database file, as another process does. Its end releases the lock.
func hold(path string) storetest.Silence {
	return func(t testing.TB) (end func()) {
		t.Helper()
		db := sql.OpenDB(&sqliteConnector{dsn: sqliteDSN(path, time.Minute, "_txlock=immediate")})
		tx, err := db.BeginTx(context.WithoutCancel(t.Context()), nil)
		if err != nil {
			t.Fatal(err)
		}
		return func() {
			if err := errors.Join(tx.Rollback(), db.Close()); err != nil {
				t.Error(err)
			}
		}
	}
}

// readOnly makes a store's writing connection refuse to write.
func readOnly(s *Store) storetest.Silence {
	return func(t testing.TB) (end func()) {
		set := func(value string) {
			if _, err := s.writer.Exec("PRAGMA query_only = " + value); err != nil {
				t.Fatal(err)
			}
		}
		set("ON")
		return func() { set("OFF") }
	}
}

// doorsOf are doors of one statement each.
func doorsOf(refused bool, statements ...string) (list []storetest.Door[*Tx]) {
	for _, statement := range statements {
		list = append(list, storetest.Door[*Tx]{Name: statement, Refused: refused, End: func(ctx context.Context, tx *Tx) error {
			return execute(ctx, tx, statement)
		}})
	}
	return list
}

// facesOf are doors of one statement by each face of the transaction that executes one.
func facesOf(refused bool, statement string) []storetest.Door[*Tx] {
	face := func(name string, end func(ctx context.Context, tx *Tx) error) storetest.Door[*Tx] {
		return storetest.Door[*Tx]{Name: name + " " + statement, Refused: refused, End: end}
	}
	prepared := func(ctx context.Context, p interface {
		PrepareContext(context.Context, string) (*sql.Stmt, error)
	}) error {
		stmt, err := p.PrepareContext(ctx, statement)
		if err != nil {
			return err
		}
		defer stmt.Close()
		_, err = stmt.ExecContext(ctx)
		return err
	}
	return []storetest.Door[*Tx]{
		face("prepared", func(ctx context.Context, tx *Tx) error { return prepared(ctx, tx) }),
		face("queried", func(ctx context.Context, tx *Tx) error {
			rows, err := tx.QueryContext(ctx, statement)
			if err == nil {
				err = rows.Close()
			}
			return err
		}),
		face("DB", func(ctx context.Context, tx *Tx) error { _, err := tx.DB().ExecContext(ctx, statement); return err }),
		face("DB, prepared", func(ctx context.Context, tx *Tx) error { return prepared(ctx, tx.DB()) }),
		face("SQL", func(ctx context.Context, tx *Tx) error { _, err := tx.SQL().ExecContext(ctx, statement); return err }),
		face("nested", func(ctx context.Context, tx *Tx) error {
			inner, err := tx.DB().BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			defer inner.Rollback()
			_, err = inner.ExecContext(ctx, statement)
			return errors.Join(err, inner.Commit())
		}),
		face("Raw", func(ctx context.Context, tx *Tx) error {
			conn, err := tx.DB().Conn(ctx)
			if err != nil {
				return err
			}
			defer conn.Close()
			return conn.Raw(func(c any) error {
				_, err := c.(sqldriver.ExecerContext).ExecContext(ctx, statement, nil)
				return err
			})
		}),
	}
}

// sqliteDoors: SQLite asks before each commit, whatever it is that commits.
func sqliteDoors() []storetest.Door[*Tx] {
	return slices.Concat(facesOf(true, "COMMIT"), facesOf(true, "ROLLBACK"), doorsOf(true, "COMMIT", "END", "END TRANSACTION", "ROLLBACK", "BEGIN", "COMMIT; BEGIN IMMEDIATE", "ROLLBACK; BEGIN IMMEDIATE",
		"INSERT OR ROLLBACK INTO children (small) VALUES (10)", "SAVEPOINT a", "SAVEPOINT a; RELEASE a", "RELEASE nowhere", "ROLLBACK TO nowhere", "SAVEPOINT a; ROLLBACK TO a; RELEASE a; COMMIT",
		"VACUUM", "PRAGMA journal_mode = DELETE", "PRAGMA wal_checkpoint(TRUNCATE)", "CREATE TABLE IF NOT EXISTS other (n)",
		"CREATE TRIGGER IF NOT EXISTS ends AFTER INSERT ON parents BEGIN SELECT RAISE(ROLLBACK, 'ends'); END; INSERT INTO parents DEFAULT VALUES"))
}

func harness(t testing.TB) storetest.TxHarness[*Tx] {
	s, peer := pair(t)
	return storetest.TxHarness[*Tx]{
		Store: s, DeadLetters: s, Peer: peer,
		Silence: hold(s.name), Lock: hold(s.name), ReadOnly: readOnly(s),
		Put:     put,
		Doors:   sqliteDoors(),
		Effects: func(ctx context.Context) ([]string, error) { return effects(ctx, s) },
		Break: func(ctx context.Context, tx *Tx) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO children (small) VALUES (10)")
			return err
		},
		BreakLater: func(ctx context.Context, tx *Tx) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO children (later) VALUES (404)")
			return err
		},
		Missing: func(ctx context.Context, tx *Tx) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO nowhere VALUES (1)")
			return err
		},
		Features: storetest.TxFeatures{WaitsForOpen: true},
	}
}

func TestTxStore(t *testing.T)     { storetest.TestTxStore(t, harness) }
func TestDeadLetters(t *testing.T) { storetest.TestDeadLetterStore(t, harness) }

func TestCheckpointStore(t *testing.T) {
	storetest.TestCheckpoints(t, func(t testing.TB) storetest.CheckpointHarness {
		s, peer := pair(t)
		return storetest.CheckpointHarness{Store: s, Peer: peer, Silence: hold(s.name), Features: storetest.CheckpointFeatures{Ranges: 10_000}}
	})
}

func TestBatches(t *testing.T) {
	s, _ := pair(t)
	batchtest.Run(t, batchtest.Stores{Store: s, Leases: s.Leases()})
}

func TestLetterStore(t *testing.T) {
	storetest.TestDeadLetterQueue(t, func(t testing.TB) storetest.DeadLetterQueueHarness {
		s, peer := pair(t)
		return storetest.DeadLetterQueueHarness{Store: s, DeadLetters: s, Peer: peer, Silence: hold(s.name)}
	})
}

func TestLeases(t *testing.T) {
	storetest.TestLeases(t, func(t testing.TB) driver.LeaseStore {
		return open(t, filepath.Join(t.TempDir(), "x.db")).Leases()
	}, &storetest.LeasesConfig{ClockBack: clockBack, Silence: func(t testing.TB, store driver.LeaseStore) func() {
		return hold(store.(*Leases).name)(t)
	}})
}

// clockBack moves the times of the leases into the future.
func clockBack(t testing.TB, store driver.LeaseStore, by time.Duration) {
	seconds := fmt.Sprintf("%+.3f seconds", by.Seconds())
	_, err := store.(*Leases).db.ExecContext(t.Context(), `UPDATE sluice_leases SET
		renewed_at = strftime('%Y-%m-%dT%H:%M:%f000Z', renewed_at, ?),
		expires_at = iif(expires_at IS NULL, NULL, strftime('%Y-%m-%dT%H:%M:%f000Z', expires_at, ?))`, seconds, seconds)
	suite.NoError(t, "set the clock back", err)
}

// TestLeasesOfTwo runs the suite with every call on one of two stores in turn.
func TestLeasesOfTwo(t *testing.T) {
	storetest.TestLeases(t, func(t testing.TB) driver.LeaseStore {
		a, b := pair(t)
		return &inTurn{stores: []*Leases{a.Leases(), b.Leases()}}
	}, nil)
}

// One statement renews as many leases as a server takes, which here is less than a thousand.
func TestManyLeases(t *testing.T) {
	const n = 1100
	l := open(t, filepath.Join(t.TempDir(), "x.db")).Leases()
	_, err := l.db.ExecContext(t.Context(), `
		WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n < ? - 1)
		INSERT INTO sluice_leases (namespace, topic, consumer_group, partition, owner, epoch, expires_at, renewed_at)
		SELECT ?, ?, ?, n, 'a', 1, '2026-01-01T00:00:00.000000Z', '2026-01-01T00:00:00.000000Z' FROM numbers`, n, group.Namespace, group.Topic, group.Name)
	suite.NoError(t, "insert leases", err)
	var all []driver.Lease
	for i := range n {
		all = append(all, leaseOf(fmt.Sprint(i), "a", 1))
	}
	suite.NoError(t, "renew all", l.RenewAll(t.Context(), all, time.Hour))
	list, err := l.List(t.Context(), group)
	suite.NoError(t, "list", err)
	for _, info := range list {
		if !info.Live() {
			t.Fatalf("the lease of partition %s was not renewed", info.Partition)
		}
	}
}

// What is done after a checkpoint is written with each move: so much of it and no more.
func TestDoneIsBounded(t *testing.T) {
	s, l := begun(t, nil)
	var done []driver.SequenceRange
	for i := range int64(doneRanges + 50) {
		done = append(done, driver.SequenceRange{First: 11 + 2*i, Last: 11 + 2*i})
	}
	suite.NoError(t, "advance", s.Advance(t.Context(), l, "i", positionAt(9), done))
	list, err := s.Read(t.Context(), group)
	if err != nil || len(list) != 1 || !slices.Equal(list[0].Done, done[:doneRanges]) {
		t.Fatalf("%d checkpoints, %v; want one with the first %d ranges", len(list), err, doneRanges)
	}
}

// mustBlame fails the test unless err blames the handler.
func mustBlame(t testing.TB, what string, err error) *driver.HandlerError {
	t.Helper()
	failed, ok := errors.AsType[*driver.HandlerError](err)
	if !ok {
		t.Fatalf("%s: got %T: %v; want a HandlerError", what, err, err)
	}
	return failed
}

// mustNameStatement wants an error that only another event can attribute to an event.
func mustNameStatement(t testing.TB, what string, err error) {
	t.Helper()
	if failed, _ := errors.AsType[*driver.HandlerError](err); failed == nil || len(failed.Statements) == 0 {
		t.Fatalf("%s: got %T: %v; want an error of a statement", what, err, err)
	}
}

// mustNotBlame fails the test unless err is one that a step may be repeated after.

func mustNotBlame(t testing.TB, what string, err error) {
	t.Helper()
	if _, blames := errors.AsType[*driver.HandlerError](err); err == nil || blames || errors.Is(err, driver.ErrFenced) || errors.Is(err, driver.ErrUnknown) {
		t.Fatalf("%s: got %T: %v; want an error of the database", what, err, err)
	}
}

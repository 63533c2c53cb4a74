package pgstore_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/batchtest"
	"github.com/sluice-go/sluice/internal/proof/commitproxy"
	"github.com/sluice-go/sluice/internal/proof/pgtest"
	"github.com/sluice-go/sluice/pgstore"
	"github.com/sluice-go/sluice/storetest"
)

// open opens a store for the test's time.
func open(t testing.TB, url string, cfg *pgstore.Config) *pgstore.Store {
	t.Helper()
	s, err := pgstore.Open(t.Context(), url, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// effects are the tables of the tests' handlers.
const effects = `
CREATE TABLE effects (key text NOT NULL);
CREATE TABLE unique_now (n int UNIQUE);
CREATE TABLE unique_later (n int UNIQUE DEFERRABLE INITIALLY DEFERRED)`

func createEffects(t testing.TB, s *pgstore.Store) {
	t.Helper()
	err := pgx.BeginTxFunc(t.Context(), s.Pool(), pgx.TxOptions{AccessMode: pgx.ReadWrite}, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), effects)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func put(ctx context.Context, tx pgx.Tx, key string) error {
	_, err := tx.Exec(ctx, `INSERT INTO effects VALUES ($1)`, key)
	return err
}

func readEffects(ctx context.Context, pool *pgxpool.Pool) ([]string, error) {
	rows, _ := pool.Query(ctx, `SELECT key FROM effects ORDER BY key`)
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

func harness(t testing.TB, s *pgstore.Store, peer driver.TxStore[pgx.Tx]) storetest.TxHarness[pgx.Tx] {
	createEffects(t, s)
	return txHarness(s, peer)
}

// txHarness makes a harness of a store whose database has the tables of effects.
func txHarness(s *pgstore.Store, peer driver.TxStore[pgx.Tx]) storetest.TxHarness[pgx.Tx] {
	return storetest.TxHarness[pgx.Tx]{
		Store: s, DeadLetters: s, Peer: peer,
		Put:     put,
		Doors:   doors(s),
		Effects: func(ctx context.Context) ([]string, error) { return readEffects(ctx, s.Pool()) },
		Break: func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `INSERT INTO unique_now VALUES (1), (1)`)
			return err
		},
		BreakLater: func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `INSERT INTO unique_later VALUES (1), (1)`)
			return err
		},
		Missing: func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `INSERT INTO nowhere VALUES (1)`)
			return err
		},
		TakeTooLong: func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `SET LOCAL statement_timeout = 20`)
			if err == nil {
				_, err = tx.Exec(ctx, `SELECT pg_sleep(10)`)
			}
			return err
		},
	}
}

// schemas makes a database for a suite and, for each of its cases, a schema in
// it, which is faster than a database for each. It returns their URLs.
func schemas(t *testing.T) func(t testing.TB) string {
	t.Helper()
	url := pgtest.Database(t)
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	n := 0
	return func(t testing.TB) string {
		t.Helper()
		n++
		name := fmt.Sprintf("case_%d", n)
		if _, err := conn.Exec(t.Context(), "CREATE SCHEMA "+name); err != nil {
			t.Fatal(err)
		}
		return url + "&search_path=" + name
	}
}

// silenced opens a store through a proxy, which makes its server silent.
func silenced(t testing.TB, url string, cfg *pgstore.Config) (*pgstore.Store, *commitproxy.Proxy) {
	t.Helper()
	proxy, through := pgtest.NewTestProxy(t, url)
	return open(t, through, cfg), proxy
}

func silence(proxy *commitproxy.Proxy) storetest.Silence {
	return func(testing.TB) func() {
		proxy.Stall()
		return proxy.Resume
	}
}

// lockRow locks the row of the checkpoint of partition 0 in a session of its own.
func lockRow(url string) storetest.Silence {
	return func(t testing.TB) (end func()) {
		t.Helper()
		conn, err := pgx.Connect(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Exec(t.Context(), `BEGIN; SELECT FROM sluice_checkpoints WHERE partition = '0' FOR UPDATE`); err != nil {
			t.Fatal(err)
		}
		return func() { conn.Close(context.WithoutCancel(t.Context())) }
	}
}

// patient waits for locks however busy the machine is. calm does so for cases that wait for the end
// of it: a claim ends no session that is only slow.
var (
	patient = &pgstore.Config{LockTimeout: 20 * time.Second}
	calm    = &pgstore.Config{LockTimeout: 2 * time.Second}
)

func newHarness(t *testing.T) func(t testing.TB) storetest.TxHarness[pgx.Tx] {
	schema := schemas(t)
	return func(t testing.TB) storetest.TxHarness[pgx.Tx] {
		url := schema(t)
		s, proxy := silenced(t, url, calm)
		h := harness(t, s, open(t, url, calm))
		h.Silence, h.Lock, h.Lose = silence(proxy), lockRow(url), proxy.Lose
		return h
	}
}

// TestExample runs the package's example, which needs a database.
func TestExample(t *testing.T) {
	url := pgtest.Database(t)
	t.Setenv("DATABASE_URL", url)
	Example()
	var orders, items int
	err := open(t, url, nil).Pool().QueryRow(t.Context(), "SELECT (SELECT count(*) FROM orders), (SELECT count(*) FROM items)").Scan(&orders, &items)
	if err != nil || orders != 2 || items != 3 {
		t.Errorf("%d orders of %d items, %v; want 2 of 3", orders, items, err)
	}
}

func TestTxStore(t *testing.T)     { storetest.TestTxStore(t, newHarness(t)) }
func TestDeadLetters(t *testing.T) { storetest.TestDeadLetterStore(t, newHarness(t)) }

func TestCheckpointStore(t *testing.T) {
	schema := schemas(t)
	storetest.TestCheckpoints(t, func(t testing.TB) storetest.CheckpointHarness {
		url := schema(t)
		s, proxy := silenced(t, url, patient)
		return storetest.CheckpointHarness{
			Store: s, Peer: open(t, url, patient), Silence: silence(proxy),
			Features: storetest.CheckpointFeatures{Ranges: 10_000},
		}
	})
}

func TestBatches(t *testing.T) {
	s := open(t, schemas(t)(t), nil)
	batchtest.Run(t, batchtest.Stores{Store: s, Leases: s.Leases()})
}

func TestLetterStore(t *testing.T) {
	schema := schemas(t)
	storetest.TestDeadLetterQueue(t, func(t testing.TB) storetest.DeadLetterQueueHarness {
		url := schema(t)
		s, proxy := silenced(t, url, patient)
		return storetest.DeadLetterQueueHarness{
			Store: s, DeadLetters: s, Peer: open(t, url, patient), Silence: silence(proxy),
			LoseAnswer: func(testing.TB) { proxy.Next(commitproxy.LoseReply) },
		}
	})
}

func TestLeases(t *testing.T) {
	schema := schemas(t)
	storetest.TestLeases(t, func(t testing.TB) driver.LeaseStore {
		url := schema(t)
		s, proxy := silenced(t, url, nil)
		return leasesAt{s.Leases(), url, proxy}
	}, &storetest.LeasesConfig{ClockBack: clockBack, Silence: func(t testing.TB, store driver.LeaseStore) func() {
		return silence(store.(leasesAt).proxy)(t)
	}})
}

// leasesAt is leases, the URL of their database, and the proxy through which they reach it.
type leasesAt struct {
	*pgstore.Leases
	url   string
	proxy *commitproxy.Proxy
}

// clockBack moves the times of the leases into the future.
func clockBack(t testing.TB, store driver.LeaseStore, by time.Duration) {
	conn, err := pgx.Connect(t.Context(), store.(leasesAt).url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	_, err = conn.Exec(t.Context(), `UPDATE sluice_leases SET renewed_at = renewed_at + $1,
		expires_at = CASE WHEN expires_at > 'epoch' THEN expires_at + $1 ELSE expires_at END`, by)
	if err != nil {
		t.Fatal(err)
	}
}

// The store asks nothing of the role's defaults, of the pool's way to send
// statements, or of the search_path.
func TestOtherSettings(t *testing.T) {
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		t.Run(mode.String(), func(t *testing.T) {
			schema := schemas(t)
			odd := func(t testing.TB, cfg *pgstore.Config) *pgstore.Store {
				return openOddly(t, schema(t), mode, cfg.LockTimeout)
			}
			t.Run("TxStore", func(t *testing.T) {
				storetest.TestTxStore(t, func(t testing.TB) storetest.TxHarness[pgx.Tx] { return harness(t, odd(t, calm), nil) })
			})
			t.Run("CheckpointStore", func(t *testing.T) {
				storetest.TestCheckpoints(t, func(t testing.TB) storetest.CheckpointHarness {
					return storetest.CheckpointHarness{Store: odd(t, patient), Features: storetest.CheckpointFeatures{Ranges: 10_000}}
				})
			})
			t.Run("LetterStore", func(t *testing.T) {
				storetest.TestDeadLetterQueue(t, func(t testing.TB) storetest.DeadLetterQueueHarness {
					s := odd(t, patient)
					return storetest.DeadLetterQueueHarness{Store: s, DeadLetters: s}
				})
			})
		})
	}
}

// openOddly opens a store over a pool whose defaults are all unlike the usual.
func openOddly(t testing.TB, url string, mode pgx.QueryExecMode, lockTimeout time.Duration) *pgstore.Store {
	t.Helper()
	pc, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	pc.ConnConfig.DefaultQueryExecMode = mode
	pc.ConnConfig.RuntimeParams["default_transaction_isolation"] = "serializable"
	pc.ConnConfig.RuntimeParams["default_transaction_read_only"] = "on"
	pc.ConnConfig.RuntimeParams["lock_timeout"] = "1min"
	pool, err := pgxpool.NewWithConfig(t.Context(), pc)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	s, err := pgstore.New(t.Context(), pool, &pgstore.Config{Schema: `odd "` + url[len(url)-8:], LockTimeout: lockTimeout})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

//go:build mariadb

package sqlstore

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/mariadbtest"
	"github.com/sluice-go/sluice/internal/proof/suite"
	"github.com/sluice-go/sluice/storetest"
)

func init() { run = mariadbtest.Run }

// mariaSetUp is setUp in MariaDB's words; it has no deferred constraints.
var mariaSetUp = []string{
	"CREATE TABLE IF NOT EXISTS effects (`key` VARCHAR(200) NOT NULL, part BIGINT)",
	"CREATE TABLE IF NOT EXISTS parents (id BIGINT PRIMARY KEY)",
	"CREATE TABLE IF NOT EXISTS children (id BIGINT PRIMARY KEY AUTO_INCREMENT, now BIGINT REFERENCES parents (id), small BIGINT CHECK (small < 10))",
}

func openMariaDB(t testing.TB, url string, cfg *ServerConfig) *Store {
	t.Helper()
	s, err := OpenMySQL(t.Context(), url, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	for _, statement := range mariaSetUp {
		if _, err := s.DB().ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func mariaHarness(t testing.TB) storetest.TxHarness[*Tx] {
	url := mariadbtest.Database(t)
	cfg := &ServerConfig{LeaseFor: 6 * time.Second, LockTimeout: time.Second}
	s, peer := openMariaDB(t, url, cfg), openMariaDB(t, url, cfg)
	return storetest.TxHarness[*Tx]{
		Store: s, DeadLetters: s, Peer: peer,
		Put: func(ctx context.Context, tx *Tx, key string) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO effects (`key`) VALUES (?)", key)
			return err
		},
		Effects: func(ctx context.Context) ([]string, error) {
			return column[string](ctx, s.reader, "SELECT `key` FROM effects", nil)
		},
		Break: func(ctx context.Context, tx *Tx) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO children (small) VALUES (10)")
			return err
		},
		Missing: func(ctx context.Context, tx *Tx) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO nowhere VALUES (1)")
			return err
		},
		TakeTooLong: func(ctx context.Context, tx *Tx) error {
			_, err := tx.ExecContext(ctx, "SET STATEMENT max_statement_time = 0.05 FOR INSERT INTO effects (`key`) SELECT SLEEP(2)")
			return err
		},
		Features: storetest.TxFeatures{WaitsForOpen: true},
	}
}

func TestMariaDBTxStore(t *testing.T)     { storetest.TestTxStore(t, mariaHarness) }
func TestMariaDBDeadLetters(t *testing.T) { storetest.TestDeadLetterStore(t, mariaHarness) }

func TestMariaDBCheckpointStore(t *testing.T) {
	storetest.TestCheckpoints(t, func(t testing.TB) storetest.CheckpointHarness {
		url := mariadbtest.Database(t)
		return storetest.CheckpointHarness{Store: openMariaDB(t, url, nil), Peer: openMariaDB(t, url, nil), Features: storetest.CheckpointFeatures{Ranges: 10_000}}
	})
}

func TestMariaDBDeadLetterQueue(t *testing.T) {
	storetest.TestDeadLetterQueue(t, func(t testing.TB) storetest.DeadLetterQueueHarness {
		url := mariadbtest.Database(t)
		s := openMariaDB(t, url, nil)
		return storetest.DeadLetterQueueHarness{Store: s, DeadLetters: s, Peer: openMariaDB(t, url, nil)}
	})
}

func TestMariaDBLeases(t *testing.T) {
	storetest.TestLeases(t, func(t testing.TB) driver.LeaseStore {
		return openMariaDB(t, mariadbtest.Database(t), nil).Leases()
	}, &storetest.LeasesConfig{ClockBack: func(t testing.TB, store driver.LeaseStore, by time.Duration) {
		_, err := store.(*Leases).db.ExecContext(t.Context(), fmt.Sprintf(`UPDATE sluice_leases SET
			renewed_at = renewed_at + INTERVAL %d MICROSECOND, expires_at = expires_at + INTERVAL %[1]d MICROSECOND`, by.Microseconds()))
		suite.NoError(t, "set the clock back", err)
	}})
}

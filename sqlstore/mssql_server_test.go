//go:build sqlserver

package sqlstore

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/commitproxy"
	"github.com/sluice-go/sluice/internal/proof/sqlservertest"
	"github.com/sluice-go/sluice/internal/proof/suite"
	"github.com/sluice-go/sluice/internal/proof/tcplink"
	"github.com/sluice-go/sluice/storetest"
)

func init() {
	others := run
	run = func(m *testing.M) int { return sqlservertest.Around(func() int { return others(m) }) }
}

// mssqlSetUp is setUp in T-SQL; it has no deferred constraints.
var mssqlSetUp = []string{
	"IF OBJECT_ID(N'effects', N'U') IS NULL CREATE TABLE effects ([key] nvarchar(200) NOT NULL, part bigint)",
	"IF OBJECT_ID(N'parents', N'U') IS NULL CREATE TABLE parents (id bigint PRIMARY KEY)",
	"IF OBJECT_ID(N'children', N'U') IS NULL CREATE TABLE children (id bigint IDENTITY PRIMARY KEY, now bigint REFERENCES parents (id), small bigint CHECK (small < 10))",
}

func openMSSQL(t testing.TB, address string, cfg *ServerConfig) *Store {
	t.Helper()
	s, err := OpenSQLServer(t.Context(), address, cfg)
	return withTables(t, s, err, mssqlSetUp)
}

const mssqlLock = "UPDATE sluice_checkpoints SET updated_at = updated_at"

func mssqlEffects(ctx context.Context, s *Store) ([]string, error) {
	return collect(ctx, s.reader, func(key *string) []any { return []any{key} }, "SELECT [key] FROM effects", nil)
}

func mssqlPut(ctx context.Context, tx *Tx, key string) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO effects ([key]) VALUES (@p1)", key)
	return err
}

// mssqlSeesSessions reports whether a claim can find out which session holds a row.
func mssqlSeesSessions(t testing.TB, s *Store) bool {
	rows, err := s.DB().QueryContext(t.Context(), "SELECT TOP (1) session_id FROM sys.dm_exec_requests")
	if err != nil {
		t.Logf("claims wait for paused owners: %v", err) // Babelfish does not have the view
		return false
	}
	suite.NoError(t, "close", rows.Close())
	return true
}

func mssqlHarness(t testing.TB) storetest.TxHarness[*Tx] {
	address := sqlservertest.Database(t)
	// Babelfish parses every statement again, and LargeBatch has thousands.
	cfg := &ServerConfig{LeaseFor: 90 * time.Second, LockTimeout: time.Second}
	proxy, through := sqlservertest.NewTestProxy(t, address)
	link, through := linkTo(t, through)
	s, peer := openMSSQL(t, through, cfg), openMSSQL(t, address, cfg)
	return storetest.TxHarness[*Tx]{
		Store: s, DeadLetters: s, Peer: peer,
		Silence: link.Silence, Lock: lockedBy(peer, mssqlLock), Lose: proxy.Lose,
		Put:      mssqlPut,
		Effects:  func(ctx context.Context) ([]string, error) { return mssqlEffects(ctx, s) },
		Break:    breaksCheck,
		Missing:  namesMissing,
		Features: storetest.TxFeatures{WaitsForOpen: !mssqlSeesSessions(t, s)},
	}
}

func TestSQLServerTxStore(t *testing.T)     { storetest.TestTxStore(t, mssqlHarness) }
func TestSQLServerDeadLetters(t *testing.T) { storetest.TestDeadLetterStore(t, mssqlHarness) }

func TestSQLServerCheckpointStore(t *testing.T) {
	storetest.TestCheckpoints(t, func(t testing.TB) storetest.CheckpointHarness {
		address := sqlservertest.Database(t)
		link, through := linkTo(t, address)
		return storetest.CheckpointHarness{Store: openMSSQL(t, through, nil), Peer: openMSSQL(t, address, nil), Silence: link.Silence, Features: storetest.CheckpointFeatures{Ranges: 10_000}}
	})
}

func TestSQLServerDeadLetterQueue(t *testing.T) {
	storetest.TestDeadLetterQueue(t, func(t testing.TB) storetest.DeadLetterQueueHarness {
		address := sqlservertest.Database(t)
		proxy, through := sqlservertest.NewTestProxy(t, address)
		link, through := linkTo(t, through)
		s := openMSSQL(t, through, nil)
		return storetest.DeadLetterQueueHarness{
			Store: s, DeadLetters: s, Peer: openMSSQL(t, address, nil), Silence: link.Silence,
			LoseAnswer: func(testing.TB) { proxy.Next(commitproxy.LoseReply) },
		}
	})
}

func TestSQLServerLeases(t *testing.T) {
	var links sync.Map // by store
	storetest.TestLeases(t, func(t testing.TB) driver.LeaseStore {
		link, through := linkTo(t, sqlservertest.Database(t))
		leases := openMSSQL(t, through, nil).Leases()
		links.Store(leases, link)
		return leases
	}, &storetest.LeasesConfig{
		ClockBack: func(t testing.TB, store driver.LeaseStore, by time.Duration) {
			_, err := store.(*Leases).db.ExecContext(t.Context(), fmt.Sprintf(`UPDATE sluice_leases SET
				renewed_at = DATEADD(millisecond, %d, renewed_at), expires_at = DATEADD(millisecond, %[1]d, expires_at)`, by.Milliseconds()))
			suite.NoError(t, "set the clock back", err)
		},
		Silence: func(t testing.TB, store driver.LeaseStore) (end func()) {
			link, _ := links.Load(store)
			return link.(*tcplink.Link).Silence(t)
		},
	})
}

// TestSQLServerLostCommits: consumers resolve the commits that their networks lose by the checkpoint.
func TestSQLServerLostCommits(t *testing.T) {
	address := sqlservertest.Database(t)
	lossyNetworks(t, openMSSQL(t, address, nil), func() (*Store, *commitproxy.Proxy) {
		proxy, through := sqlservertest.NewTestProxy(t, address)
		return openMSSQL(t, through, &ServerConfig{LockTimeout: time.Second}), proxy
	}, mssqlPut, mssqlEffects)
}

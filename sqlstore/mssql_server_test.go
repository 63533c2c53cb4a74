package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/batchtest"
	"github.com/sluice-go/sluice/internal/proof/commitproxy"
	"github.com/sluice-go/sluice/internal/proof/sqlservertest"
	"github.com/sluice-go/sluice/internal/proof/suite"
	"github.com/sluice-go/sluice/internal/proof/tcplink"
	"github.com/sluice-go/sluice/storetest"
)

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

// mssqlPatient is for cases in which several processes wait for the same rows: on a busy machine
// each of them holds its locks for seconds.
var mssqlPatient = &ServerConfig{LeaseFor: 90 * time.Second, LockTimeout: 20 * time.Second}

// mssqlWorld is what the cases of a suite share, because the first statements of a connection to
// Babelfish cost half a second of a processor: two stores over one database, s through networks
// that can fail.
type mssqlWorld struct {
	s, peer *Store
	proxy   *commitproxy.Proxy
	link    *tcplink.Link
}

func newMSSQLWorld(t *testing.T, cfg *ServerConfig) *mssqlWorld {
	return newMSSQLWorldOf(t, func(t testing.TB, address string) *Store { return openMSSQL(t, address, cfg) }, cfg)
}

func newMSSQLWorldOf(t *testing.T, open func(t testing.TB, address string) *Store, cfg *ServerConfig) *mssqlWorld {
	address := sqlservertest.Database(t)
	w := &mssqlWorld{peer: openMSSQL(t, address, cfg)}
	var through string
	w.proxy, through = sqlservertest.NewTestProxy(t, address)
	w.link, through = linkTo(t, through)
	w.s = open(t, through)
	return w
}

// empty removes what the case before has left: rows, and connections that its network has cut.
func (w *mssqlWorld) empty(t testing.TB) *mssqlWorld {
	t.Helper()
	for _, table := range []string{"sluice_leases", "sluice_checkpoints", "sluice_dead_letters", "sluice_seen", "effects", "children", "parents"} {
		_, err := w.peer.DB().ExecContext(t.Context(), "DELETE FROM "+table)
		suite.NoError(t, "empty "+table, err)
	}
	for _, db := range []*sql.DB{w.s.writer, w.s.reader, w.s.leases.db} {
		suite.Eventually(t, "a connection that works", func() bool { return db.PingContext(t.Context()) == nil })
	}
	return w
}

// mssqlDoors: a procedure may contain what the store cannot see.
func mssqlDoors(t *testing.T, s *Store) []storetest.Door[*Tx] {
	t.Helper()
	var calls []string
	for name, body := range map[string]string{
		"door_commit": "COMMIT", "door_restart": "BEGIN COMMIT; BEGIN TRANSACTION END", "door_again": "BEGIN ROLLBACK; BEGIN TRANSACTION END",
	} {
		mssqlExec(t, s.DB(), "CREATE PROCEDURE "+name+" AS "+body)
		calls = append(calls, "EXEC "+name)
	}
	calls = append(calls, "EXEC(N'COMMIT; BEGIN TRAN')", "EXEC sp_executesql N'COMMIT'", "DECLARE @s nvarchar(9) = N'COMMIT'; EXEC(@s)")
	barred := []string{
		"COMMIT", "COMMIT TRAN", "COMMIT WORK", "ROLLBACK", "ROLLBACK TRANSACTION", "BEGIN TRAN", "BEGIN TRAN; COMMIT", "COMMIT; BEGIN TRAN", "IF 1 = 1 COMMIT", "/* ; */ COMMIT", "-- ;\nCOMMIT",
		"BEGIN TRY COMMIT END TRY BEGIN CATCH END CATCH", "BEGIN DISTRIBUTED TRAN", "SAVE TRAN a", "SAVE TRAN a; ROLLBACK TRAN a", "ROLLBACK TRAN nowhere",
		"SET XACT_ABORT ON", "SET IMPLICIT_TRANSACTIONS ON", "TRUNCATE TABLE parents", "CREATE TABLE #t (n int)",
	}
	return slices.Concat(doorsOf(false, calls...), doorsOf(true, barred...), facesOf(false, "EXEC door_restart"), facesOf(true, "COMMIT"))
}

func mssqlHarness(t *testing.T) func(t testing.TB) storetest.TxHarness[*Tx] {
	// Babelfish parses every statement again, and LargeBatch has thousands.
	return mssqlHarnessOf(t, newMSSQLWorld(t, mssqlPatient))
}

func mssqlHarnessOf(t *testing.T, w *mssqlWorld) func(t testing.TB) storetest.TxHarness[*Tx] {
	endingSoon(w.s)
	endingSoon(w.peer)
	doors := mssqlDoors(t, w.s)
	features := storetest.TxFeatures{WaitsForOpen: !mssqlSeesSessions(t, w.s)}
	return func(t testing.TB) storetest.TxHarness[*Tx] {
		w.empty(t)
		return storetest.TxHarness[*Tx]{
			Store: w.s, DeadLetters: w.s, Peer: w.peer,
			Silence: w.link.Silence, Lock: lockedBy(w.peer, mssqlLock), Lose: w.proxy.Lose,
			Put:      mssqlPut,
			Doors:    doors,
			Effects:  func(ctx context.Context) ([]string, error) { return written(ctx, w.s) },
			Break:    breaksCheck,
			Missing:  namesMissing,
			Features: features,
		}
	}
}

func TestSQLServerTxStore(t *testing.T)     { storetest.TestTxStore(t, mssqlHarness(t)) }
func TestSQLServerDeadLetters(t *testing.T) { storetest.TestDeadLetterStore(t, mssqlHarness(t)) }

func TestSQLServerCheckpointStore(t *testing.T) {
	w := newMSSQLWorld(t, mssqlPatient)
	storetest.TestCheckpoints(t, func(t testing.TB) storetest.CheckpointHarness {
		w.empty(t)
		return storetest.CheckpointHarness{Store: w.s, Peer: w.peer, Silence: w.link.Silence, Features: storetest.CheckpointFeatures{Ranges: 10_000}}
	})
}

func TestSQLServerBatches(t *testing.T) {
	s := newMSSQLWorld(t, mssqlPatient).empty(t).s
	batchtest.Run(t, batchtest.Stores{Store: s, Leases: s.Leases()})
}

func TestSQLServerDeadLetterQueue(t *testing.T) {
	w := newMSSQLWorld(t, mssqlPatient)
	storetest.TestDeadLetterQueue(t, func(t testing.TB) storetest.DeadLetterQueueHarness {
		w.empty(t)
		return storetest.DeadLetterQueueHarness{
			Store: w.s, DeadLetters: w.s, Peer: w.peer, Silence: w.link.Silence,
			LoseAnswer: func(testing.TB) { w.proxy.Next(commitproxy.LoseReply) },
		}
	})
}

func TestSQLServerLeases(t *testing.T) {
	w := newMSSQLWorld(t, mssqlPatient)
	storetest.TestLeases(t, func(t testing.TB) driver.LeaseStore { return w.empty(t).s.Leases() }, &storetest.LeasesConfig{
		ClockBack: func(t testing.TB, store driver.LeaseStore, by time.Duration) {
			_, err := store.(*Leases).db.ExecContext(t.Context(), fmt.Sprintf(`UPDATE sluice_leases SET
				renewed_at = DATEADD(millisecond, %d, renewed_at), expires_at = DATEADD(millisecond, %[1]d, expires_at)`, by.Milliseconds()))
			suite.NoError(t, "set the clock back", err)
		},
		Silence: func(t testing.TB, _ driver.LeaseStore) (end func()) { return w.link.Silence(t) },
	})
}

// TestSQLServerLostCommits: consumers resolve the commits that their networks lose by the
// checkpoint.
func TestSQLServerLostCommits(t *testing.T) {
	address := sqlservertest.Database(t)
	lossyNetworks(t, openMSSQL(t, address, nil), func() (*Store, *commitproxy.Proxy) {
		proxy, through := sqlservertest.NewTestProxy(t, address)
		return openMSSQL(t, through, &ServerConfig{LockTimeout: time.Second}), proxy
	}, mssqlPut)
}

package sqlstore

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	mssql "github.com/microsoft/go-mssqldb"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/commitproxy"
	"github.com/sluice-go/sluice/internal/proof/keyedtest"
	"github.com/sluice-go/sluice/internal/proof/mariadbtest"
	"github.com/sluice-go/sluice/internal/proof/need"
	"github.com/sluice-go/sluice/internal/proof/pgtest"
	"github.com/sluice-go/sluice/internal/proof/sqlservertest"
	"github.com/sluice-go/sluice/internal/proof/suite"
	"github.com/sluice-go/sluice/storetest"
)

func TestPostgresHandle(t *testing.T) {
	eachHandle(t, handles, postgresHandles, func(t *testing.T, w handleWorld) {
		schema := postgresSchemas(t)
		proxied := func(t testing.TB, url string, cfg *ServerConfig) (*Store, *commitproxy.Proxy, storetest.Silence) {
			proxy, through := pgtest.NewTestProxy(t, url)
			return w.store(t, through, cfg), proxy, func(testing.TB) func() {
				proxy.Stall()
				return proxy.Resume
			}
		}
		tx := func(t testing.TB) storetest.TxHarness[*Tx] {
			url := schema(t)
			s, proxy, silence := proxied(t, url, patient)
			peer := openPostgres(t, url, patient)
			h := postgresTxHarness(endingSoon(s), endingSoon(peer))
			h.Silence, h.Lock, h.Lose = silence, lockedBy(peer, postgresLock), proxy.Lose
			for i := range h.Doors { // whether a backslash escapes is not known
				h.Doors[i].Refused = h.Doors[i].Refused && h.Doors[i].Name != "escaped COMMIT"
			}
			return h
		}
		storetest.TestTxStore(t, tx)
		storetest.TestDeadLetterStore(t, tx)
		storetest.TestCheckpoints(t, func(t testing.TB) storetest.CheckpointHarness {
			url := schema(t)
			s, _, silence := proxied(t, url, nil)
			return storetest.CheckpointHarness{Store: s, Peer: openPostgres(t, url, nil), Silence: silence, Features: storetest.CheckpointFeatures{Ranges: 10_000}}
		})
		storetest.TestDeadLetterQueue(t, func(t testing.TB) storetest.DeadLetterQueueHarness {
			url := schema(t)
			s, proxy, silence := proxied(t, url, nil)
			return storetest.DeadLetterQueueHarness{
				Store: s, DeadLetters: s, Peer: openPostgres(t, url, nil), Silence: silence,
				LoseAnswer: func(testing.TB) { proxy.Next(commitproxy.LoseReply) },
			}
		})
		var silent silenced
		storetest.TestLeases(t, func(t testing.TB) driver.LeaseStore {
			s, _, silence := proxied(t, schema(t), nil)
			return silent.leasesOf(s, silence)
		}, &storetest.LeasesConfig{Silence: silent.silence})
	})
}

func TestPostgresHandleUpsert(t *testing.T) {
	eachHandle(t, handles, postgresHandles, func(t *testing.T, w handleWorld) {
		keyedtest.Run(t, func(t testing.TB) keyedtest.Harness {
			url := pgtest.Database(t)
			keyedtest.SetUpPostgres(t, url)
			return keyedHarness(t, w.store(t, url, nil), keyedtest.Postgres)
		})
	})
}

func TestPostgresHandleLostCommits(t *testing.T) {
	eachHandle(t, handles, postgresHandles, func(t *testing.T, w handleWorld) {
		address := pgtest.Database(t)
		lossyNetworks(t, openPostgres(t, address, nil), func() (*Store, *commitproxy.Proxy) {
			proxy, through := pgtest.NewTestProxy(t, address)
			return w.store(t, through, &ServerConfig{LockTimeout: time.Second}), proxy
		}, postgresPut)
	})
}

// mysqlHandles has handles as programs make them: without clientFoundRows and with prepared
// statements.
func mysqlHandles(wrap func(sqldriver.Connector) *sql.DB) handleWorld {
	return handleWorld{
		handle: func(t testing.TB, url string) *sql.DB {
			mc, err := parseMySQLAddress(url)
			suite.NoError(t, "parse", err)
			connector, err := mysql.NewConnector(mc)
			suite.NoError(t, "make a connector", err)
			return ofTest(t, wrap(connector))
		},
		open: func(t testing.TB, db *sql.DB, cfg *ServerConfig) *Store {
			s, err := NewMySQL(t.Context(), db, cfg)
			return withTables(t, s, err, mariaSetUp)
		},
	}
}

func TestMariaDBHandle(t *testing.T) {
	eachHandle(t, hidden(), mysqlHandles, func(t *testing.T, w handleWorld) {
		linked := func(t testing.TB, address string, cfg *ServerConfig) (*Store, *commitproxy.Proxy, storetest.Silence) {
			proxy, through := mariadbtest.NewTestProxy(t, address)
			link, through := linkTo(t, through)
			return w.store(t, through, cfg), proxy, link.Silence
		}
		tx := func(t testing.TB) storetest.TxHarness[*Tx] {
			h := mariaHarness(t)
			address := mariadbtest.Database(t)
			cfg := &ServerConfig{LeaseFor: 6 * time.Second, LockTimeout: patient.LockTimeout}
			s, proxy, silence := linked(t, address, cfg)
			peer := openMariaDB(t, address, cfg)
			h.Store, h.DeadLetters, h.Peer = s, s, peer
			h.Silence, h.Lock, h.ReadOnly, h.Lose = silence, lockedBy(peer, mariaLock), mariaReadOnly(peer), proxy.Lose
			h.Doors = mariaDoors(t, peer)
			h.Effects = func(ctx context.Context) ([]string, error) { return written(ctx, s) }
			return h
		}
		storetest.TestTxStore(t, tx)
		storetest.TestDeadLetterStore(t, tx)
		storetest.TestCheckpoints(t, func(t testing.TB) storetest.CheckpointHarness {
			address := mariadbtest.Database(t)
			s, _, silence := linked(t, address, nil)
			return storetest.CheckpointHarness{Store: s, Peer: openMariaDB(t, address, nil), Silence: silence, Features: storetest.CheckpointFeatures{Ranges: 10_000}}
		})
		storetest.TestDeadLetterQueue(t, func(t testing.TB) storetest.DeadLetterQueueHarness {
			address := mariadbtest.Database(t)
			s, proxy, silence := linked(t, address, nil)
			return storetest.DeadLetterQueueHarness{
				Store: s, DeadLetters: s, Peer: openMariaDB(t, address, nil), Silence: silence,
				LoseAnswer: func(testing.TB) { proxy.Next(commitproxy.LoseReply) },
			}
		})
		var silent silenced
		storetest.TestLeases(t, func(t testing.TB) driver.LeaseStore {
			s, _, silence := linked(t, mariadbtest.Database(t), nil)
			return silent.leasesOf(s, silence)
		}, &storetest.LeasesConfig{Silence: silent.silence})
	})
}

func TestMariaDBHandleUpsert(t *testing.T) {
	eachHandle(t, hidden(), mysqlHandles, func(t *testing.T, w handleWorld) {
		keyedtest.Run(t, func(t testing.TB) keyedtest.Harness {
			return keyedHarness(t, w.store(t, mariadbtest.Database(t), nil), keyedtest.MySQL)
		})
	})
}

func TestMariaDBHandleLostCommits(t *testing.T) {
	eachHandle(t, hidden(), mysqlHandles, func(t *testing.T, w handleWorld) {
		address := mariadbtest.Database(t)
		lossyNetworks(t, openMariaDB(t, address, nil), func() (*Store, *commitproxy.Proxy) {
			proxy, through := mariadbtest.NewTestProxy(t, address)
			return w.store(t, through, &ServerConfig{LockTimeout: time.Second}), proxy
		}, mariaPut)
	})
}

// A step leaves the session of a borrowed connection as it was, also after its failure.
func TestMariaDBHandleSession(t *testing.T) {
	w := mysqlHandles(handles["Plain"])
	address := mariadbtest.Database(t)
	db := w.handle(t, address)
	db.SetMaxOpenConns(least)
	s := w.open(t, db, nil)
	settings := func(db *sql.DB) (text string) {
		const query = "SELECT CONCAT_WS(' ', @@tx_isolation, @@wait_timeout, @@innodb_lock_wait_timeout, @@lock_wait_timeout, @@net_read_timeout, @@net_write_timeout, @@autocommit)"
		suite.NoError(t, "read the settings", db.QueryRowContext(t.Context(), query).Scan(&text))
		return text
	}
	before := settings(w.handle(t, address))
	for _, result := range []error{nil, errors.New("no")} {
		var within string
		err := inNextEpoch(t, s, func(ctx context.Context, tx *Tx) error {
			suite.NoError(t, "read", tx.QueryRowContext(ctx, "SELECT CONCAT_WS(' ', @@tx_isolation, @@wait_timeout, @@lock_wait_timeout)").Scan(&within))
			return result
		})
		if (err == nil) != (result == nil) || within != "READ-COMMITTED 30 5" {
			t.Errorf("a step returned %v, with the settings %s", err, within)
		}
		for range least { // the pool uses the last returned connection first, but not always
			if after := settings(db); after != before {
				t.Errorf("after a step the session has %s, before it %s", after, before)
			}
		}
	}
	if n := db.Stats().InUse; n != 0 {
		t.Errorf("%d connections are still borrowed", n)
	}
}

// What a handle to a server lacks is said by name, and with what to do; nothing has been made then.
func TestMariaDBHandleRefused(t *testing.T) {
	address := mariadbtest.Database(t)
	for change, says := range map[string]string{
		"sql_mode=''":    "add STRICT_TRANS_TABLES to sql_mode",
		"charset=latin1": "add charset=utf8mb4",
		"autocommit=0":   "remove autocommit=0",
		"few":            "raise SetMaxOpenConns",
		"loc":            "remove loc from the data source name, or set it to UTC",
		"errors":         "a wrapper that keeps its errors",
	} {
		mc, err := parseMySQLAddress(address)
		suite.NoError(t, "parse", err)
		hide := func(err error) error { return err }
		switch name, value, _ := strings.Cut(change, "="); name {
		case "loc":
			mc.ParseTime, mc.Loc = true, time.FixedZone("east", 3600)
		case "charset":
			mc, err = mysql.ParseDSN(mc.FormatDSN() + "?charset=latin1")
			suite.NoError(t, "parse", err)
		case "errors":
			hide = func(err error) error { return errors.New(err.Error()) }
		case "few":
		default:
			mc.Params = map[string]string{name: value}
		}
		connector, err := mysql.NewConnector(mc)
		suite.NoError(t, "make a connector", err)
		db := ofTest(t, sql.OpenDB(hidingConnector{connector, hide}))
		if change == "few" {
			db.SetMaxOpenConns(least - 1)
		}
		s, err := NewMySQL(t.Context(), db, nil)
		saysAll(t, change, err, says)
		if err == nil {
			s.Close()
		}
	}
}

func TestPostgresHandleRefused(t *testing.T) {
	address := pgtest.Database(t)
	w := postgresHandles(func(c sqldriver.Connector) *sql.DB {
		return sql.OpenDB(hidingConnector{c, func(err error) error { return errors.New(err.Error()) }})
	})
	_, err := NewPostgres(t.Context(), w.handle(t, address), nil)
	saysAll(t, "errors without a code", err, "have no SQLSTATE", "use pgx's stdlib or lib/pq")
	plain := postgresHandles(handles["Plain"])
	_, err = NewPostgres(t.Context(), plain.handle(t, address+"&default_transaction_read_only=on"), nil)
	saysAll(t, "sessions that are read-only", err, "default_transaction_read_only", "switch that off")
	_, err = NewSQLite(plain.handle(t, address), nil)
	saysAll(t, "of another database", err, "this store needs modernc.org/sqlite")
	few := plain.handle(t, address)
	few.SetMaxOpenConns(1)
	_, err = NewPostgres(t.Context(), few, nil)
	saysAll(t, "one connection", err, "raise SetMaxOpenConns")
}

// A handler sees what a step sets in PostgreSQL, and the handle's session does not keep it.
func TestPostgresHandleSession(t *testing.T) {
	w := postgresHandles(handles["Plain"])
	db := w.handle(t, pgtest.Database(t)+"&default_transaction_isolation=serializable")
	s := w.open(t, db, nil)
	const query = "SELECT concat_ws(' ', current_setting('transaction_isolation'), current_setting('lock_timeout'), current_setting('idle_in_transaction_session_timeout'))"
	var within, after string
	suite.NoError(t, "step", inNextEpoch(t, s, func(ctx context.Context, tx *Tx) error {
		return tx.QueryRowContext(ctx, query).Scan(&within)
	}))
	suite.NoError(t, "read", db.QueryRowContext(t.Context(), query).Scan(&after))
	if within != "read committed 5s 30s" || after != "serializable 0 0" {
		t.Errorf("a step has %q, and the session keeps %q", within, after)
	}
}

// A connection of the handle that the server has ended while it was idle is replaced before a step.
func TestPostgresHandleStale(t *testing.T) {
	address := pgtest.Database(t)
	w := postgresHandles(handles["Wrapped"])
	db, other := w.handle(t, address), openPostgres(t, address, nil)
	s := w.open(t, db, nil)
	for range 3 {
		_, err := other.DB().ExecContext(t.Context(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name <> 'sluice'")
		suite.NoError(t, "end the sessions", err)
		lease := nextEpoch(t, other)
		err = s.Commit(t.Context(), driver.Step{Lease: lease, From: driver.Unset, To: positionAt(9)}, func(ctx context.Context, tx *Tx) error { return postgresPut(ctx, tx, "x") })
		suite.NoError(t, "step on a connection that was ended", err)
	}
}

// mssqlHandles has handles as programs make them.
func mssqlHandles(wrap func(sqldriver.Connector) *sql.DB) handleWorld {
	return handleWorld{
		handle: func(t testing.TB, url string) *sql.DB {
			connector, err := mssql.NewConnector(url)
			suite.NoError(t, "make a connector", err)
			return ofTest(t, wrap(connector))
		},
		open: func(t testing.TB, db *sql.DB, cfg *ServerConfig) *Store {
			s, err := NewSQLServer(t.Context(), db, cfg)
			return withTables(t, s, err, mssqlSetUp)
		},
	}
}

func TestSQLServerHandle(t *testing.T) {
	need.EveryDatabase(t, "has the lost COMMITs of such a handle, and these suites of the other databases' handles")
	eachHandle(t, hidden(), mssqlHandles, func(t *testing.T, w handleWorld) {
		world := newMSSQLWorldOf(t, func(t testing.TB, address string) *Store { return w.store(t, address, mssqlPatient) }, mssqlPatient)
		tx := mssqlHarnessOf(t, world)
		storetest.TestTxStore(t, tx)
		storetest.TestDeadLetterStore(t, tx)
		storetest.TestCheckpoints(t, func(t testing.TB) storetest.CheckpointHarness {
			world.empty(t)
			return storetest.CheckpointHarness{Store: world.s, Peer: world.peer, Silence: world.link.Silence, Features: storetest.CheckpointFeatures{Ranges: 10_000}}
		})
		storetest.TestDeadLetterQueue(t, func(t testing.TB) storetest.DeadLetterQueueHarness {
			world.empty(t)
			for _, s := range []*Store{world.s, world.peer} { // Babelfish takes a second to notice a deadlock
				s.busy = mssqlPatient.LockTimeout
			}
			return storetest.DeadLetterQueueHarness{
				Store: world.s, DeadLetters: world.s, Peer: world.peer, Silence: world.link.Silence,
				LoseAnswer: func(testing.TB) { world.proxy.Next(commitproxy.LoseReply) },
			}
		})
		storetest.TestLeases(t, func(t testing.TB) driver.LeaseStore { return world.empty(t).s.Leases() }, &storetest.LeasesConfig{
			Silence: func(t testing.TB, _ driver.LeaseStore) (end func()) { return world.link.Silence(t) },
		})
	})
}

func TestSQLServerHandleUpsert(t *testing.T) {
	need.EveryDatabase(t, "has it of a store that opens SQL Server itself")
	eachHandle(t, hidden(), mssqlHandles, func(t *testing.T, w handleWorld) {
		keyedtest.Run(t, func(t testing.TB) keyedtest.Harness {
			return keyedHarness(t, w.store(t, sqlservertest.Database(t), nil), keyedtest.SQLServer)
		})
	})
}

func TestSQLServerHandleLostCommits(t *testing.T) {
	eachHandle(t, hidden(), mssqlHandles, func(t *testing.T, w handleWorld) {
		address := sqlservertest.Database(t)
		lossyNetworks(t, openMSSQL(t, address, nil), func() (*Store, *commitproxy.Proxy) {
			proxy, through := sqlservertest.NewTestProxy(t, address)
			return w.store(t, through, &ServerConfig{LockTimeout: time.Second}), proxy
		}, mssqlPut)
	})
}

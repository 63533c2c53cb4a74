package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/batchtest"
	"github.com/sluice-go/sluice/internal/proof/commitproxy"
	"github.com/sluice-go/sluice/internal/proof/mariadbtest"
	"github.com/sluice-go/sluice/internal/proof/suite"
	"github.com/sluice-go/sluice/internal/proof/tcplink"
	"github.com/sluice-go/sluice/internal/selfsigned"
	"github.com/sluice-go/sluice/storetest"
)

// mariaSetUp is setUp in MariaDB's words; it has no deferred constraints.
var mariaSetUp = []string{
	"CREATE TABLE IF NOT EXISTS effects (`key` VARCHAR(200) NOT NULL, part BIGINT)",
	"CREATE TABLE IF NOT EXISTS parents (id BIGINT PRIMARY KEY)",
	"CREATE TABLE IF NOT EXISTS children (id BIGINT PRIMARY KEY AUTO_INCREMENT, now BIGINT REFERENCES parents (id), small BIGINT CHECK (small < 10))",
}

func openMariaDB(t testing.TB, url string, cfg *ServerConfig) *Store {
	t.Helper()
	s, err := OpenMySQL(t.Context(), url, cfg)
	return withTables(t, s, err, mariaSetUp)
}

const mariaLock = "SELECT 1 FROM sluice_checkpoints FOR UPDATE"

// mariaReadOnly makes the tables of a store's database refuse writes, as those of a replica do.
func mariaReadOnly(s *Store) storetest.Silence {
	return func(t testing.TB) (end func()) {
		conn, err := s.DB().Conn(context.WithoutCancel(t.Context()))
		suite.NoError(t, "connect", err)
		_, err = conn.ExecContext(t.Context(), "LOCK TABLES sluice_checkpoints READ, sluice_dead_letters READ, sluice_seen READ")
		suite.NoError(t, "lock the tables", err)
		return func() {
			_, err := conn.ExecContext(context.WithoutCancel(t.Context()), "UNLOCK TABLES")
			suite.NoError(t, "unlock the tables", err)
			suite.NoError(t, "close", conn.Close())
		}
	}
}

func mariaPut(ctx context.Context, tx *Tx, key string) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO effects (`key`) VALUES (?)", key)
	return err
}

// mariaDoors: a procedure may contain what the store cannot see.
func mariaDoors(t testing.TB, s *Store) []storetest.Door[*Tx] {
	t.Helper()
	var calls []string
	for name, body := range map[string]string{
		"hidden_commit": "COMMIT", "hidden_ddl": "TRUNCATE parents", "hidden_autocommit": "BEGIN SET autocommit = 0; SET autocommit = 1; END", "hidden_rollback": "ROLLBACK",
		"hidden_restart":  "BEGIN COMMIT; START TRANSACTION; END",
		"hidden_again":    "BEGIN ROLLBACK; START TRANSACTION; END",
		"hidden_chain":    "COMMIT AND CHAIN",
		"hidden_own_name": "BEGIN ROLLBACK; START TRANSACTION; INSERT INTO effects (`key`) VALUES ('more'); COMMIT; SAVEPOINT sluice_; END",
	} {
		suite.NoError(t, name, execute(t.Context(), s.DB(), "CREATE PROCEDURE "+name+"() "+body))
		calls = append(calls, "CALL "+name+"()")
	}
	// Statements that commit by themselves, and those that only look like it: the step succeeds.
	barred := []string{
		"COMMIT", "COMMIT AND CHAIN", "ROLLBACK", "ROLLBACK AND CHAIN", "BEGIN", "START TRANSACTION", "COMMIT; BEGIN", "SELECT 1; COMMIT", "/*! COMMIT */", "/* ; */ COMMIT", "-- ;\nCOMMIT", "# ;\nCOMMIT",
		"BEGIN NOT ATOMIC COMMIT; END", "SET autocommit = 1", "SET @@autocommit := 1", "SET SESSION sql_mode = @@sql_mode, autocommit = ON", "XA START 'x'", "XA END 'x'", "XA COMMIT 'x' ONE PHASE",
		"CREATE TABLE other (n INT)", "DROP TABLE IF EXISTS other", "TRUNCATE parents", "CREATE INDEX i ON parents (id)", "ALTER TABLE parents COMMENT 'x'", "RENAME TABLE nowhere TO here", "LOCK TABLES effects WRITE", "UNLOCK TABLES",
		"FLUSH TABLES", "ANALYZE TABLE parents", "OPTIMIZE TABLE parents", "CHECK TABLE parents", "CACHE INDEX parents IN hot", "LOAD INDEX INTO CACHE parents",
		"GRANT SELECT ON *.* TO nobody", "CREATE TEMPORARY TABLE IF NOT EXISTS t (n INT)", "DROP TEMPORARY TABLE IF EXISTS t",
		"SAVEPOINT a", "RELEASE SAVEPOINT nowhere", "ROLLBACK TO SAVEPOINT nowhere", "ROLLBACK WORK TO SAVEPOINT nowhere", "SET completion_type = 1", "SET completion_type = 2", "SET completion_type = 0",
	}
	hidden := []string{"EXECUTE IMMEDIATE 'COMMIT'", "EXECUTE IMMEDIATE 'TRUNCATE parents'", "IF 1 = 1 THEN COMMIT; END IF", "CASE 1 WHEN 1 THEN COMMIT; END CASE", "WHILE @@in_transaction DO COMMIT; END WHILE"}
	twice := storetest.Door[*Tx]{Name: "PREPARE, EXECUTE", End: func(ctx context.Context, tx *Tx) error {
		return errors.Join(execute(ctx, tx, "PREPARE ends FROM 'COMMIT'"), execute(ctx, tx, "EXECUTE ends"))
	}}
	return append(slices.Concat(doorsOf(false, calls...), doorsOf(false, hidden...), doorsOf(true, barred...), facesOf(false, "CALL hidden_restart()"), facesOf(true, "COMMIT"), facesOf(true, "TRUNCATE parents")), twice)
}

func mariaHarness(t testing.TB) storetest.TxHarness[*Tx] {
	address := mariadbtest.Database(t)
	cfg := &ServerConfig{LeaseFor: 6 * time.Second, LockTimeout: patient.LockTimeout}
	proxy, through := mariadbtest.NewTestProxy(t, address)
	link, through := linkTo(t, through)
	s, peer := openMariaDB(t, through, cfg), openMariaDB(t, address, cfg)
	return storetest.TxHarness[*Tx]{
		Store: s, DeadLetters: s, Peer: peer,
		Silence: link.Silence, Lock: lockedBy(peer, mariaLock), ReadOnly: mariaReadOnly(peer), Lose: proxy.Lose,
		Put:     mariaPut,
		Doors:   mariaDoors(t, peer),
		Effects: func(ctx context.Context) ([]string, error) { return written(ctx, s) },
		Break:   breaksCheck,
		Missing: namesMissing,
		TakeTooLong: func(ctx context.Context, tx *Tx) error {
			var version, rows string
			if err := tx.QueryRowContext(ctx, "SELECT VERSION()").Scan(&version); err != nil {
				return err
			}
			if strings.Contains(version, "MariaDB") {
				_, err := tx.ExecContext(ctx, "SET STATEMENT max_statement_time = 0.05 FOR INSERT INTO effects (`key`) SELECT SLEEP(2)")
				return err
			}
			return tx.QueryRowContext(ctx, "SELECT /*+ MAX_EXECUTION_TIME(50) */ COUNT(*) FROM information_schema.columns AS a, information_schema.columns AS b, information_schema.columns AS c").Scan(&rows)
		},
		Features: storetest.TxFeatures{WaitsForOpen: true},
	}
}

func TestMariaDBTxStore(t *testing.T)     { storetest.TestTxStore(t, mariaHarness) }
func TestMariaDBDeadLetters(t *testing.T) { storetest.TestDeadLetterStore(t, mariaHarness) }

func TestMariaDBCheckpointStore(t *testing.T) {
	storetest.TestCheckpoints(t, func(t testing.TB) storetest.CheckpointHarness {
		address := mariadbtest.Database(t)
		link, through := linkTo(t, address)
		return storetest.CheckpointHarness{Store: openMariaDB(t, through, nil), Peer: openMariaDB(t, address, nil), Silence: link.Silence, Features: storetest.CheckpointFeatures{Ranges: 10_000}}
	})
}

func TestMariaDBBatches(t *testing.T) {
	s := openMariaDB(t, mariadbtest.Database(t), nil)
	batchtest.Run(t, batchtest.Stores{Store: s, Leases: s.Leases()})
}

func TestMariaDBDeadLetterQueue(t *testing.T) {
	storetest.TestDeadLetterQueue(t, func(t testing.TB) storetest.DeadLetterQueueHarness {
		address := mariadbtest.Database(t)
		proxy, through := mariadbtest.NewTestProxy(t, address)
		link, through := linkTo(t, through)
		s := openMariaDB(t, through, nil)
		return storetest.DeadLetterQueueHarness{
			Store: s, DeadLetters: s, Peer: openMariaDB(t, address, nil), Silence: link.Silence,
			LoseAnswer: func(testing.TB) { proxy.Next(commitproxy.LoseReply) },
		}
	})
}

func TestMariaDBLeases(t *testing.T) {
	var links sync.Map // by store
	storetest.TestLeases(t, func(t testing.TB) driver.LeaseStore {
		link, through := linkTo(t, mariadbtest.Database(t))
		leases := openMariaDB(t, through, nil).Leases()
		links.Store(leases, link)
		return leases
	}, &storetest.LeasesConfig{
		ClockBack: func(t testing.TB, store driver.LeaseStore, by time.Duration) {
			_, err := store.(*Leases).db.ExecContext(t.Context(), fmt.Sprintf(`UPDATE sluice_leases SET
				renewed_at = renewed_at + INTERVAL %d MICROSECOND, expires_at = expires_at + INTERVAL %[1]d MICROSECOND`, by.Microseconds()))
			suite.NoError(t, "set the clock back", err)
		},
		Silence: func(t testing.TB, store driver.LeaseStore) (end func()) {
			link, _ := links.Load(store)
			return link.(*tcplink.Link).Silence(t)
		},
	})
}

// TestMariaDBLostCommits: consumers resolve the commits that their networks lose by the checkpoint.
func TestMariaDBLostCommits(t *testing.T) {
	address := mariadbtest.Database(t)
	lossyNetworks(t, openMariaDB(t, address, nil), func() (*Store, *commitproxy.Proxy) {
		proxy, through := mariadbtest.NewTestProxy(t, address)
		return openMariaDB(t, through, &ServerConfig{LockTimeout: time.Second}), proxy
	}, mariaPut)
}

// TestMariaDBSilentEnd: a server that falls silent before COMMIT makes the outcome unknown, and one
// that does so before ROLLBACK holds nothing up, within a third of the lease each.
func TestMariaDBSilentEnd(t *testing.T) {
	link, through := linkTo(t, mariadbtest.Database(t))
	s := openMariaDB(t, through, &ServerConfig{LeaseFor: 3 * time.Second, LockTimeout: time.Second})
	silentEnds(t, link, s, 15*time.Second)
	// The lease's own transaction.
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	over := suite.Spawn(t, func() error {
		_, err := s.Leases().Acquire(ctx, group, "1", "a", time.Minute, 0)
		return err
	})
	link.Swallow()
	<-over // whatever came of it, it has ended
}

// TestMariaDBLostSession: a session that the server ends in the handler, and a deadlock that the
// handler ignores, are outages: nothing is written, and the event is not at fault.
func TestMariaDBLostSession(t *testing.T) {
	s := openMariaDB(t, mariadbtest.Database(t), nil)
	lease := driver.Lease{Group: group, Partition: "0", Owner: "a", Epoch: 1}
	if _, err := s.Claim(t.Context(), lease, "1"); err != nil {
		t.Fatal(err)
	}
	err := s.Commit(t.Context(), driver.Step{Lease: lease, From: driver.Unset, To: positionAt(9)}, func(ctx context.Context, tx *Tx) error {
		var id int64
		if err := tx.QueryRowContext(ctx, "SELECT CONNECTION_ID()").Scan(&id); err != nil {
			return err
		}
		_, err := s.DB().ExecContext(ctx, fmt.Sprintf("KILL %d", id))
		suite.NoError(t, "kill", err)
		_, _ = tx.ExecContext(ctx, "INSERT INTO effects (`key`) VALUES ('x')")
		return nil
	})
	mustNotBlame(t, "session that was killed", err)
	err = s.Commit(t.Context(), driver.Step{Lease: lease, From: driver.Unset, To: positionAt(9)}, func(ctx context.Context, tx *Tx) error {
		return put(ctx, tx, "y")
	})
	if err == nil {
		t.Fatal("put writes `key` without quotes, which MariaDB refuses")
	}
	mustNameStatement(t, "syntax", err)
}

// TestMariaDBDeadlockIsIgnored: a deadlock rolls the transaction back, and MariaDB would commit by
// itself what the handler writes after it.
func TestMariaDBDeadlockIsIgnored(t *testing.T) {
	s := openMariaDB(t, mariadbtest.Database(t), nil)
	exec := func(q querier, statement string) error { return execute(t.Context(), q, statement) }
	suite.NoError(t, "set up", exec(s.DB(), "INSERT INTO parents VALUES (1), (2)"))
	err := inNextEpoch(t, s, func(ctx context.Context, tx *Tx) error {
		suite.NoError(t, "lock 1", exec(tx, "SELECT * FROM parents WHERE id = 1 FOR UPDATE"))
		other, err := s.DB().Conn(ctx)
		suite.NoError(t, "connect", err)
		defer other.Close()
		suite.NoError(t, "begin", exec(other, "START TRANSACTION"))
		// MariaDB rolls back the transaction that has written less.
		suite.NoError(t, "write", exec(other, "INSERT INTO parents SELECT seq FROM seq_100_to_200"))
		suite.NoError(t, "lock 2", exec(other, "SELECT * FROM parents WHERE id = 2 FOR UPDATE"))
		others := make(chan error)
		go func() { others <- exec(other, "SELECT * FROM parents WHERE id = 1 FOR UPDATE") }()
		// Whichever of the two waits first, this one is rolled back.
		if err := exec(tx, "SELECT * FROM parents WHERE id = 2 FOR UPDATE"); err == nil || !strings.Contains(err.Error(), "1213") {
			t.Errorf("deadlock: %v", err)
		}
		suite.NoError(t, "the other one", <-others)
		suite.NoError(t, "end", exec(other, "ROLLBACK"))
		_ = exec(tx, "INSERT INTO effects (`key`) VALUES ('x')")
		return nil
	})
	mustNotBlame(t, "deadlock that is ignored", err)
	if keys, err := written(t.Context(), s); err != nil || len(keys) > 0 {
		t.Errorf("effects %q, %v: written although the step failed", keys, err)
	}
}

// TestMariaDBMigrationLock: the process that has made the tables does not keep the lock.
func TestMariaDBMigrationLock(t *testing.T) {
	s := openMariaDB(t, mariadbtest.Database(t), nil)
	var free bool
	if _, err := one(t.Context(), s.writer, "SELECT IS_FREE_LOCK(CONCAT('sluice ', MD5(DATABASE())))", nil, &free); err != nil || !free {
		t.Errorf("free %t, %v", free, err)
	}
}

// TestMariaDBInsert: Insert quotes names that are reserved words, and a batch may be larger than
// the server's largest packet; a value that is larger is the handler's failure and no outage.
func TestMariaDBInsert(t *testing.T) {
	s := openMariaDB(t, mariadbtest.Database(t), nil)
	_, err := s.DB().ExecContext(t.Context(), "CREATE TABLE `large partition` (`partition` VARCHAR(9), body LONGTEXT)")
	suite.NoError(t, "create table", err)
	insert := func(rows, size int) error {
		row := []any{"0", strings.Repeat("x", size)}
		return inNextEpoch(t, s, func(ctx context.Context, tx *Tx) error {
			return tx.Insert(ctx, "large partition", []string{"partition", "body"}, slices.Repeat([][]any{row}, rows))
		})
	}
	suite.NoError(t, "insert small rows", insert(1100, 1))
	suite.NoError(t, "insert 20 MB", insert(450, 45_000))
	var n int
	if _, err := one(t.Context(), s.reader, "SELECT COUNT(*) FROM `large partition`", nil, &n); err != nil || n != 1550 {
		t.Errorf("%d rows, %v; want 1550", n, err)
	}
	err = insert(1, 17<<20)
	if failed := (*driver.HandlerError)(nil); !errors.As(err, &failed) {
		t.Errorf("insert a row of 17 MB: %v; want the handler's failure", err)
	}
}

// TestMariaDBRowsLeftOpen: a connection takes one statement at a time. The handler's error says so.
func TestMariaDBRowsLeftOpen(t *testing.T) {
	s := openMariaDB(t, mariadbtest.Database(t), nil)
	_, err := s.DB().ExecContext(t.Context(), "INSERT INTO parents VALUES (1), (2)")
	suite.NoError(t, "set up", err)
	for _, then := range []string{"", "INSERT INTO effects (`key`) VALUES ('x')"} {
		err := inNextEpoch(t, s, func(ctx context.Context, tx *Tx) error {
			rows, err := tx.QueryContext(ctx, "SELECT id FROM parents")
			suite.NoError(t, "query", err)
			if !rows.Next() {
				t.Errorf("no row: %v", rows.Err())
			}
			if then != "" {
				_, err = tx.ExecContext(ctx, then)
			}
			return err
		})
		if failed := (*driver.HandlerError)(nil); !errors.As(err, &failed) || !errors.Is(err, errRowsOpen) {
			t.Errorf("rows left open, then %q: %v", then, err)
		}
	}
	suite.NoError(t, "rows read to the end", inNextEpoch(t, s, func(ctx context.Context, tx *Tx) error {
		rows, err := tx.QueryContext(ctx, "SELECT id FROM parents")
		suite.NoError(t, "query", err)
		for rows.Next() {
		}
		_, err = tx.ExecContext(ctx, "INSERT INTO effects (`key`) VALUES ('x')")
		return err
	}))
}

// TestMariaDBSilence: a server that is silent from some moment of a step on does not hold up the
// step, whether the step's context ends or not.
func TestMariaDBSilence(t *testing.T) {
	t.Parallel()
	link, through := linkTo(t, mariadbtest.Database(t))
	// The end of a session by the server would not arrive.
	s := openMariaDB(t, through+"?wait_timeout=600", &ServerConfig{LeaseFor: 9 * time.Second, LockTimeout: time.Second})
	silentSteps(t, link, s, 30*time.Second, func(when string, ran bool, err error) {
		mustNotBlame(t, when, err)
		if ran != strings.Contains(when, "handler") {
			t.Errorf("silence %s: the handler ran: %t; %v", when, ran, err)
		}
	})
}

// TestMariaDBCheck: what prevents a start is found without changing anything, in one line that says
// what to do, without the password.
func TestMariaDBCheck(t *testing.T) {
	address, err := mariadbtest.New(t, nil).CreateDatabase(t.Context(), "checked")
	suite.NoError(t, "create a database", err)
	suite.NoError(t, "check an empty database", CheckMySQL(t.Context(), address, nil))
	connector, err := MySQLConnector(address)
	suite.NoError(t, "make a connector", err)
	db := sql.OpenDB(connector)
	defer db.Close()
	var tables int
	suite.NoError(t, "count the tables", db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE()").Scan(&tables))
	if tables != 0 {
		t.Errorf("the check has made %d tables", tables)
	}
	u, err := url.Parse(address)
	suite.NoError(t, "read the URL", err)
	edited := func(edit func(u *url.URL)) string {
		c := *u
		edit(&c)
		return c.String()
	}
	link, through := linkTo(t, address)
	link.Silence(t)
	for name, c := range map[string]struct{ address, want string }{
		"password": {edited(func(u *url.URL) { u.User = url.UserPassword("sluice", "canary") }), "Access denied for user 'sluice'@'127.0.0.1' (using password: YES): check user and password"},
		"database": {edited(func(u *url.URL) { u.Path = "/nowhere" }), "Unknown database 'nowhere': create the database, or correct its name"},
		"port":     {edited(func(u *url.URL) { u.Host = "127.0.0.1:1" }), "connection refused: check host and port, and whether the server runs"},
		"TLS":      {edited(func(u *url.URL) { u.RawQuery = "tls=true" }), "server does not support TLS: configure TLS in the server (ssl_cert, ssl_key)"},
		"setting":  {edited(func(u *url.URL) { u.RawQuery = "nonsense=1" }), "Unknown system variable 'nonsense': correct the parameter in the URL"},
		"silent":   {through + "?timeout=1s", "no answer within 1s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			password, _ := u.User.Password()
			cannotStart(t, c.address, password, []string{c.want}, CheckMySQL, OpenMySQL, MySQLConnector)
		})
	}
}

// TestMariaDBTLS: a certificate is checked, against the file that the URL names.
func TestMariaDBTLS(t *testing.T) {
	certificate, err := selfsigned.New(&selfsigned.Config{Hosts: []string{"127.0.0.1"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)})
	suite.NoError(t, "make a certificate", err)
	dir, err := os.MkdirTemp("", "sluice-tls-") // whose parents the server's user may enter
	suite.NoError(t, "make a directory", err)
	t.Cleanup(func() { suite.NoError(t, "remove the directory", os.RemoveAll(dir)) })
	suite.NoError(t, "open the directory to the server's user", os.Chmod(dir, 0o755))
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	suite.NoError(t, "write the certificate", os.WriteFile(cert, certificate.CertPEM, 0o644))
	suite.NoError(t, "write the key", os.WriteFile(key, certificate.KeyPEM, 0o644))
	server := mariadbtest.New(t, &mariadbtest.Config{Options: []string{"--ssl-cert=" + cert, "--ssl-key=" + key}})
	address, err := server.CreateDatabase(t.Context(), "secure")
	suite.NoError(t, "create a database", err)
	connector, err := MySQLConnector(address + "?tls_ca_file=" + url.QueryEscape(cert))
	suite.NoError(t, "make a connector", err)
	db := sql.OpenDB(connector)
	defer db.Close()
	_, err = db.ExecContext(t.Context(), "SET GLOBAL require_secure_transport = ON")
	suite.NoError(t, "require TLS", err)
	for parameters, want := range map[string]string{
		"?tls_ca_file=" + url.QueryEscape(cert): "",
		"?tls=skip-verify":                      "",
		"?tls=true":                             "certificate signed by unknown authority: add tls_ca_file=FILE to the URL",
		"":                                      "for a server that requires TLS, add tls=true to the URL",
	} {
		err := CheckMySQL(t.Context(), address+parameters, nil)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", parameters, err, want)
		}
	}
}

// TestMariaDBPausedOwner: the server ends the session of an owner that is paused in a step after
// the length of the lease, so that a rival gets the checkpoint soon after it has got the lease.
func TestMariaDBPausedOwner(t *testing.T) {
	t.Parallel()
	address := mariadbtest.Database(t)
	const leaseFor = 4 * time.Second
	s, rival := openMariaDB(t, address, &ServerConfig{LeaseFor: leaseFor, LockTimeout: patient.LockTimeout}), openMariaDB(t, address, patient)
	_, err := rival.Claim(t.Context(), leaseOf("0", "a", 1), "1")
	suite.NoError(t, "claim", err)
	holdStep(t, s, leaseOf("0", "a", 1))
	paused := time.Now()
	b := leaseOf("0", "b", 2)
	suite.Eventually(t, "the rival has claimed", func() bool { _, err := rival.Claim(t.Context(), b, "1"); return err == nil })
	suite.NoError(t, "commit", rival.Commit(t.Context(), driver.Step{Lease: b, From: driver.Unset, To: positionAt(1)}, nil))
	took := time.Since(paused)
	t.Logf("the rival committed %v after the pause, with a lease of %v", took.Round(10*time.Millisecond), leaseFor)
	if took > leaseFor+10*time.Second {
		t.Errorf("the rival committed %v after the pause", took)
	}
}

// TestMariaDBMigration: tables of version 1 get their new column, also if a process ended between
// that and the note of the new version.
func TestMariaDBMigration(t *testing.T) {
	address := mariadbtest.Database(t)
	s := openMariaDB(t, address, nil)
	parkOne(t, s, 1)
	for _, undo := range []string{"ALTER TABLE sluice_dead_letters DROP KEY sluice_dead_letters_copied, DROP COLUMN copied", "DO 0"} {
		for _, statement := range []string{undo, "UPDATE sluice_schema SET version = 1 WHERE component = 'store'"} {
			if _, err := s.DB().ExecContext(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
		}
		later := openMariaDB(t, address, nil)
		if v, oldest := version(t, later); v != 3 || oldest != 1 {
			t.Errorf("after %s: version %d, oldest %d; want 3, 1", undo, v, oldest)
		}
		wantUncopied(t, later, 1)
	}
}

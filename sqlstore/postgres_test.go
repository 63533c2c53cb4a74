package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/commitproxy"
	"github.com/sluice-go/sluice/internal/proof/need"
	"github.com/sluice-go/sluice/internal/proof/pgtest"
	"github.com/sluice-go/sluice/internal/proof/suite"
	"github.com/sluice-go/sluice/pgstore"
	"github.com/sluice-go/sluice/sluicetest"
	"github.com/sluice-go/sluice/storetest"
)

// TestPostgresBesidePgstore: a store over database/sql and one over pgx work on the same tables, in
// turn and side by side: what one has written, the other reads and goes on from.
func TestPostgresBesidePgstore(t *testing.T) {
	address := pgtest.Database(t)
	over, err := pgstore.Open(t.Context(), address, nil)
	suite.NoError(t, "open over pgx", err)
	defer over.Close()
	s := openPostgres(t, address, nil)
	type store interface {
		driver.CheckpointStore
		driver.DeadLetterQueue
		driver.DeadLetterStore
		RecordAttempt(ctx context.Context, lease driver.Lease, at driver.Position, attempt driver.AttemptRecord) error
		ReadDedup(ctx context.Context, group driver.Group, partition string) ([]driver.DedupState, error)
	}
	type side struct {
		store
		leases driver.LeaseStore
		commit func(step driver.Step) error
	}
	sides := []side{
		{over, over.Leases(), func(step driver.Step) error { return over.Commit(t.Context(), step, nil) }},
		{s, s.Leases(), func(step driver.Step) error { return s.Commit(t.Context(), step, nil) }},
	}
	position, epoch := driver.Unset, int64(0)
	for round := range 6 {
		one, other := sides[round%2], sides[(round+1)%2]
		owner := fmt.Sprint("owner ", round)
		lease, err := one.leases.Acquire(t.Context(), group, "0", owner, time.Minute, 0)
		suite.NoError(t, "acquire", err)
		if lease.Epoch <= epoch {
			t.Errorf("round %d: epoch %d after %d", round, lease.Epoch, epoch)
		}
		epoch = lease.Epoch
		if _, err := other.leases.Acquire(t.Context(), group, "0", "another", time.Minute, 0); !errors.Is(err, driver.ErrHeld) {
			t.Errorf("round %d: acquire what is held: %v", round, err)
		}
		suite.NoError(t, "renew by the other", other.leases.Renew(t.Context(), lease, time.Minute))
		cp, err := one.Claim(t.Context(), lease, "1")
		suite.NoError(t, "claim", err)
		if cp.Position.Sequence != position.Sequence || cp.Claims != 1 && round > 0 && position != driver.Unset && cp.Claims != 2 {
			t.Errorf("round %d: claimed %+v, want %v", round, cp, position)
		}
		if cp.Attempt.Attempts != round%2 && round > 0 {
			t.Errorf("round %d: attempts %+v", round, cp.Attempt)
		}
		next := driver.Position{Sequence: position.Sequence + 10, Offset: fmt.Sprint("at ", round)}
		enqueued := time.Date(2026, 1, 2, 3, 4, 5, 678_901_000, time.UTC)
		letter := driver.DeadLetter{Group: group, Incarnation: "1", Error: "no", Attempts: 3, Status: driver.StatusRetry, HasBody: true, FailedAt: enqueued,
			Event: driver.Event{Partition: "0", Sequence: next.Sequence, Body: []byte("body"), Key: "k", Properties: map[string]any{"n": int64(round)}}}
		suite.NoError(t, "commit", one.commit(driver.Step{Lease: lease, From: cp.Position, To: next, DeadLetters: []driver.DeadLetter{letter},
			Dedup: []driver.DedupState{{Origin: "b/0", Epoch: 1, Top: int64(round), At: enqueued, IDs: "0:1", Forget: -1}}}))
		due, err := other.Due(t.Context(), group, "0", 10)
		if err != nil || len(due) != 1 || due[0].Event.Properties["n"] != int64(round) || !due[0].FailedAt.Equal(enqueued) || !due[0].Event.Enqueued.IsZero() || string(due[0].Event.Body) != "body" {
			t.Fatalf("round %d: due are %+v, %v", round, due, err)
		}
		if seen, err := other.ReadDedup(t.Context(), group, "0"); err != nil || len(seen) != round+1 || !seen[round].At.Equal(enqueued) {
			t.Errorf("round %d: seen %+v, %v", round, seen, err)
		}
		suite.NoError(t, "redrive", other.commit(driver.Step{Lease: lease, From: next, To: next, Redriven: []int64{due[0].ID}}))
		suite.NoError(t, "advance", other.Advance(t.Context(), lease, "1", next, []driver.SequenceRange{{First: next.Sequence + 2, Last: next.Sequence + 5}}))
		if again, err := one.Claim(t.Context(), lease, "1"); err != nil || len(again.Done) != 1 || again.Position != next {
			t.Errorf("round %d: claimed again %+v, %v; want %v and a range that is done", round, again, err, next)
		}
		if round%2 == 0 {
			suite.NoError(t, "record", other.RecordAttempt(t.Context(), lease, next, driver.AttemptRecord{Sequence: next.Sequence + 1, Attempts: 1}))
		}
		suite.NoError(t, "release", one.leases.Release(t.Context(), lease))
		if err := other.leases.Renew(t.Context(), lease, time.Minute); !errors.Is(err, driver.ErrFenced) {
			t.Errorf("round %d: renew what was released: %v", round, err)
		}
		position = next
	}
	var old driver.Step
	old.Lease, old.From, old.To = driver.Lease{Group: group, Partition: "0", Owner: "owner 0", Epoch: 1}, position, positionAt(99)
	for _, side := range sides {
		if err := side.commit(old); !errors.Is(err, driver.ErrFenced) {
			t.Errorf("commit of an earlier owner: %v", err)
		}
	}
}

// TestPostgresHandlerEndsTransaction: a handler cannot end its transaction, and a savepoint is no
// end.
func TestPostgresHandlerEndsTransaction(t *testing.T) {
	s := openPostgres(t, pgtest.Database(t), nil)
	suite.NoError(t, "create", execute(t.Context(), s.DB(), "CREATE PROCEDURE hidden() LANGUAGE plpgsql AS 'BEGIN COMMIT; END'"))
	for _, statement := range []string{"COMMIT", "ROLLBACK", "SELECT 1; END", "PREPARE TRANSACTION 'x'", "ABORT AND CHAIN", "/* */ COMMIT", "CALL hidden()", "DO 'BEGIN COMMIT; END'"} {
		err := inNextEpoch(t, s, func(ctx context.Context, tx *Tx) error {
			suite.NoError(t, "put", postgresPut(ctx, tx, "x"))
			if err := execute(ctx, tx, statement); err == nil {
				t.Errorf("%s: no error", statement)
			} else {
				return err
			}
			return nil
		})
		mustBlame(t, statement, err)
		mustWriteNothing(t, statement, s)
	}
	suite.NoError(t, "savepoint", inNextEpoch(t, s, func(ctx context.Context, tx *Tx) error {
		suite.NoError(t, "save", execute(ctx, tx, "SAVEPOINT a"))
		if err := postgresPut(ctx, tx, "a"); err != nil {
			return err
		}
		if err := breaksCheck(ctx, tx); err == nil {
			t.Error("a violated check is no error")
		}
		suite.NoError(t, "roll back", execute(ctx, tx, "ROLLBACK TO SAVEPOINT a"))
		return postgresPut(ctx, tx, "b")
	}))
	if keys, err := written(t.Context(), s); err != nil || len(keys) != 1 || keys[0] != "b" {
		t.Errorf("savepoint: effects %q, %v", keys, err)
	}
}

// TestPostgresIgnoredErrors: an error that the handler ignores has aborted the transaction. It is
// the handler's failure, or the database's if the error is.
func TestPostgresIgnoredErrors(t *testing.T) {
	s := openPostgres(t, pgtest.Database(t), nil)
	for statement, blamed := range map[string]bool{
		"INSERT INTO children (small) VALUES (10)": true,
		"SELECT 1/0":                                    true,
		"INSERT INTO nowhere VALUES (1)":                true,
		"DO 'BEGIN RAISE deadlock_detected; END'":       false,
		"DO 'BEGIN RAISE serialization_failure; END'":   false,
		"SELECT pg_terminate_backend(pg_backend_pid())": false,
	} {
		for _, after := range []string{"nothing", "another statement", "an error of its own"} {
			err := inNextEpoch(t, s, func(ctx context.Context, tx *Tx) error {
				suite.NoError(t, "put", postgresPut(ctx, tx, "x"))
				if err := execute(ctx, tx, statement); err == nil {
					t.Errorf("%s: no error", statement)
				}
				switch after {
				case "another statement":
					return postgresPut(ctx, tx, "y")
				case "an error of its own":
					return errors.New("no")
				}
				return nil
			})
			if statement == "INSERT INTO nowhere VALUES (1)" {
				mustNameStatement(t, statement+", then "+after, err)
				if after == "nothing" {
					saysAll(t, statement, err, `relation "nowhere" does not exist`)
				}
			} else if blamed {
				mustBlame(t, statement+", then "+after, err)
			} else {
				mustNotBlame(t, statement+", then "+after, err)
			}
			mustWriteNothing(t, statement, s)
		}
	}
}

// TestPostgresIdleHandler: the server ends the session of a handler that computes for longer than
// the lease. That is a time limit, which counts against an event that is alone.
func TestPostgresIdleHandler(t *testing.T) {
	t.Parallel()
	address := pgtest.Database(t)
	s, other := openPostgres(t, address, &ServerConfig{LeaseFor: 5 * time.Second}), openPostgres(t, address, nil)
	for _, writes := range []bool{false, true} {
		// On a busy machine the session may end before it idles, but not before the handler.
		err := s.Commit(t.Context(), driver.Step{Lease: nextEpoch(t, other), From: driver.Unset, To: positionAt(9)}, func(ctx context.Context, tx *Tx) error {
			var pid int32
			if err := tx.QueryRowContext(ctx, "SELECT pg_backend_pid()").Scan(&pid); err != nil {
				return err
			}
			suite.Eventually(t, "the session is gone", func() bool {
				var n int
				suite.NoError(t, "count", other.DB().QueryRowContext(ctx, "SELECT count(*) FROM pg_stat_activity WHERE pid = $1", pid).Scan(&n))
				return n == 0
			})
			if writes {
				return postgresPut(ctx, tx, "x")
			}
			return nil
		})
		mustNotBlame(t, "idle handler", err)
		if !errors.Is(err, driver.ErrTimeLimit) {
			t.Errorf("writes %t: %v, want ErrTimeLimit", writes, err)
		}
		mustWriteNothing(t, "idle handler", other)
	}
}

// TestPostgresClaimEndsPaused: a claim, and an operator who sets a checkpoint, end the session of
// an owner that is paused in a step, within their own time. Claims that wait together do not end
// each other, and one whose lease has been lost ends nothing.
func TestPostgresClaimEndsPaused(t *testing.T) {
	t.Parallel()
	address := pgtest.Database(t)
	// What holds a checkpoint is ended after six seconds. Another claim holds it for less than
	// three.
	opened := func() *Store {
		s := openPostgres(t, address, patient)
		s.busy = 12 * time.Second
		return s
	}
	s := opened()
	claim := func(s *Store, owner string, epoch int64) error {
		_, err := s.Claim(t.Context(), leaseOf("0", owner, epoch), "1")
		return err
	}
	suite.NoError(t, "claim", claim(s, "a", 1))
	holdStep(t, s, leaseOf("0", "a", 1))
	const n = 4
	errs := make(chan error)
	for i := range n {
		other := opened()
		go func() { errs <- claim(other, fmt.Sprint("b", i), int64(2+i)) }()
	}
	wins := 0
	for range n {
		switch err := <-errs; {
		case err == nil:
			wins++
		case !errors.Is(err, driver.ErrFenced):
			t.Errorf("claim: %v, want that it succeeds or is fenced", err)
		}
	}
	if list, err := s.Read(t.Context(), group); err != nil || len(list) != 1 || list[0].Epoch != 1+n || wins == 0 {
		t.Errorf("checkpoints are %+v, %v; %d claims succeeded; want the highest epoch, %d", list, err, wins, 1+n)
	}

	latest := leaseOf("0", fmt.Sprint("b", n-1), 1+n)
	suite.NoError(t, "commit beside claims that come too late", s.Commit(t.Context(), driver.Step{Lease: latest, From: driver.Unset, To: positionAt(1)}, func(context.Context, *Tx) error {
		for _, epoch := range []int64{1, 1 + n} {
			err := claim(s, "a", epoch)
			if fenced, ok := errors.AsType[*driver.FencedError](err); !ok || fenced.Owner != latest.Owner || fenced.Epoch != latest.Epoch {
				t.Errorf("claim in epoch %d: %v, want a FencedError that names the owner", epoch, err)
			}
		}
		return nil
	}))

	again, err := s.Reset(t.Context(), group, "0", "1", driver.Unset, "set")
	suite.NoError(t, "reset", err)
	suite.NoError(t, "claim", claim(s, "c", again+1))
	holdStep(t, s, leaseOf("0", "c", again+1))
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 12*time.Second) // of which a quarter is less than six seconds
	defer cancel()
	if epoch, err := s.Reset(ctx, group, "0", "1", positionAt(7), "set"); err != nil || epoch != again+2 {
		t.Errorf("reset after %v: epoch %d, %v", time.Since(began), epoch, err)
	}
}

// TestPostgresClaimSparesQueue: a claim that waits behind another one ends the session that both
// wait for.
func TestPostgresClaimSparesQueue(t *testing.T) {
	address := pgtest.Database(t)
	s, hurried := openPostgres(t, address, &ServerConfig{LockTimeout: time.Hour}), endingSoon(openPostgres(t, address, patient))
	claim := func(s *Store, owner string, epoch int64) error {
		_, err := s.Claim(t.Context(), leaseOf("0", owner, epoch), "1")
		return err
	}
	suite.NoError(t, "claim", claim(s, "a", 1))
	holdStep(t, s, leaseOf("0", "a", 1))
	first := suite.Spawn(t, func() error { return claim(s, "b", 2) })
	suite.Eventually(t, "the first claim waits", func() bool {
		var n int
		suite.NoError(t, "count", s.DB().QueryRowContext(t.Context(), "SELECT count(*) FROM pg_locks WHERE NOT granted").Scan(&n))
		return n > 0
	})
	suite.NoError(t, "claim behind it", claim(hurried, "c", 3))
	suite.NoError(t, "first claim", <-first)
}

// TestPostgresClaimMayNot: a claim ends no session of another user, also if it may. It says whose
// it is, and what to do.
func TestPostgresClaimMayNot(t *testing.T) {
	address := pgtest.Database(t)
	cfg := &ServerConfig{LockTimeout: 5 * time.Second}
	s := endingSoon(openPostgres(t, address, cfg))
	for _, statement := range []string{
		"DROP ROLE IF EXISTS feeble", "CREATE ROLE feeble LOGIN PASSWORD 'feeble'",
		"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO feeble",
	} {
		suite.NoError(t, statement, execute(t.Context(), s.DB(), statement))
	}
	t.Cleanup(func() { execute(context.Background(), s.DB(), "DROP OWNED BY feeble; DROP ROLE feeble") })
	_, err := s.Claim(t.Context(), leaseOf("0", "a", 1), "1")
	suite.NoError(t, "claim", err)
	holdStep(t, s, leaseOf("0", "a", 1))
	u, err := url.Parse(address)
	suite.NoError(t, "read the URL", err)
	u.User = url.UserPassword("feeble", "feeble")
	feeble, err := OpenPostgres(t.Context(), u.String(), cfg) // needs no right to create anything
	suite.NoError(t, "open", err)
	defer feeble.Close()
	endingSoon(feeble)
	b := leaseOf("0", "b", 2)
	_, err = feeble.Claim(t.Context(), b, "1")
	mustNotBlame(t, "claim", err)
	saysAll(t, "claim", err, "55P03", `of user sluice (application "sluice") holds the checkpoint`, "SELECT pg_terminate_backend(")
	epoch, err := s.Reset(t.Context(), group, "0", "1", driver.Unset, "set")
	suite.NoError(t, "reset by the user of the session", err)

	b.Epoch = epoch + 1
	_, err = feeble.Claim(t.Context(), b, "1")
	suite.NoError(t, "claim", err)
	suite.NoError(t, "step beside a claim of a user with all rights", feeble.Commit(t.Context(), driver.Step{Lease: b, From: driver.Unset, To: positionAt(1)}, func(context.Context, *Tx) error {
		_, err := s.Claim(t.Context(), leaseOf("0", "c", b.Epoch+1), "1")
		mustNotBlame(t, "claim", err)
		saysAll(t, "claim", err, "55P03", `of user feeble (application "sluice") holds the checkpoint`)
		return nil
	}))
}

// TestPostgresOtherSettings: the store asks nothing of the session's defaults.
func TestPostgresOtherSettings(t *testing.T) {
	schema := postgresSchemas(t)
	odd := "&default_transaction_isolation=serializable&default_transaction_read_only=on&lock_timeout=60000&default_query_exec_mode=exec"
	storetest.TestTxStore(t, func(t testing.TB) storetest.TxHarness[*Tx] {
		address := schema(t)
		return postgresTxHarness(openPostgres(t, address+odd, nil), nil)
	})
}

// TestPostgresPooler: a PgBouncer in transaction mode may be between, which refuses startup
// parameters.
func TestPostgresPooler(t *testing.T) {
	through := pgtest.PgBouncer(t, "transaction")
	cfg := &ServerConfig{MaxConns: 4, LockTimeout: 20 * time.Second}
	t.Run("TxStore", func(t *testing.T) {
		storetest.TestTxStore(t, func(t testing.TB) storetest.TxHarness[*Tx] {
			address := through(pgtest.Database(t))
			return postgresTxHarness(endingSoon(openPostgres(t, address, cfg)), endingSoon(openPostgres(t, address, cfg)))
		})
	})
	t.Run("Leases", func(t *testing.T) {
		storetest.TestLeases(t, func(t testing.TB) driver.LeaseStore {
			return openPostgres(t, through(pgtest.Database(t)), cfg).Leases()
		}, nil)
	})
}

// TestPostgresSchema: the tables may be in a schema of their own, which a handler's search_path
// does not change.
func TestPostgresSchema(t *testing.T) {
	const name = `Odd "name".x`
	s := openPostgres(t, pgtest.Database(t), &ServerConfig{Schema: name})
	suite.NoError(t, "create", execute(t.Context(), s.DB(), "CREATE SCHEMA elsewhere"))
	suite.NoError(t, "step", inNextEpoch(t, s, func(ctx context.Context, tx *Tx) error {
		if err := postgresPut(ctx, tx, "x"); err != nil {
			return err
		}
		return execute(ctx, tx, "SET search_path TO elsewhere")
	}))
	var tables int
	suite.NoError(t, "count", s.DB().QueryRowContext(t.Context(), "SELECT count(*) FROM pg_tables WHERE schemaname = $1", name).Scan(&tables))
	if tables != 5 {
		t.Errorf("%d tables in schema %s, want 5", tables, name)
	}
}

// TestPostgresInsert: Insert copies rows, quotes names, and names the row that the database refuses
// or that cannot be sent.
func TestPostgresInsert(t *testing.T) {
	s := openPostgres(t, pgtest.Database(t), nil)
	suite.NoError(t, "create", execute(t.Context(), s.DB(), `CREATE TABLE "a ""quoted"" table" ("order by" bigint, "?" text, small int CHECK (small < 10), at timestamptz, body bytea)`))
	const table = `a "quoted" table`
	columns := []string{"order by", "?", "small", "at", "body"}
	rows := func(n int) [][]any {
		list := make([][]any, n)
		for i := range list {
			list[i] = []any{i, fmt.Sprint("row ", i), sql.NullInt64{Int64: int64(i % 10), Valid: i%3 > 0}, time.Now(), []byte{byte(i)}}
		}
		return list
	}
	total := 0
	for _, n := range []int{0, 1, 3000} {
		suite.NoError(t, "insert", inNextEpoch(t, s, func(ctx context.Context, tx *Tx) error { return tx.Insert(ctx, table, columns, rows(n)) }))
		total += n
	}
	var got int
	suite.NoError(t, "count", s.DB().QueryRowContext(t.Context(), `SELECT count(*) FROM public."a ""quoted"" table"`).Scan(&got))
	if got != total {
		t.Errorf("%d rows, want %d", got, total)
	}
	for what, bad := range map[string]any{"a violated check": 10, "no number": "x"} {
		for _, n := range []int{1, 3000} {
			err := inNextEpoch(t, s, func(ctx context.Context, tx *Tx) error {
				list := rows(n)
				list[n/2][2] = bad
				return tx.Insert(ctx, "public."+table, columns, list)
			})
			mustBlame(t, what, err)
			if row, ok := errors.AsType[*RowError](err); !ok || row.Row != n/2 {
				t.Errorf("%s in row %d: %v", what, n/2, err)
			}
		}
	}
	suite.NoError(t, "create", execute(t.Context(), s.DB(), `
		CREATE FUNCTION even() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN IF NEW.part % 2 = 0 THEN RETURN NEW; END IF; RETURN NULL; END';
		CREATE TRIGGER even BEFORE INSERT ON effects FOR EACH ROW EXECUTE FUNCTION even()`))
	err := inNextEpoch(t, s, func(ctx context.Context, tx *Tx) error {
		return tx.Insert(ctx, "effects", []string{"key", "part"}, [][]any{{"x", 2}, {"x", 3}, {"x", 4}})
	})
	mustBlame(t, "a row that a trigger leaves out", err)
	saysAll(t, "a row that a trigger leaves out", err, "2 of 3 rows were written: a trigger", "use INSERT statements")
	for _, c := range []struct{ table, column string }{{"nowhere", "key"}, {"effects", "kex"}} {
		err := inNextEpoch(t, s, func(ctx context.Context, tx *Tx) error {
			return tx.Insert(ctx, c.table, []string{c.column}, [][]any{{"x"}})
		})
		mustNameStatement(t, c.table, err)
		saysAll(t, c.table, err, "insert into "+c.table, "is missing: create it")
	}
}

// TestPostgresStandby: a failover moves the primary's address while connections to the other server
// stay: they are given up when that turns out to be a standby, so that the next attempt reaches the
// primary.
func TestPostgresStandby(t *testing.T) {
	primary := pgtest.New(t, nil)
	address, err := primary.CreateDatabase(t.Context(), "flights")
	suite.NoError(t, "create a database", err)
	proxy, through := pgtest.NewTestProxy(t, address)
	s := openPostgres(t, through+"&target_session_attrs=any", &ServerConfig{MaxConns: 1})
	lease := leaseOf("0", "a", 1)
	_, err = s.Claim(t.Context(), lease, "1")
	suite.NoError(t, "claim", err)
	standby := primary.NewStandby(t)
	for name, call := range map[string]func() error{
		"commit": func() error {
			return s.Commit(t.Context(), driver.Step{Lease: lease, From: driver.Unset, To: positionAt(1)}, func(ctx context.Context, tx *Tx) error { return postgresPut(ctx, tx, "1") })
		},
		"acquire": func() error { _, err := s.Leases().Acquire(t.Context(), group, "0", "a", 0, 0); return err },
	} {
		proxy.Retarget(standby.Addr())
		proxy.Cut()
		suite.Eventually(t, "the store has reached the standby", func() bool {
			err := call()
			return err != nil && strings.Contains(err.Error(), "recovery")
		})
		proxy.Retarget(primary.Addr())
		suite.NoError(t, name+" on the connections to a standby, after the address moved to the primary", call())
	}
}

// TestPostgresErrors: what prevents a start is one line without the password.
func TestPostgresErrors(t *testing.T) {
	address := pgtest.Database(t)
	u, err := url.Parse(address)
	suite.NoError(t, "read the URL", err)
	u.User = url.UserPassword("sluice", "canary")
	for _, c := range []struct{ address, want string }{
		{u.String(), "28P01): check user and password"},
		{"postgres://u:canary@127.0.0.1:1/db", "connection refused: check host and port, and whether the server runs"},
		{"postgres://u:canary@host/db?sslmode=strict", "sslmode"},
		{address + "&search_path=nowhere", u.Host + ", database " + strings.Trim(u.Path, "/") + ", as sluice: no schema in the role's search_path exists: name one"},
	} {
		_, err := OpenPostgres(t.Context(), c.address, nil)
		saysAll(t, c.want, err, c.want)
		if err != nil && strings.Contains(err.Error(), "canary") {
			t.Errorf("the error shows the password: %v", err)
		}
	}
}

// TestPostgresLostCommits: consumers work through a hub over a network that loses commits in every
// way, one over database/sql and one over pgx. Each event's effect is there once.
func TestPostgresLostCommits(t *testing.T) {
	const partitions, events = 3, 600
	address := pgtest.Database(t)
	direct := openPostgres(t, address, nil)
	hub := sluicetest.NewHub(group, partitions)
	for p := range partitions {
		for range events {
			hub.Append(fmt.Sprint(p), &driver.Event{Body: []byte("x")})
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	seed := need.Seed(t)
	var proxies []*commitproxy.Proxy
	var over []<-chan error
	for i := range 2 {
		proxy, through := pgtest.NewTestProxy(t, address)
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		proxy.OnCommit(func(int) commitproxy.Fault {
			if n := random.IntN(20); n > 0 && n < 4 {
				return commitproxy.Fault(n)
			}
			return commitproxy.None
		})
		proxies = append(proxies, proxy)
		cfg := &sluice.Config{Owner: fmt.Sprint("consumer ", i), LeaseFor: time.Second, AssignEvery: 20 * time.Millisecond, MaxBatch: 20,
			RetryMin: time.Millisecond, RetryMax: 20 * time.Millisecond, Seed: uint64(i) + 1}
		var consumer *sluice.Consumer
		var err error
		if i == 0 {
			s := openPostgres(t, through, &ServerConfig{LeaseFor: time.Second, LockTimeout: time.Second})
			consumer, err = sluice.New(hub, s.Leases(), sluice.Transactional(s, func(ctx context.Context, tx *Tx, b sluice.Batch) error {
				rows := make([][]any, len(b.Events))
				for i, e := range b.Events {
					rows[i] = []any{fmt.Sprint(b.Partition, "/", e.Sequence)}
				}
				return tx.Insert(ctx, "effects", []string{"key"}, rows)
			}), cfg)
		} else {
			s, oerr := pgstore.Open(t.Context(), through, &pgstore.Config{LeaseFor: time.Second, LockTimeout: 50 * time.Millisecond})
			suite.NoError(t, "open over pgx", oerr)
			defer s.Close()
			consumer, err = sluice.New(hub, s.Leases(), sluice.Transactional(s, sluice.Each(func(ctx context.Context, tx pgx.Tx, e *driver.Event) error {
				_, err := tx.Exec(ctx, "INSERT INTO effects (key) VALUES ($1)", fmt.Sprint(e.Partition, "/", e.Sequence))
				return err
			})), cfg)
		}
		suite.NoError(t, "make a consumer", err)
		over = append(over, suite.Spawn(t, func() error { return consumer.Run(ctx) }))
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(3 * time.Minute)
	for done := 0; done < partitions; {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("not done after 3 minutes")
		}
		for _, p := range proxies {
			p.Deliver()
		}
		list, err := direct.Read(t.Context(), group)
		suite.NoError(t, "read", err)
		done = 0
		for _, cp := range list {
			if cp.Position.Sequence == events-1 {
				done++
			}
		}
	}
	cancel()
	for _, o := range over {
		<-o
	}
	var rows, distinct int
	suite.NoError(t, "count", direct.DB().QueryRowContext(t.Context(), "SELECT count(*), count(DISTINCT key) FROM effects").Scan(&rows, &distinct))
	if rows != partitions*events || distinct != rows {
		need.Verdict(t)
		t.Errorf("%d effects of %d events, want %d", rows, distinct, partitions*events)
	}
}

// TestPostgresFaults: what the SQLSTATEs mean.
func TestPostgresFaults(t *testing.T) {
	for code, want := range map[string]fault{
		"40001": faultBusy, "40P01": faultBusy, "55P03": faultRefused, "25006": faultRefused, "53100": faultRefused, "57P03": faultRefused,
		"57014": faultTimeLimit, "25P03": faultTimeLimit, "42P01": faultOpen, "42501": faultOpen, "23505": faultConstraint, "22001": faultConstraint,
		"P0001": faultConstraint, "57P01": faultBroken, "40003": faultBroken, "XX001": faultOpen, "08006": faultBroken, postgresAborted: faultStatement,
	} {
		e := &pgconn.PgError{Code: code, ConstraintName: "x"}
		if got := (&postgresDialect{}).fault(fmt.Errorf("wrapped: %w", e)); got != want {
			t.Errorf("%s: %d, want %d", code, got, want)
		}
	}
	// A session may end after the commit.
	for _, code := range []string{"53100", "53200", "57P03", "25006", "55P03", "40001"} {
		if got := (&postgresDialect{}).fault(&pgconn.PgError{Code: code, Severity: "PANIC"}); got != faultBroken {
			t.Errorf("PANIC %s: %d, want %d", code, got, faultBroken)
		}
	}
}

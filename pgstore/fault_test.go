package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/commitproxy"
	"github.com/sluice-go/sluice/internal/proof/need"
	"github.com/sluice-go/sluice/internal/proof/pgtest"
	"github.com/sluice-go/sluice/pgstore"
)

// quick makes claims impatient; a claim then has ten times as long to end the
// session in its way, also on a busy machine.
var quick = &pgstore.Config{LockTimeout: time.Second}

// proxied opens a store through a proxy, and one beside it that sees the truth.
func proxied(t testing.TB) (*commitproxy.Proxy, *pgstore.Store, *pgstore.Store) {
	t.Helper()
	return proxiedWith(t, quick)
}

func proxiedWith(t testing.TB, cfg *pgstore.Config) (*commitproxy.Proxy, *pgstore.Store, *pgstore.Store) {
	t.Helper()
	url := pgtest.Database(t)
	proxy, through := pgtest.NewTestProxy(t, url)
	direct := open(t, url, cfg)
	createEffects(t, direct)
	return proxy, open(t, through, cfg), direct
}

func TestCommitNeverArrives(t *testing.T) {
	proxy, s, direct := proxied(t)
	a := lease("a", 1)
	claim(t, s, a)
	proxy.Next(commitproxy.CutBefore)
	if err := commit(t.Context(), s, a, driver.Unset, positionAt(1), "1"); !errors.Is(err, driver.ErrUnknown) || blames(err) {
		t.Errorf("commit that was lost on its way: %v, want ErrUnknown", err)
	}
	if p := claim(t, direct, a); p.Position != driver.Unset {
		t.Errorf("claimed at %v, want unset", p.Position)
	}
	expect(t, direct, driver.Unset)
	if err := commit(t.Context(), s, a, driver.Unset, positionAt(1), "1"); err != nil {
		t.Error(err)
	}
	expect(t, direct, positionAt(1), "1")
}

func TestCommitAnswerLost(t *testing.T) {
	proxy, s, direct := proxied(t)
	a := lease("a", 1)
	claim(t, s, a)
	proxy.Next(commitproxy.LoseReply)
	if err := commit(t.Context(), s, a, driver.Unset, positionAt(1), "1"); !errors.Is(err, driver.ErrUnknown) || blames(err) {
		t.Errorf("commit whose answer was lost: %v, want ErrUnknown", err)
	}
	if p := claim(t, s, a); p.Position.Sequence != 1 || p.Claims != 1 {
		t.Errorf("claimed %+v, want position 1", p)
	}
	expect(t, direct, positionAt(1), "1")
	if err := commit(t.Context(), s, a, driver.Unset, positionAt(1), "1"); !errors.Is(err, driver.ErrFenced) {
		t.Errorf("the same step again: %v, want ErrFenced", err)
	}
	expect(t, direct, positionAt(1), "1")
}

func TestCommitLate(t *testing.T) {
	proxy, s, direct := proxied(t)
	a := lease("a", 1)
	claim(t, s, a)
	proxy.Next(commitproxy.DeliverLate)
	if err := commit(t.Context(), s, a, driver.Unset, positionAt(1), "1"); !errors.Is(err, driver.ErrUnknown) || blames(err) {
		t.Errorf("commit that is late: %v, want ErrUnknown", err)
	}
	// The transaction is still open on the server. What the claim returns must
	// not change any more.
	if p := claim(t, direct, a); p.Position != driver.Unset {
		t.Errorf("claimed at %v, want unset", p.Position)
	}
	if n := proxy.Deliver(); n != 1 {
		t.Fatalf("%d commits were late, want 1", n)
	}
	expect(t, direct, driver.Unset)
}

func TestCommitLateButBeforeTheClaim(t *testing.T) {
	proxy, s, direct := proxied(t)
	a := lease("a", 1)
	claim(t, s, a)
	proxy.Next(commitproxy.DeliverLate)
	if err := commit(t.Context(), s, a, driver.Unset, positionAt(1), "1"); !errors.Is(err, driver.ErrUnknown) {
		t.Errorf("commit that is late: %v, want ErrUnknown", err)
	}
	proxy.Deliver()
	if p := claim(t, direct, a); p.Position.Sequence != 1 {
		t.Errorf("claimed at %v, want 1", p.Position)
	}
	expect(t, direct, positionAt(1), "1")
}

func TestCommitCancelledUnderway(t *testing.T) {
	proxy, s, direct := proxied(t)
	a := lease("a", 1)
	claim(t, s, a)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	proxy.OnCommit(func(int) commitproxy.Fault { cancel(); return commitproxy.LoseReply })
	if err := commit(ctx, s, a, driver.Unset, positionAt(1), "1"); !errors.Is(err, driver.ErrUnknown) {
		t.Errorf("commit cancelled while it was under way: %v, want ErrUnknown", err)
	}
	eventually(t, "the server has committed", func() bool { return claim(t, direct, a).Position.Sequence == 1 })
	expect(t, direct, positionAt(1), "1")
}

// An owner that does what it must after each error, over a network that loses
// commits in every way, applies each event once.
func TestLostCommits(t *testing.T) {
	// It claims again and again, and need not wait long each time.
	proxy, s, direct := proxiedWith(t, &pgstore.Config{LockTimeout: 200 * time.Millisecond})
	random := need.Rand(t)
	suffered := make(map[commitproxy.Fault]int)
	proxy.OnCommit(func(int) commitproxy.Fault {
		if random.IntN(2) == 0 {
			return commitproxy.None
		}
		f := commitproxy.Fault(1 + random.IntN(3))
		suffered[f]++
		return f
	})
	deliver := make(chan struct{}, 1000)
	delivered := make(chan struct{})
	go func() {
		defer close(delivered)
		for range deliver {
			proxy.Deliver()
		}
	}()

	const events = 100
	a := lease("a", 1)
	var want []string
	position := claim(t, direct, a).Position
	for position.Sequence < events {
		next := positionAt(max(position.Sequence, 0) + 1)
		err := commit(t.Context(), s, a, position, next, fmt.Sprintf("%03d", next.Sequence))
		if err == nil {
			position = next
			continue
		}
		if blames(err) || errors.Is(err, driver.ErrFenced) {
			t.Fatal(err)
		}
		deliver <- struct{}{} // sometimes before, sometimes after the claim
		for {
			p, err := s.Claim(t.Context(), a, "1")
			if err == nil {
				position = p.Position
				break
			}
			if errors.Is(err, driver.ErrFenced) {
				t.Fatal(err)
			}
		}
	}
	close(deliver)
	<-delivered
	for i := range events {
		want = append(want, fmt.Sprintf("%03d", i+1))
	}
	expect(t, direct, positionAt(events), want...)
	if len(suffered) != 3 {
		t.Errorf("faults suffered: %v, want all three kinds", suffered)
	}
}

func TestServerStopsInTheMiddle(t *testing.T) {
	server := pgtest.New(t, nil)
	url, err := server.CreateDatabase(t.Context(), "flights")
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, url, quick)
	createEffects(t, s)
	a := lease("a", 1)
	claim(t, s, a)
	stop := func() {
		if err := server.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	restart := func() {
		if err := server.Restart(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the store has found the server again", func() bool { return s.Pool().Ping(t.Context()) == nil })
	}

	err = s.Commit(t.Context(), driver.Step{Lease: a, From: driver.Unset, To: positionAt(1)}, func(ctx context.Context, tx pgx.Tx) error {
		err := put(ctx, tx, "1")
		stop()
		return errors.Join(err, put(ctx, tx, "2"))
	})
	outage(t, err)
	_, err = s.Claim(t.Context(), a, "1")
	outage(t, err)
	outage(t, s.Leases().Renew(t.Context(), a, time.Second))
	restart()
	expect(t, s, driver.Unset)

	err = s.Commit(t.Context(), driver.Step{Lease: a, From: driver.Unset, To: positionAt(1)}, func(ctx context.Context, tx pgx.Tx) error {
		err := put(ctx, tx, "1")
		stop()
		return err
	})
	if err == nil || blames(err) || errors.Is(err, driver.ErrFenced) {
		t.Errorf("server stopped before the commit: %v", err)
	}
	restart()
	claim(t, s, a)
	expect(t, s, driver.Unset)
	if err := commit(t.Context(), s, a, driver.Unset, positionAt(1), "1"); err != nil {
		t.Error(err)
	}
	expect(t, s, positionAt(1), "1")
}

func TestSessionEnded(t *testing.T) {
	s := open(t, pgtest.Database(t), quick)
	createEffects(t, s)
	a := lease("a", 1)
	claim(t, s, a)
	for _, sql := range []string{
		`SELECT pg_terminate_backend(pg_backend_pid())`,
		`SELECT pg_cancel_backend(pg_backend_pid()), pg_sleep(1)`,
	} {
		for _, swallow := range []bool{false, true} {
			outage(t, s.Commit(t.Context(), driver.Step{Lease: a, From: driver.Unset, To: positionAt(1)}, func(ctx context.Context, tx pgx.Tx) error {
				_, err := tx.Exec(ctx, sql)
				if err == nil {
					t.Errorf("%s: no error", sql)
				}
				if swallow {
					return nil
				}
				return fmt.Errorf("only the text of it: %v", err)
			}))
		}
	}
	expect(t, s, driver.Unset)
}

func TestIdleInTransaction(t *testing.T) {
	url := pgtest.Database(t)
	// The first is short of time only where it idles: a round trip may take as long as a lock.
	s, other := open(t, url, &pgstore.Config{LeaseFor: 3 * time.Second, LockTimeout: patient.LockTimeout, MaxConns: 1}), open(t, url, nil)
	createEffects(t, other)
	a := lease("a", 1)
	claim(t, other, a)
	if err := commit(t.Context(), other, a, driver.Unset, positionAt(1), "1"); err != nil {
		t.Fatal(err)
	}
	outage(t, s.Commit(t.Context(), driver.Step{Lease: a, From: positionAt(1), To: positionAt(2)}, func(ctx context.Context, tx pgx.Tx) error {
		if err := put(ctx, tx, "2"); err != nil {
			return err
		}
		pid := tx.Conn().PgConn().PID()
		eventually(t, "the server has ended the session", func() bool {
			var there bool
			err := other.Pool().QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1)`, pid).Scan(&there)
			return err == nil && !there
		})
		return nil
	}))
	expect(t, other, positionAt(1), "1")
	if err := commit(t.Context(), s, a, positionAt(1), positionAt(2), "2"); err != nil {
		t.Error(err)
	}
}

// A deadlock is nobody's fault, also when the handler keeps only its text.
func TestDeadlock(t *testing.T) {
	s := open(t, pgtest.Database(t), &pgstore.Config{LockTimeout: 10 * time.Second})
	if _, err := s.Pool().Exec(t.Context(), `CREATE TABLE accounts (id int PRIMARY KEY, n int); INSERT INTO accounts VALUES (1, 0), (2, 0)`); err != nil {
		t.Fatal(err)
	}
	met := make(chan struct{}, 2)
	transfer := func(l driver.Lease, first, second int) error {
		return s.Commit(t.Context(), driver.Step{Lease: l, From: driver.Unset, To: positionAt(1)}, func(ctx context.Context, tx pgx.Tx) error {
			const sql = `UPDATE accounts SET n = n + 1 WHERE id = $1`
			if _, err := tx.Exec(ctx, sql, first); err != nil {
				return err
			}
			met <- struct{}{}
			for len(met) < 2 {
				if _, err := tx.Exec(ctx, `SELECT pg_sleep(0.005)`); err != nil {
					return err
				}
			}
			if _, err := tx.Exec(ctx, sql, second); err != nil {
				return errors.New(err.Error())
			}
			return nil
		})
	}
	one, two := lease("a", 1), lease("a", 1)
	two.Partition = "1"
	claim(t, s, one)
	claim(t, s, two)
	other := make(chan error)
	go func() { other <- transfer(two, 2, 1) }()
	errs := []error{transfer(one, 1, 2), <-other}
	if slices.Index(errs, nil) < 0 {
		t.Errorf("both lost: %v", errs)
	}
	for _, err := range errs {
		if err != nil {
			outage(t, err)
		}
	}
	if errs[0] == nil && errs[1] == nil {
		t.Error("there was no deadlock")
	}
}

package pgstore_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/commitproxy"
	"github.com/sluice-go/sluice/internal/proof/pgtest"
	"github.com/sluice-go/sluice/pgstore"
)

// shortLease makes a step's round trips end after a third of its time; pool says how many
// connections there are.
func shortLease(of time.Duration, pool int) *pgstore.Config {
	return &pgstore.Config{LeaseFor: of, LockTimeout: 200 * time.Millisecond, MaxConns: pool}
}

// givenUpWithin is how long a round trip that gets no answer may take, on a busy machine.
const givenUpWithin = 30 * time.Second

// swallow makes the proxy hold back what contains text, until the test's end, and with it what
// follows on the same connection. Other connections work.
func swallow(t testing.TB, proxy *commitproxy.Proxy, text string) {
	t.Helper()
	over := make(chan struct{})
	t.Cleanup(func() { close(over) })
	proxy.Intercept(func(statements []string) commitproxy.Fault {
		if slices.ContainsFunc(statements, func(s string) bool { return strings.Contains(s, text) }) {
			<-over
			return commitproxy.CutBefore
		}
		return commitproxy.None
	})
}

// bounded stops the test if fn takes longer than a silent round trip may, and returns its error.
func bounded(t testing.TB, what string, fn func() error) error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- fn() }()
	select {
	case err := <-done:
		return err
	case <-time.After(givenUpWithin):
		t.Fatalf("%s: has not returned after %v", what, givenUpWithin)
		return nil
	}
}

func TestSilentConnection(t *testing.T) {
	refused := errors.New("the handler's own error")
	for _, c := range []struct {
		name, swallowed string
		handler         func(ctx context.Context, tx pgx.Tx) error
		unknown         bool
	}{
		{name: "Begin", swallowed: "FOR NO KEY UPDATE"},
		{name: "Commit", swallowed: "COMMIT", unknown: true},
		{name: "Rollback", swallowed: "rollback", handler: func(context.Context, pgx.Tx) error { return refused }},
		{name: "Check", swallowed: "1 / (pg_current_xact_id", handler: func(context.Context, pgx.Tx) error { return refused }},
		{name: "Status", swallowed: "pg_xact_status", handler: func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `SELECT 1/0`)
			return err
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			url := pgtest.Database(t)
			proxy, through := pgtest.NewTestProxy(t, url)
			s, direct := open(t, through, shortLease(9*time.Second, 1)), open(t, url, quick)
			createEffects(t, direct)
			a := lease("a", 1)
			claim(t, s, a)
			swallow(t, proxy, c.swallowed)
			handler := c.handler
			if handler == nil {
				handler = func(ctx context.Context, tx pgx.Tx) error { return put(ctx, tx, "1") }
			}
			err := bounded(t, "a step whose connection is silent", func() error {
				return s.Commit(t.Context(), driver.Step{Lease: a, From: driver.Unset, To: positionAt(1)}, handler)
			})
			if err == nil || blames(err) || errors.Is(err, driver.ErrFenced) || errors.Is(err, driver.ErrUnknown) != c.unknown {
				t.Errorf("a step whose connection is silent: %v; want an outage, unknown: %v", err, c.unknown)
			}
			proxy.Intercept(nil)
			// The only connection of the pool is the silent one.
			bounded(t, "the next claim and commit", func() error {
				for t.Context().Err() == nil { // a busy machine may need longer than a short lease allows
					p, err := s.Claim(t.Context(), a, "1")
					if err == nil && p.Position == positionAt(2) || err == nil && commit(t.Context(), s, a, p.Position, positionAt(2), "2") == nil {
						break
					}
				}
				return nil
			})
			expect(t, direct, positionAt(2), "2")
		})
	}
}

// After a silence in which every idle connection was lost, the pool makes new ones.
func TestSilentPool(t *testing.T) {
	url := pgtest.Database(t)
	proxy, through := pgtest.NewTestProxy(t, url)
	s := open(t, through, shortLease(3*time.Second, 2))
	createEffects(t, s)
	a := lease("a", 1)
	claim(t, s, a)
	proxy.Stall()
	for range 3 {
		outage(t, bounded(t, "commit", func() error { return commit(t.Context(), s, a, driver.Unset, positionAt(1), "1") }))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		outage(t, bounded(t, "renew", func() error { return s.Leases().Renew(ctx, a, time.Second) }))
		cancel()
	}
	proxy.Resume()
	began := time.Now()
	eventually(t, "the store works again", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := s.Claim(ctx, a, "1")
		_, lerr := s.Leases().List(ctx, group)
		return err == nil && lerr == nil
	})
	t.Logf("worked again after %v", time.Since(began))
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("the store worked again %v after the silence, want at most 10 s", took)
	}
}

// A transaction of which the network has lost the rest does not keep its locks: the server ends it.
func TestIdleLeases(t *testing.T) {
	proxy, through := pgtest.NewTestProxy(t, pgtest.Database(t))
	s := open(t, through, quick)
	proxy.Intercept(func(statements []string) commitproxy.Fault {
		changes := slices.ContainsFunc(statements, func(sql string) bool {
			return strings.Contains(sql, "sluice_leases") && !strings.HasPrefix(strings.TrimSpace(sql), "SELECT")
		})
		limited := slices.ContainsFunc(statements, func(sql string) bool { return strings.Contains(sql, "idle_in_transaction_session_timeout") })
		if changes && !limited {
			t.Errorf("a transaction without a limit: %q", statements)
		}
		return commitproxy.None
	})
	l, err := s.Leases().Acquire(t.Context(), group, "0", "a", time.Minute, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Leases().Renew(t.Context(), l, time.Minute), s.Leases().Release(t.Context(), l)); err != nil {
		t.Error(err)
	}
}

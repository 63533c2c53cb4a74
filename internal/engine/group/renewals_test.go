package group_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/clock"
	"github.com/sluice-go/sluice/internal/engine/enginetest"
	"github.com/sluice-go/sluice/sluicetest"
)

// togetherLeases counts renewals, and renews several leases as together does.
type togetherLeases struct {
	*sluicetest.Leases
	together func(ctx context.Context, leases []sluice.Lease, ttl time.Duration) error
	rounds   atomic.Int64
	alone    atomic.Int64
}

func (l *togetherLeases) Renew(ctx context.Context, lease sluice.Lease, ttl time.Duration) error {
	l.alone.Add(1)
	return l.Leases.Renew(ctx, lease, ttl)
}

func (l *togetherLeases) RenewAll(ctx context.Context, leases []sluice.Lease, ttl time.Duration) error {
	l.rounds.Add(1)
	return l.together(ctx, leases, ttl)
}

// TestRenewalsTogether: the leases of a process are renewed in one request, and what happens to
// that request ends no assignment but that of a lease which is lost.
func TestRenewalsTogether(t *testing.T) {
	const partitions = 20
	for name, try := range map[string]struct {
		together              func(l *togetherLeases) func(context.Context, []sluice.Lease, time.Duration) error
		lost                  int
		leastAlone, mostAlone int64
	}{
		"renews": {func(l *togetherLeases) func(context.Context, []sluice.Lease, time.Duration) error {
			return l.Leases.RenewAll
		}, 0, 0, partitions},
		"fails": {func(*togetherLeases) func(context.Context, []sluice.Lease, time.Duration) error {
			return func(context.Context, []sluice.Lease, time.Duration) error { return errors.New("no") }
		}, 0, 5 * partitions, 8 * partitions},
		"hangs": {func(*togetherLeases) func(context.Context, []sluice.Lease, time.Duration) error {
			return func(ctx context.Context, _ []sluice.Lease, _ time.Duration) error { <-ctx.Done(); return ctx.Err() }
		}, 0, 3 * partitions, 8 * partitions},
		"one lease is lost": {func(l *togetherLeases) func(context.Context, []sluice.Lease, time.Duration) error {
			return func(ctx context.Context, leases []sluice.Lease, ttl time.Duration) error {
				if l.rounds.Load() == 2 {
					if err := l.Leases.Release(ctx, leases[7]); err != nil {
						return err
					}
				}
				return l.Leases.RenewAll(ctx, leases, ttl)
			}
		}, 1, partitions, 2*partitions + 2},
	} {
		t.Run(name, func(t *testing.T) {
			stage(t, 1, func(s *scene) {
				l := &togetherLeases{Leases: &sluicetest.Leases{}}
				l.together = try.together(l)
				hub := sluicetest.NewHub(enginetest.Group, partitions)
				c := enginetest.Must(sluice.New(hub, l, sluice.Transactional(s.Store, sluice.Each(enginetest.Insert)), &sluice.Config{
					Owner: "a", AssignBurst: partitions, Observer: s,
				}))
				ran := make(chan error, 1)
				go func() { ran <- c.Run(s.T.Context()) }()
				time.Sleep(65 * time.Second)
				if n := s.Count(driver.KindLost); n != try.lost {
					s.T.Errorf("%d assignments were lost, want %d: %v", n, try.lost, s.Observations(driver.KindLost))
				}
				if rounds, alone := l.rounds.Load(), l.alone.Load(); rounds < 4 || rounds > 14 || alone < try.leastAlone || alone > try.mostAlone {
					s.T.Errorf("%d requests for several leases and %d for one in 65 s, want 4 to 14 and %d to %d", rounds, alone, try.leastAlone, try.mostAlone)
				}
				live := 0
				for _, lease := range enginetest.Must(l.List(s.T.Context(), enginetest.Group)) {
					if lease.Live() {
						live++
					}
				}
				if live != partitions {
					s.T.Errorf("%d of %d leases are live", live, partitions)
				}
				if err := c.Stop(s.T.Context()); err != nil || <-ran != nil {
					s.T.Error(err)
				}
			})
		})
	}
}

// pausedClock is a clock of a process that is paused once: nothing that sleeps then continues
// before the pause is over.
type pausedClock struct {
	driver.Clock
	start, end time.Time
}

func (c pausedClock) Sleep(ctx context.Context, d time.Duration) error {
	if end := time.Now().Add(d); end.After(c.start) && end.Before(c.end) {
		d = time.Until(c.end)
	}
	return c.Clock.Sleep(ctx, d)
}

// TestRenewalsTogetherAfterAPause: a lease that is nearly over when the process continues is given
// up at its deadline, although the request that renews it with others has not returned.
func TestRenewalsTogetherAfterAPause(t *testing.T) {
	stage(t, 1, func(s *scene) {
		began := time.Now()
		l := &togetherLeases{Leases: &sluicetest.Leases{}}
		l.together = func(ctx context.Context, leases []sluice.Lease, ttl time.Duration) error {
			if time.Since(began) < 30*time.Second {
				return l.Leases.RenewAll(ctx, leases, ttl)
			}
			<-ctx.Done()
			return ctx.Err()
		}
		lost := make(chan time.Duration, 2)
		ctx, cancel := context.WithCancel(s.T.Context())
		c := enginetest.Must(sluice.New(sluicetest.NewHub(enginetest.Group, 2), l, sluice.Transactional(s.Store, sluice.Each(enginetest.Insert)), &sluice.Config{
			Owner: "a", AssignBurst: 2, Observer: s, Clock: pausedClock{clock.New(), began.Add(21 * time.Second), began.Add(49 * time.Second)},
			Hooks: sluice.Hooks{Released: func(_ context.Context, _ sluice.Lease, cause error) error {
				if ctx.Err() != nil {
					return nil // acquired again meanwhile
				}
				if !errors.Is(cause, sluice.ErrLeaseExpired) {
					s.T.Errorf("released: %v", cause)
				}
				lost <- time.Since(began)
				return nil
			}},
		}))
		ran := make(chan error, 1)
		go func() { ran <- c.Run(ctx) }()
		for range 2 {
			if after := <-lost; after > 51*time.Second {
				s.T.Errorf("gave up %v after the start; the leases were renewed for the last time after 20 s, for 30 s", after)
			}
		}
		cancel()
		<-ran
	})
}

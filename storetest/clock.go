package storetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/suite"
)

// ClockHarness is what [TestClock] works on: a [TxHarness] of a database whose clock is not that of
// the process, and the leases in it.
type ClockHarness[Tx any] struct {
	TxHarness[Tx]
	Leases driver.LeaseStore

	ahead time.Duration
}

// TestClock is the part of the conformance suite that is about time, over a database whose clock is
// an hour ahead of the process's, and an hour behind. A store that sets a time by one clock and
// compares it with the other fails. new opens an empty database whose clock is so far ahead.
func TestClock[Tx any](t *testing.T, new func(t testing.TB, ahead time.Duration) ClockHarness[Tx]) {
	for _, ahead := range []time.Duration{time.Hour, -time.Hour} {
		t.Run(fmt.Sprint(ahead), func(t *testing.T) {
			suite.Run(t, clockChecks[Tx](), func(t testing.TB) ClockHarness[Tx] {
				h := new(t, ahead)
				h.ahead = ahead
				return h
			})
		})
	}
}

func clockChecks[Tx any]() []suite.Check[ClockHarness[Tx]] {
	return []suite.Check[ClockHarness[Tx]]{
		{Name: "Postponed", Run: func(t testing.TB, h ClockHarness[Tx]) {
			a := h.begin(t)
			d := h.park(t, a, deadLetterOf("0", 5))[5]
			h.redrive(t, d.ID)
			h.wantDue(t, "marked for redrive now", 1)
			d.Status = driver.StatusRetry
			postpone := func(by time.Duration) {
				h.commit(t, driver.Step{Lease: a, From: positionAt(9), To: positionAt(9), FailedRedrives: []driver.DeadLetter{d}, PostponeFor: by}, nil)
			}
			postpone(30 * time.Minute)
			h.wantDue(t, "postponed by half an hour", 0)
			h.redrive(t, d.ID)
			postpone(time.Millisecond)
			h.wantDue(t, "postponed by a millisecond", 1)
		}},
		{Name: "Claimed", Run: func(t testing.TB, h ClockHarness[Tx]) {
			a := h.begin(t)
			time.Sleep(10 * time.Millisecond)
			before := time.Now()
			cp, err := h.Store.Claim(suite.Context(t), a, incarnation)
			suite.NoError(t, "claim", err)
			// The engine takes it for the store's time, by which it has dead letters tried again.
			if by := cp.Updated.Sub(before) - h.ahead; by < -time.Millisecond || by > suite.Patience {
				t.Errorf("claimed at %v by the store's clock, which is off by %v", cp.Updated, by)
			}
			d := deadLetterOf("0", 5)
			d.Status, d.NextAttempt = driver.StatusRetry, cp.Updated.Add(30*time.Minute)
			h.park(t, a, d)
			h.wantDue(t, "stored for half an hour later", 0)
			d.NextAttempt = cp.Updated
			h.commit(t, driver.Step{Lease: a, From: positionAt(9), To: positionAt(9), DeadLetters: []driver.DeadLetter{d}}, nil)
			h.wantDue(t, "stored for now", 1)
		}},
		{Name: "Leases", Run: func(t testing.TB, h ClockHarness[Tx]) {
			const long = 30 * time.Minute
			acquire := func(partition, owner string, ttl time.Duration) (driver.Lease, error) {
				return h.Leases.Acquire(suite.Context(t), testGroup, partition, owner, ttl, 0)
			}
			held, err := acquire("0", "a", time.Millisecond)
			suite.NoError(t, "acquire", err)
			suite.NoError(t, "renew", h.Leases.Renew(suite.Context(t), held, long))
			_, err = acquire("0", "b", long)
			suite.ErrorIs(t, "acquire what another owner holds", err, driver.ErrHeld)
			list, err := h.Leases.List(suite.Context(t), testGroup)
			if err != nil || len(list) != 1 || list[0].Remaining <= long-suite.Patience || list[0].Remaining > long {
				t.Errorf("listed %+v, %v; want one with %v remaining", list, err, long)
			}
			_, err = acquire("1", "a", time.Millisecond)
			suite.NoError(t, "acquire", err)
			suite.Eventually(t, "a lease of a millisecond to expire", func() bool {
				_, err := acquire("1", "b", long)
				return err == nil
			})
		}},
	}
}

// wantDue fails the test unless so many redrives of partition 0 are due, in a moment if there are
// some.
func (h *ClockHarness[Tx]) wantDue(t testing.TB, what string, want int) {
	t.Helper()
	due := func(ctx context.Context) (n, partitions int) {
		list, err := h.Store.Due(ctx, testGroup, "0", 10)
		suite.NoError(t, what+": due", err)
		partitions = len(list)
		if finder, ok := h.Store.(driver.RedriveFinder); ok {
			names, err := finder.DuePartitions(ctx, testGroup, []string{"0"})
			suite.NoError(t, what+": partitions with redrives", err)
			partitions = len(names)
		}
		return len(list), partitions
	}
	if want > 0 {
		suite.Eventually(t, what, func() bool { n, partitions := due(suite.Context(t)); return n == want && partitions == want })
	} else if n, partitions := due(suite.Context(t)); n > 0 || partitions > 0 {
		t.Errorf("%s: %d redrives are due, in %d partitions", what, n, partitions)
	}
}

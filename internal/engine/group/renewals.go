package group

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine"
	"github.com/sluice-go/sluice/internal/engine/partition"
)

// renewals renews the leases of a consumer's partitions in one request, if the store can:
// else a process with a thousand partitions sends a hundred requests a second for that alone.
//
// Each assignment still has a goroutine that renews its lease and keeps its deadline. The
// leases are due at the same moments, multiples of RenewEvery by Clock.Elapsed, and the
// assignments that are due join a round. A round that fails fails for none of them: each then
// renews its lease by itself, which also shows which lease is lost.
type renewals struct {
	c     *Member
	store driver.LeaseRenewer // nil: the store renews one lease at a time

	mu        sync.Mutex
	gathering *renewalRound // nil: the next lease begins a round
}

// renewalRound is one request for several leases.
type renewalRound struct {
	leases  []driver.Lease
	waiting int // assignments that wait for it
	work    context.Context
	cancel  context.CancelFunc // ends work: nothing waits for the round any more
	done    chan struct{}      // closed when it has ended
	renewed bool               // all of them
}

// gatherFor is how long a round waits for leases that are due at the same moment.
const gatherFor = 50 * time.Millisecond

// Due moves the moment at which a lease is due to that of the process's other leases, which
// is at most RenewEvery earlier.
func (r *renewals) Due(at engine.Deadline) engine.Deadline {
	if r.store == nil {
		return at
	}
	earlier := at.Elapsed % r.c.cfg.RenewEvery
	return engine.Deadline{Wall: at.Wall.Add(-earlier), Elapsed: at.Elapsed - earlier}
}

// Pause returns how long a goroutine that renews a lease sleeps, at most tick.
func (r *renewals) Pause(tick time.Duration, due engine.Deadline) time.Duration {
	if left := due.Left(r.c.cfg.Clock); r.store != nil && left > 0 {
		return min(tick, left)
	}
	return tick
}

// Together renews an assignment's lease with the others that are due, and reports whether it
// has. It waits for gatherFor and half the time of a request by itself at most, and not longer
// than the lease is left: after a pause of the process that may be less.
func (r *renewals) Together(a *partition.Assignment, left time.Duration) bool {
	if r.store == nil {
		return false
	}
	r.c.mu.Lock()
	alone := len(r.c.held) < 2
	r.c.mu.Unlock()
	if alone {
		return false
	}
	r.mu.Lock()
	round := r.gathering
	if round == nil {
		round = &renewalRound{done: make(chan struct{})}
		round.work, round.cancel = context.WithCancel(a.Process)
		r.gathering = round
		// This assignment has a goroutine among these: Run waits for them.
		r.c.assignments.Go(func() { r.run(round) })
	}
	round.leases = append(round.leases, a.Lease)
	round.waiting++
	r.mu.Unlock()
	ctx, cancel := context.WithTimeout(a.Work, left)
	defer cancel()
	select {
	case <-round.done:
		return round.renewed
	case <-ctx.Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if round.waiting--; round.waiting == 0 {
		if r.gathering == round {
			r.gathering = nil
		}
		round.cancel()
	}
	return false
}

// run runs a round.
func (r *renewals) run(round *renewalRound) {
	defer round.cancel()
	defer close(round.done)
	cfg := r.c.cfg
	_ = cfg.Clock.Sleep(round.work, min(gatherFor, cfg.RenewEvery/20))
	r.mu.Lock()
	if r.gathering == round {
		r.gathering = nil
	}
	r.mu.Unlock()
	if len(round.leases) < 2 || round.work.Err() != nil {
		return
	}
	slices.SortFunc(round.leases, func(a, b driver.Lease) int { return cmp.Compare(a.Partition, b.Partition) })
	// Half the time of a request for one lease: after a round that hangs there is time for two
	// of those.
	ctx, cancel := context.WithTimeout(round.work, cfg.LeaseFor/6)
	defer cancel()
	err := engine.CallDriver(func() error { return r.store.RenewAll(ctx, round.leases, cfg.LeaseFor) })
	if _, panicked := errors.AsType[*driver.PanicError](err); panicked {
		r.c.observe(driver.Observation{Kind: driver.KindFailed, Err: fmt.Errorf("renew leases together: %w", err)})
	}
	round.renewed = err == nil
}

package sim

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/sluicetest"
)

// emptyLeases makes an empty lease store with the world's clock for it.
func (w *world) emptyLeases() *sluicetest.Leases {
	return &sluicetest.Leases{Unsafe: w.cfg.UnsafeLeases, Now: func() time.Time {
		w.mu.Lock()
		defer w.mu.Unlock()
		return time.Now().Add(w.leaseSkew)
	}}
}

// setLeaseClock sets the clock of the lease store forward or back. Forward, every lease
// expires at once.
func (w *world) setLeaseClock() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leaseSkew += time.Duration(w.rng.IntN(7200)-3600) * time.Second
	w.leasesLost = time.Now()
	w.trouble(nil, "", time.Now().Add(30*time.Second)) // a dead owner's lease may begin again
	w.note("the lease store's clock is off by %v", w.leaseSkew)
	w.fired["lease store's clock set"]++
}

// twin starts a process under the owner name of another one.
func (w *world) twin() {
	w.mu.Lock()
	s := w.slots[w.rng.IntN(len(w.slots))]
	of, n := s.process, len(w.twins)
	w.mu.Unlock()
	if of == nil || of.replays || w.cfg.Want == sluice.Balanced {
		return
	}
	p := w.launch(fmt.Sprintf("%s'%d", of.name, n), of.owner, s, s.role, func(ctx context.Context, c *sluice.Consumer) { _ = c.Run(ctx) })
	w.mu.Lock()
	w.twins = append(w.twins, p)
	w.mu.Unlock()
	w.count("two processes of one owner name")
}

// holderOf returns the process that acquired a lease, or committed under it, last. The
// lock is held.
func (w *world) holderOf(l sluice.Lease) *process {
	if p := w.leaseOf[tenureOf(l)]; p != nil {
		return p
	}
	return w.owners[l.Owner]
}

// cutOff cuts one process off from the lease store, at once or after its next renewal.
func (w *world) cutOff(span time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.slots[w.rng.IntN(len(w.slots))].process
	if p == nil {
		return
	}
	if w.rng.IntN(2) == 0 {
		p.cutOffNext = span // after one more renewal, which is answered late
	} else {
		p.cutOff = time.Now().Add(span)
	}
	w.trouble(p, "", time.Now().Add(span+20*time.Second))
	w.note("%s does not reach the lease store for %v", p.name, span)
	w.fired["process cut off from the leases"]++
}

// oldEpoch is the epoch of checkpoints that are older than the lease store.
const oldEpoch = 400

// ageCheckpoints gives all checkpoints a high epoch.
func (w *world) ageCheckpoints() {
	topic, _ := w.hub.Describe(context.Background())
	for _, p := range topic.Partitions {
		for range oldEpoch {
			_, _ = w.store.Reset(context.Background(), w.group, p, topic.Incarnation, driver.Unset, driver.HowSet)
		}
	}
}

package sim

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/stamp"
)

// turn is a key of one assignment.
type turn struct {
	partition, key string
	epoch          int64
}

// queue is what was submitted of a key.
type queue struct {
	last     int64 // the newest event
	inFlight int   // records
}

// parking says who has stored a dead letter, and when. A request that was given up can store
// it after the process has claimed the partition again, which does not know of it then.
type parking struct {
	process     *process
	asked, time time.Time
	discarded   time.Time // when an operator has discarded it last
}

// revived reports whether the request that stored it arrived after an operator had discarded the
// dead letter that an earlier request had stored. The process that made both does not know.
func (p *parking) revived() bool { return p.asked.Before(p.discarded) && p.discarded.Before(p.time) }

// forget forgets what was submitted under earlier leases: after a loss of the leases epochs
// come again.
func (p *process) forget(partition string) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	delete(p.redrives, partition)
	delete(p.knows, partition)
	delete(p.chosen, partition)
	maps.DeleteFunc(p.queues, func(t turn, _ *queue) bool { return t.partition == partition })
}

// inOrder checks that a record is submitted when it may be: no other of its key is in
// flight, no later one was submitted, and its key is not held back.
func (p *process) inOrder(ctx context.Context, e *sluice.Event) (finished func()) {
	w, s := p.w, p.stream
	token := driver.FencingTokenOf(ctx)
	stamp, _ := stamp.Of(ctx, e, 0)
	w.mu.Lock()
	restored := w.fired["failover that loses commits"] > 0 // it may bring back a dead letter that was applied
	w.mu.Unlock()
	if !stamp.Redrive && s.Policy == sluice.KeyHold && e.Key != "" && !restored {
		w.checkHeld(p, token.Lease, e)
	}
	if stamp.Redrive && s.Policy == sluice.KeyHold && s.Order != sluice.OrderNone && e.Key != "" && !restored {
		p.redriveInOrder(e)
	}
	t := turn{e.Partition, e.Key, token.Lease.Epoch}
	switch {
	case s.Order == sluice.OrderPartition:
		t.key = ""
	case s.Order == sluice.OrderNone, e.Key == "":
		return func() {}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	q := p.queues[t]
	if q == nil {
		q = &queue{last: -1}
		p.queues[t] = q
	}
	if q.inFlight > 0 {
		w.stale = append(w.stale, fmt.Sprintf("partition %s: two records of key %q are in flight, the second of event %d", t.partition, t.key, e.Sequence))
	}
	if !stamp.Redrive {
		if e.Sequence < q.last && lifeOf(e) == w.life {
			w.stale = append(w.stale, fmt.Sprintf("partition %s: event %d of key %q was submitted after event %d", t.partition, e.Sequence, t.key, q.last))
		}
		q.last = max(q.last, e.Sequence)
	}
	q.inFlight++
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		q.inFlight--
	}
}

// checkHeld records a violation if an event is written although an earlier event of its key
// is a dead letter that the owner knows of.
func (w *world) checkHeld(p *process, lease sluice.Lease, e *sluice.Event) {
	before := e.Sequence - 1
	list, _ := w.store.List(context.Background(), w.group, sluice.DeadLetterFilter{Partition: e.Partition, Key: e.Key, LastSequence: &before})
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range list {
		d := &list[i]
		id := w.letterID(d)
		parked := w.parkings[id]
		claimed := w.claimedAt[tenureOf(lease)]
		known := parked.process == p && !parked.asked.Before(claimed) && !parked.revived() || parked.time.Before(claimed)
		if d.Status != sluice.StatusDiscarded && known && id.life == lifeOf(e) && !claimed.IsZero() {
			w.stale = append(w.stale, fmt.Sprintf("partition %s: event %d was written although event %d of its key %q is a dead letter", e.Partition, e.Sequence, id.sequence, e.Key))
			return
		}
	}
}

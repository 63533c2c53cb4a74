package sim

import (
	"context"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
)

// lagBehind lets a database's replica lag behind from now on, and has the database fail over
// to it after a time.
func (w *world) lagBehind(after time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	store := w.store
	if w.cfg.Chain != nil && w.rng.IntN(2) == 0 {
		store = w.nextStore
	}
	w.restoreReplica, w.failover = store.Snapshot(), time.Now().Add(after)
	w.replicaRepeats = w.snapshotRepeats()
}

// failOver restores a database to the state of its replica, which lags behind.
func (w *world) failOver() {
	w.mu.Lock()
	restore := w.restoreReplica
	w.restoreReplica = nil
	w.note("failover")
	w.fired["failover that loses commits"]++
	w.trouble(nil, "", time.Now())
	w.mu.Unlock()
	w.restoreRepeats(w.replicaRepeats)
	before := w.readCheckpoints()
	effects := w.effectIDs()
	w.loseDeadLetters(restore)
	w.loseEffects(effects)
	w.loseRemoved()
	w.setBackByFailover(before)
	w.mu.Lock()
	clear(w.claimed)
	clear(w.gone.kept)
	w.mu.Unlock()
	for _, g := range w.groups() {
		list, _ := w.storeOf(g).Read(context.Background(), g)
		w.mu.Lock()
		for _, p := range list {
			if g == w.group {
				w.halted(p.Partition) // an operator looks again
			}
			w.claimed[partitionName(sluice.Lease{Group: g, Partition: p.Partition})] = p.Epoch
		}
		w.mu.Unlock()
	}
}

// loseDeadLetters notes which dead letters of a delivery at least once a failover has lost:
// they stay lost.
func (w *world) loseDeadLetters(restore func()) {
	ctx := context.Background()
	before, _ := w.store.List(ctx, w.group, sluice.DeadLetterFilter{})
	restore()
	after, _ := w.store.List(ctx, w.group, sluice.DeadLetterFilter{})
	w.mu.Lock()
	defer w.mu.Unlock()
	kept := map[eventID]bool{}
	for i := range after {
		kept[w.letterID(&after[i])] = true
	}
	for i := range before {
		if id := w.letterID(&before[i]); w.cfg.Stream != nil && !kept[id] {
			w.lost[id] = true
		}
	}
}

// effectIDs returns the events that transactional deliveries have written.
func (w *world) effectIDs() map[eventID]bool {
	ids := map[eventID]bool{}
	for _, row := range w.store.Rows("effects") {
		e := row.(effect)
		ids[eventID{w.group.Topic, e.partition, e.sequence, e.life}] = true
	}
	return ids
}

// loseEffects notes the effects that a failover has lost of partitions that an at-least-once
// delivery has claimed since: it goes on from the checkpoint that it knows, because in its own time
// nothing before that was in the database.
func (w *world) loseEffects(before map[eventID]bool) {
	after := w.effectIDs()
	w.mu.Lock()
	defer w.mu.Unlock()
	for id := range before {
		if transactional, known := w.delivery[id.partition]; known && !transactional && !after[id] {
			w.lost[id] = true
		}
	}
}

// loseRemoved notes the events that retention has removed and whose commits the failover has lost:
// they were done, and nobody has them any more.
func (w *world) loseRemoved() {
	ctx := context.Background()
	topic, _ := w.hub.Describe(ctx)
	for _, partition := range topic.Partitions {
		done := driver.Origin.Sequence
		if c := w.checkpoint(partition); c.Incarnation == topic.Incarnation {
			done = c.Position.Sequence
		}
		b, _ := w.hub.Bounds(ctx, partition)
		w.mu.Lock()
		for n := max(done+1, 0); n < b.First; n++ {
			w.lost[eventID{w.group.Topic, partition, n, w.life}] = true
		}
		w.mu.Unlock()
	}
}

// setBackByFailover notes which checkpoints of the first of two stages a failover has set
// back.
func (w *world) setBackByFailover(before []sluice.Checkpoint) {
	if w.cfg.Chain == nil {
		return
	}
	for _, c := range before {
		after := w.checkpoint(c.Partition).Position.Sequence
		if after >= c.Position.Sequence {
			continue
		}
		w.mu.Lock()
		w.forwarded.setBacks[c.Partition] = append(w.forwarded.setBacks[c.Partition], setBack{c.Position.Sequence, after})
		w.mu.Unlock()
	}
}

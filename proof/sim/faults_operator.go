package sim

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
)

// answers is how long an operator takes to set the checkpoint of a halted partition.
const answers = 30 * time.Second

// operatorActs is when an operator sets the checkpoint of a partition that halts now.
func (w *world) operatorActs() time.Time { return time.Now().Add(answers + 15*time.Second) }

// halted notes that a partition has halted until an operator acts. The lock is held.
func (w *world) halted(partition string) {
	if _, ok := w.halts[partition]; !ok {
		w.halts[partition] = time.Now().Add(answers)
	}
}

// nextHalt returns when the operator acts on a halted partition, and on which one. The lock
// is held.
func (w *world) nextHalt() (at time.Time, partition string) {
	at = never(w)
	for _, p := range slices.Sorted(maps.Keys(w.halts)) {
		if w.halts[p].Before(at) {
			at, partition = w.halts[p], p
		}
	}
	return at, partition
}

// operates reports whether an operator has set a checkpoint since a time, or is about to.
func (w *world) operates(since time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for partition := range w.halts {
		if !w.isGone(partition) {
			return true
		}
	}
	return w.setAt.After(since)
}

// inSecondStage begins the names of halted partitions of the second of two stages.
const inSecondStage = "onward/"

// continueAfterHalt sets the checkpoint of a halted partition to the oldest event that
// the log holds, if the partition cannot continue otherwise.
func (w *world) continueAfterHalt(partition string) {
	if next, second := strings.CutPrefix(partition, inSecondStage); second {
		w.continueSecondStage(next)
		return
	}
	w.mu.Lock()
	delete(w.halts, partition)
	if w.isGone(partition) {
		w.halted(partition) // it may come back
	}
	gone := w.isGone(partition)
	w.mu.Unlock()
	if gone {
		return
	}
	incarnation, start := w.startOf(partition)
	for _, c := range w.readCheckpoints() {
		if c.Partition == partition && (c.Incarnation != incarnation || isLost(&c) || c.Position != driver.Unset && c.Position.Sequence < start.Sequence) {
			w.reset(partition, incarnation, c, start)
			w.count("checkpoint set after a halt")
		}
	}
	w.looksAgain(w.group.Topic, partition, partition)
}

// looksAgain has the operator come back to a partition that is still halted: its checkpoint was
// lost and is not claimed again yet, or its log holds the next event now, and will not later, or a
// failover loses the checkpoint that was set before its owner has seen it.
func (w *world) looksAgain(topic, partition, halt string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.laneOf(topic, partition).halted {
		w.halted(halt)
	}
}

// isLost reports whether a failover has lost a checkpoint: an owner has claimed another in its
// place.
func isLost(c *sluice.Checkpoint) bool { return c.Position == driver.Unset && !c.Began.Known() }

// continueSecondStage sets the checkpoint of a partition of the second stage, if a failover has
// lost it, and the effects of its events with it.
func (w *world) continueSecondStage(partition string) {
	ctx := context.Background()
	w.mu.Lock()
	delete(w.halts, inSecondStage+partition)
	w.mu.Unlock()
	topic, _ := w.nextHub.Describe(ctx)
	b, _ := w.nextHub.Bounds(ctx, partition)
	list, _ := w.nextStore.Read(ctx, topic.Group)
	for _, c := range list {
		if c.Partition != partition || !isLost(&c) {
			continue
		}
		to := sluice.Position{Sequence: max(b.First-1, driver.Origin.Sequence)}
		epoch, _ := w.nextStore.Reset(ctx, topic.Group, partition, topic.Incarnation, to, driver.HowSet)
		w.mu.Lock()
		w.setAt = time.Now()
		w.note("checkpoint of partition %s is set to %v", inSecondStage+partition, to)
		w.claimed[partitionName(sluice.Lease{Group: topic.Group, Partition: partition})] = epoch
		w.trouble(nil, "", time.Now())
		w.mu.Unlock()
		w.count("checkpoint set after a halt")
	}
	w.looksAgain(topic.Group.Topic, partition, inSecondStage+partition)
}

func (w *world) readCheckpoints() []sluice.Checkpoint {
	list, _ := w.store.Read(context.Background(), w.group)
	return list
}

// reset sets a checkpoint. The events that are skipped may have an effect, and those that
// are repeated may have another.
func (w *world) reset(partition, incarnation string, from sluice.Checkpoint, to sluice.Position) {
	epoch, _ := w.store.Reset(context.Background(), w.group, partition, incarnation, to, driver.HowSet)
	bounds, _ := w.hub.Bounds(context.Background(), partition)
	effects := w.countEffects()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.setAt = time.Now()
	w.note("checkpoint of partition %s is set from %v to %v", partition, from.Position, to)
	w.claimed[partitionName(sluice.Lease{Group: w.group, Partition: partition})] = epoch
	life := w.lives[incarnation]
	for n := from.Position.Sequence + 1; n <= to.Sequence; n++ {
		w.lost[eventID{w.group.Topic, partition, n, life}] = true
	}
	w.beginInterval(partition, life, to.Sequence, bounds.First, effects)
	w.setBack[partition] = w.setBack[partition] || to.Sequence < from.Position.Sequence
	w.trouble(nil, "", time.Now())
}

// setCheckpoint sets the checkpoint of a random partition to a random position.
func (w *world) setCheckpoint() {
	ctx := context.Background()
	w.mu.Lock()
	partition := strconv.Itoa(w.rng.IntN(w.present()))
	w.mu.Unlock()
	incarnation, start := w.startOf(partition)
	b, _ := w.hub.Bounds(ctx, partition)
	w.mu.Lock()
	to := sluice.Position{Sequence: start.Sequence + w.rng.Int64N(b.Last.Sequence-start.Sequence+1)}
	w.mu.Unlock()
	for _, c := range w.readCheckpoints() {
		if c.Partition == partition && c.Incarnation == incarnation && c.Position != driver.Unset {
			w.reset(partition, incarnation, c, to)
			w.count("checkpoint set")
		}
	}
}

// redriveLater has dead letters redriven at a later time.
func (w *world) redriveLater(after time.Duration) {
	for _, g := range w.groups() {
		_, _ = w.storeOf(g).Redrive(context.Background(), g, sluice.DeadLetterFilter{Status: []sluice.DeadLetterStatus{sluice.StatusDead}}, time.Now().Add(after))
	}
	w.count("redrive at a later time")
}

// discard gives up some of the dead letters.
func (w *world) discard() {
	list, _ := w.store.List(context.Background(), w.group, sluice.DeadLetterFilter{})
	list = slices.DeleteFunc(list, func(d sluice.DeadLetter) bool { return !w.coin(0.3, fmt.Sprint("discard ", d.ID)) })
	var ids []int64
	w.mu.Lock()
	for i := range list {
		ids = append(ids, list[i].ID)
		w.discarded[list[i].ID] = true
		stored := w.parkings[w.letterID(&list[i])]
		stored.discarded = time.Now()
		w.parkings[w.letterID(&list[i])] = stored
	}
	w.mu.Unlock()
	if len(ids) > 0 {
		_, _ = w.store.Discard(context.Background(), w.group, sluice.DeadLetterFilter{IDs: ids})
		w.count("discard")
	}
}

// checkStep records violations of one committed step: a redrive before its time, and an
// event that the step applied while an older dead letter of it stays.
func (w *world) checkStep(step driver.Step, redriven []sluice.DeadLetter) {
	for _, d := range redriven {
		if time.Now().Before(d.NextAttempt) || d.Status != sluice.StatusRetry {
			w.violation("partition %s: dead letter %d (%s) was redriven before %v", step.Lease.Partition, d.ID, d.Status, d.NextAttempt)
		}
	}
	if step.From == step.To || !w.has(operators|deployments) {
		return
	}
	first, last := step.From.Sequence+1, step.To.Sequence
	list, _ := w.storeOf(step.Lease.Group).List(context.Background(), step.Lease.Group, sluice.DeadLetterFilter{Partition: step.Lease.Partition, FirstSequence: &first, LastSequence: &last})
	topic, _ := w.hub.Describe(context.Background())
	for _, d := range list {
		w.mu.Lock()
		id := w.letterID(&d)
		late := w.touched[id] && w.parkings[id].time.After(w.claimedAt[tenureOf(step.Lease)]) // no step can know of it
		w.mu.Unlock()
		own := late || slices.ContainsFunc(step.DeadLetters, func(o sluice.DeadLetter) bool { return o.Event.Sequence == d.Event.Sequence })
		if !own && d.Incarnation == topic.Incarnation && step.Lease.Group == w.group {
			w.violation("partition %s: event %d took effect, and its dead letter stays (%s)", step.Lease.Partition, d.Event.Sequence, d.Error)
		}
	}
}

// redrivesOf returns the dead letters that a step redrives.
func (w *world) redrivesOf(step driver.Step) []sluice.DeadLetter {
	if len(step.Redriven) == 0 || !w.has(operators|deployments) {
		return nil
	}
	list, _ := w.storeOf(step.Lease.Group).List(context.Background(), step.Lease.Group, sluice.DeadLetterFilter{IDs: step.Redriven})
	return list
}

// violation records one.
func (w *world) violation(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stale = append(w.stale, fmt.Sprintf(format, args...))
}

package sim

import (
	"fmt"
	"maps"
	"slices"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
)

// An operator who sets a checkpoint back begins an interval of the events after it: each of them
// must be done once more, and a transactional delivery does it exactly once. So what an event had
// before counts neither for it nor against it.

// repeats is what the world expects of events that may be done again. The database holds what it is
// about, so a failover restores it.
type repeats struct {
	earlier map[eventID]had // what an event had when its interval began
	parked  map[eventID]int // how often an at-least-once delivery has stored its dead letter since
	lost    map[eventID]bool
}

// had is what an event had at a time.
type had struct{ effects, written int }

func newRepeats() repeats {
	return repeats{map[eventID]had{}, map[eventID]int{}, map[eventID]bool{}}
}

// snapshot returns what a failover to a replica of now would restore. The lock is held.
func (w *world) snapshotRepeats() repeats {
	return repeats{maps.Clone(w.repeats.earlier), maps.Clone(w.repeats.parked), maps.Clone(w.lost)}
}

// restoreRepeats goes back to a snapshot. What was excused since stays so: the log is not restored,
// and at-least-once deliveries go on from what they know.
func (w *world) restoreRepeats(s repeats) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.repeats = s
	maps.Copy(w.lost, s.lost)
}

// counts returns how many effects each event has.
func (w *world) countEffects() map[eventID]int {
	n := map[eventID]int{}
	for _, row := range w.store.Rows("effects") {
		e := row.(effect)
		n[eventID{w.group.Topic, e.partition, e.sequence, e.life}]++
	}
	return n
}

// beginInterval notes that an operator has set a checkpoint back: the events after it are to be
// done again, also those that were skipped before. The log holds those from first on. The lock is
// held.
func (w *world) beginInterval(partition string, life int, after, first int64, effects map[eventID]int) {
	for n := after + 1; n < w.sent[partition]; n++ {
		id := eventID{w.group.Topic, partition, n, life}
		if extra := effects[id] - w.repeats.earlier[id].effects; extra > 1+w.repeats.parked[id] {
			w.stale = append(w.stale, fmt.Sprintf("event %v took effect %d times before the checkpoint was set back", id, extra))
		}
		w.repeats.earlier[id] = had{effects[id], w.written[written{partition, n, life}]}
		delete(w.repeats.parked, id)
		if n >= first {
			delete(w.lost, id)
		}
	}
}

// isRepeated reports whether an event had an effect before its interval, or may have another beside
// that of its interval.
func (w *world) isRepeated(id eventID) bool {
	return w.repeats.earlier[id].effects > 0 || w.touched[id]
}

// known is what a process learned of a partition when it claimed it first under a lease.
type known struct {
	life    int
	upTo    int64                  // the checkpoint
	done    []driver.SequenceRange // after it
	written map[string]bool        // records of events whose success it was told
}

// learns notes the first answer to a claim under a lease. The lock is held.
func (p *process) learns(partition string, c sluice.Checkpoint) {
	if _, again := p.knows[partition]; !again {
		p.knows[partition] = known{p.w.lives[c.Incarnation], c.Position.Sequence, c.Done, map[string]bool{}}
	}
}

// mayWrite records a violation if a process of an at-least-once delivery writes an event again
// although it knows that it is done.
func (p *process) mayWrite(e *sluice.Event, record string) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	k, ok := p.knows[e.Partition]
	if !ok || k.life != lifeOf(e) {
		return
	}
	done := slices.ContainsFunc(k.done, func(r driver.SequenceRange) bool { return r.First <= e.Sequence && e.Sequence <= r.Last })
	if e.Sequence <= k.upTo || done || k.written[record] {
		p.w.stale = append(p.w.stale, fmt.Sprintf("partition %s: %s writes event %d again, which it knows to be done (checkpoint %d, done %v, written %v)", e.Partition, p.name, e.Sequence, k.upTo, done, k.written[record]))
	}
}

// wasWritten notes that a process was told that a record of an event is written.
func (p *process) wasWritten(e *sluice.Event, record string) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	if k, ok := p.knows[e.Partition]; ok && k.life == lifeOf(e) {
		k.written[record] = true
	}
}

package sim

import (
	"fmt"
	"hash/fnv"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
)

// In worlds with gaps, runs of numbers hold no event in the logs of all stages, as in a topic of
// Kafka: checkpoints must pass them, and nothing may take one for an event.

// isEmpty reports whether a number of a log holds no event. The seed decides it for each number.
func (w *world) isEmpty(id eventID) bool {
	if !w.has(gaps) {
		return false
	}
	draw := func(what string, n int64) uint64 {
		h := fnv.New64a()
		fmt.Fprint(h, w.cfg.Seed, what, id.topic, id.partition, id.life, n)
		return h.Sum64() >> 32 % 10
	}
	dense := draw("run", id.sequence/5) // some runs of five numbers have hardly an event, others only events
	return draw("number", id.sequence) < []uint64{0, 0, 3, 9}[dense%4]
}

// empties returns the numbers from one on that hold no event before one that does, as they are
// appended to a log.
func (w *world) empties(id eventID) (list []*sluice.Event) {
	for ; w.isEmpty(id); id.sequence++ {
		list = append(list, &sluice.Event{Control: true})
	}
	return list
}

// eventsIn returns how many events have numbers after one and up to another.
func (w *world) eventsIn(id eventID, after, upTo int64) (n int64) {
	if !w.has(gaps) {
		return upTo - after
	}
	for id.sequence = after + 1; id.sequence <= upTo; id.sequence++ {
		if !w.isEmpty(id) {
			n++
		}
	}
	return n
}

// lastEvent returns the highest number up to one that holds an event, -1 if none does.
func (w *world) lastEvent(id eventID) int64 {
	for id.sequence >= 0 && w.isEmpty(id) {
		id.sequence--
	}
	return id.sequence
}

// isEvent records a violation if something that handles events is given a number without one.
func (w *world) isEvent(e *sluice.Event) {
	if e.Control || len(e.Body) == 0 {
		w.violation("partition %s: number %d holds no event, and came as one", e.Partition, e.Sequence)
	}
}

// movedAlone counts the moves of a checkpoint over numbers without an event alone.
func (w *world) movedAlone(lease sluice.Lease, from, to sluice.Position) {
	if !w.has(gaps) || from == driver.Unset || to.Sequence == from.Sequence {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.eventsIn(eventID{lease.Group.Topic, lease.Partition, 0, w.life}, from.Sequence, to.Sequence) == 0 {
		w.fired["checkpoint moved over numbers without an event"]++
	}
}

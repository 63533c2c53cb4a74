package sluice

import (
	"fmt"
	"slices"
	"time"
)

// mappingTrial is what is known of a records function that has made no record yet. The worker's
// goroutine alone uses it.
type mappingTrial struct {
	rejected map[int64]bool // numbers of the events that it has rejected
	since    time.Duration  // when it rejected the first, by Clock.Elapsed
	reported bool           // that the event waits
}

// doubtMapping decides about an event that a mapping has rejected which has mapped none yet, and
// returns the error to treat it with: the event's own if the mapping maps another that waits, an
// outage if it maps none of brakeAfter. If fewer wait, the event is tried again for mappingFor, and
// then becomes a dead letter. A mapping has no effects, so it can be tried on events out of turn.
func (w *atLeastOnceWorker[R]) doubtMapping(e *inFlightEvent, err error, waiting []*inFlightEvent) error {
	t, now := &w.mapping, w.a.c.cfg.Clock.Elapsed()
	if t.rejected == nil {
		t.rejected, t.since = map[int64]bool{}, now
	}
	t.rejected[e.event.Sequence] = true
	for _, other := range slices.Concat(waiting, w.queue.unmade) {
		if len(t.rejected) >= brakeAfter || w.a.idle.Err() != nil || w.a.c.cfg.Clock.Elapsed()-now >= searchFor {
			break
		}
		if t.rejected[other.event.Sequence] || !w.a.c.cfg.handles(other.event) {
			continue
		}
		failure := guard(func() error { _, err := w.records(w.recordCtxOf(other), other.event); return err })
		if !unproved(err) {
			return err
		}
		if unproved(failure) {
			t.rejected[other.event.Sequence] = true
		}
	}
	switch n := len(t.rejected); {
	case n >= brakeAfter:
		return Outage(fmt.Errorf("partition is held: the mapping has mapped none of %d events, so it is probably wrong: correct it; events wait and none becomes a dead letter, one at a time is tried until one is mapped; event %d: %w",
			n, e.event.Sequence, err))
	case now-t.since < mappingFor:
		if now != t.since && !t.reported { // another partition may have one that it maps
			t.reported = true
			w.a.failed(fmt.Errorf("event %d: the mapping has mapped no event yet; the event waits up to %v for one that it maps, then it becomes a dead letter: %w", e.event.Sequence, mappingFor, err))
		}
		return RetryAfter(err, time.Second)
	}
	return err
}

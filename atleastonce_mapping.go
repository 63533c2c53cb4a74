package sluice

import (
	"slices"
	"time"

	"github.com/sluice-go/sluice/driver"
)

// doubtMapping decides about an event that a mapping has rejected which has mapped none yet, and
// returns the error to treat it with: the event's own if the mapping maps another that waits, an
// outage if it is probably wrong. If too few wait to know, the event is tried again for mappingFor,
// and then becomes a dead letter. The records function has no effects, so it can be called with
// events out of turn.
func (w *atLeastOnceWorker[R]) doubtMapping(e *inFlightEvent, err error, waiting []*inFlightEvent) error {
	elapsed := w.a.cfg.Clock.Elapsed
	t, began := &w.mapping, elapsed()
	t.note(e.event.Sequence, began)
	for _, other := range slices.Concat(waiting, w.queue.unmade) {
		if t.wrong() || w.a.idle.Err() != nil || elapsed()-began >= searchFor {
			break
		}
		if t.rejected[other.event.Sequence] || !w.a.cfg.handles(other.event) {
			continue
		}
		failure := guard(func() error { _, err := w.records(w.recordCtxOf(other), other.event); return err })
		if !unproved(err) {
			return err
		}
		if unproved(failure) {
			t.note(other.event.Sequence, began)
		}
	}
	switch {
	case t.wrong():
		return driver.Outage(t.heldError(err))
	case began-t.since >= mappingFor:
		return err
	case began > t.since && !t.reported:
		t.reported = true
		w.a.failed(t.waitError(err))
	}
	return driver.RetryAfter(err, time.Second)
}

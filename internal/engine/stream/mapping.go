package stream

import (
	"slices"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine"
)

// doubtMapping decides about an event that a mapping has rejected which has mapped none yet, and
// returns the error to treat it with: the event's own if the mapping maps another that waits, an
// outage if it is probably wrong. If too few wait to know, the event is tried again for mappingFor,
// and then becomes a dead letter. The records function has no effects, so it can be called with
// events out of turn.
func (w *worker[R]) doubtMapping(e *inFlightEvent, err error, waiting []*inFlightEvent) error {
	elapsed := w.a.Settings.Clock.Elapsed
	t, began := &w.mapping, elapsed()
	t.Note(e.event.Sequence, began)
	for _, other := range slices.Concat(waiting, w.queue.unmade) {
		if t.Wrong() || w.a.Idle.Err() != nil || elapsed()-began >= engine.SearchFor {
			break
		}
		if t.Rejected[other.event.Sequence] || !w.a.Settings.Handles(other.event) {
			continue
		}
		failure := engine.Guard(func() error { _, err := w.records(w.recordCtxOf(other), other.event); return err })
		if !engine.Unproved(err) {
			return err
		}
		if engine.Unproved(failure) {
			t.Note(other.event.Sequence, began)
		}
	}
	switch {
	case t.Wrong():
		return driver.Outage(t.HeldError(err))
	case began-t.Began >= engine.MappingFor:
		return err
	case began > t.Began && !t.Reported:
		t.Reported = true
		w.a.Failed(t.WaitError(err))
	}
	return driver.RetryAfter(err, time.Second)
}

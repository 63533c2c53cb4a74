package sluice

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-go/sluice/driver"
)

// A mapping that rejects every event is wrong, and the events are good. A mapping that has mapped an
// event since the process began is right about the others. So as long as it has not, it is tried on
// the events that wait before one that it rejects becomes a dead letter.

// mappingFor is how long an event waits for another that the mapping maps, if it has rejected fewer
// than brakeAfter.
const mappingFor = 30 * time.Second

// mappingTrial is what is known of mappings that have mapped no event yet.
type mappingTrial struct {
	rejected map[int64]bool // numbers of the events that they have rejected
	since    time.Duration  // when the first was, by Clock.Elapsed
	reported bool           // that events wait
}

// note counts an event that a mapping has rejected, once.
func (t *mappingTrial) note(sequence int64, now time.Duration) {
	if t.rejected == nil {
		t.rejected, t.since = map[int64]bool{}, now
	}
	t.rejected[sequence] = true
}

// wrong reports whether so many events were rejected that the mapping is probably wrong.
func (t *mappingTrial) wrong() bool { return len(t.rejected) >= brakeAfter }

// heldError is reported while a partition is held because its mapping is probably wrong.
func (t *mappingTrial) heldError(last error) error {
	return fmt.Errorf("partition is held: the mapping has mapped none of %d events, so it is probably wrong: correct it; events wait and none becomes a dead letter; they are tried until one is mapped; last error: %w", len(t.rejected), last)
}

// waitError is reported once if an event has waited for a second: until then another partition may
// have one that the mapping maps.
func (t *mappingTrial) waitError(last error) error {
	return fmt.Errorf("the mapping has mapped no event yet; the event waits up to %v for one that it maps, then it becomes a dead letter: %w", mappingFor, last)
}

// doubtMapping brings an event to its end that a mapping has rejected which has mapped none yet. If
// it maps another, the event becomes a dead letter. If it has rejected brakeAfter events and mapped
// none, the partition is held. If fewer wait, they become dead letters after mappingFor: one bad
// event does not hold an idle partition.
func (w *batchWorker[Tx]) doubtMapping(t *trial) error {
	defer w.a.waiting.doing(activityHold, t.event.Sequence, 1).done()
	trial, elapsed := &w.brake.unmapped, w.a.cfg.Clock.Elapsed
	trial.note(t.event.Sequence, elapsed())
	for first := true; ; first = false {
		if err := w.tryMapping(t); err != nil && !errors.Is(err, errReclaimed) {
			return err
		}
		if !unproved(t.failure) || !trial.wrong() && elapsed()-trial.since >= mappingFor {
			return w.park(t)
		}
		pause := time.Second
		switch b := w.batchOf([]*Event{t.event}); {
		case trial.wrong():
			w.failed(b, trial.heldError(t.failure))
			pause = t.wait.Next()
		case !first && !trial.reported:
			trial.reported = true
			w.failed(b, trial.waitError(t.failure))
		}
		w.returned()
		if err := w.a.pause(pause); err != nil {
			return err
		}
		if err := w.makeAttempt(t); err != nil && !errors.Is(err, errReclaimed) {
			return err
		}
		if w.done(t.event) || !unproved(t.failure) {
			return nil
		}
	}
}

// tryMapping tries the events that wait, many at a time, in transactions that are rolled back, until
// the mapping has mapped one or time is up. Events that another mapping maps show nothing.
func (w *batchWorker[Tx]) tryMapping(t *trial) error {
	if !w.policy.trials {
		return nil
	}
	elapsed, most := w.a.cfg.Clock.Elapsed, w.a.cfg.MaxBatch
	began, trial := elapsed(), &w.brake.unmapped
	others := slices.DeleteFunc(w.policy.witnesses.candidates(t.event, 2*most), func(e *Event) bool { return trial.rejected[e.Sequence] })
	for len(others) > 0 && unproved(t.failure) {
		if w.a.idle.Err() != nil {
			return w.a.ended()
		}
		if took := elapsed() - began; took >= searchFor || took >= sampleFor && trial.wrong() {
			return nil
		}
		some := others[:min(most, len(others))]
		err := w.commit(driver.Step{Lease: w.a.lease, From: w.pos, To: w.pos, DryRun: true}, w.batchOf(some))
		tried := len(some)
		var failed *driver.HandlerError
		switch {
		case err == nil:
		case !errors.As(err, &failed):
			return err
		default:
			for _, c := range blamed(failed, len(some)) { // it may be the first alone that the handler names
				tried = c.Index + 1
				if unproved(c.Err) {
					trial.note(some[c.Index].Sequence, elapsed())
				}
			}
		}
		others = others[tried:]
	}
	return nil
}

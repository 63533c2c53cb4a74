package batch

import (
	"errors"
	"slices"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine"
	"github.com/sluice-go/sluice/internal/engine/partition"
)

// A mapping that rejects every event is wrong, and the events are good. A mapping that has mapped
// an event since the process began is right about the others. So as long as it has not, it is tried
// on the events that wait before one that it rejects becomes a dead letter.

// doubtMapping brings an event to its end that a mapping has rejected which has mapped none yet. If
// it maps another, the event becomes a dead letter. If it has rejected brakeAfter events and mapped
// none, the partition is held. If fewer wait, they become dead letters after mappingFor: one bad
// event does not hold an idle partition.
func (w *worker[Tx]) doubtMapping(t *trial) error {
	defer w.a.Waiting.Doing(partition.ActivityHold, t.event.Sequence, 1).Done()
	trial, elapsed := &w.brake.unmapped, w.a.Settings.Clock.Elapsed
	trial.Note(t.event.Sequence, elapsed())
	for first := true; ; first = false {
		if err := w.tryMapping(t); err != nil && !errors.Is(err, errReclaimed) {
			return err
		}
		if !engine.Unproved(t.failure) || !trial.Wrong() && elapsed()-trial.Began >= engine.MappingFor {
			return w.park(t)
		}
		pause := time.Second
		switch b := w.batchOf([]*driver.Event{t.event}); {
		case trial.Wrong():
			w.failed(b, trial.HeldError(t.failure))
			pause = t.wait.Next()
		case !first && !trial.Reported:
			trial.Reported = true
			w.failed(b, trial.WaitError(t.failure))
		}
		w.returned()
		if err := w.a.Pause(pause); err != nil {
			return err
		}
		if err := w.makeAttempt(t); err != nil && !errors.Is(err, errReclaimed) {
			return err
		}
		if w.done(t.event) || !engine.Unproved(t.failure) {
			return nil
		}
	}
}

// tryMapping tries the events that wait, many at a time, in transactions that are rolled back,
// until the mapping has mapped one or time is up. Events that another mapping maps show nothing.
func (w *worker[Tx]) tryMapping(t *trial) error {
	if !w.policy.trials {
		return nil
	}
	elapsed, most := w.a.Settings.Clock.Elapsed, w.a.Settings.MaxBatch
	began, trial := elapsed(), &w.brake.unmapped
	others := slices.DeleteFunc(w.policy.witnesses.candidates(t.event, 2*most), func(e *driver.Event) bool { return trial.Rejected[e.Sequence] })
	for len(others) > 0 && engine.Unproved(t.failure) {
		if w.a.Idle.Err() != nil {
			return w.a.Ended()
		}
		if took := elapsed() - began; took >= engine.SearchFor || took >= sampleFor && trial.Wrong() {
			return nil
		}
		some := others[:min(most, len(others))]
		err := w.commit(driver.Step{Lease: w.a.Lease, From: w.pos, To: w.pos, DryRun: true}, w.batchOf(some))
		tried := len(some)
		var failed *driver.HandlerError
		switch {
		case err == nil:
		case !errors.As(err, &failed):
			return err
		default:
			for _, c := range engine.Blamed(failed, len(some)) { // it may be the first alone that the handler names
				tried = c.Index + 1
				if engine.Unproved(c.Err) {
					trial.Note(some[c.Index].Sequence, elapsed())
				}
			}
		}
		others = others[tried:]
	}
	return nil
}

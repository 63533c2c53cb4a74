package batch

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine"
	"github.com/sluice-go/sluice/internal/engine/partition"
)

// Where a table is missing its reference data, a trigger calls a service that is down, or
// a handler has a bug, every event fails. Such failures look like those of bad events.
// So an event that has used up its attempts becomes a dead letter only after another
// event was seen to succeed. If none does, and brakeAfter events in a row have failed, the
// partition is held: events wait until one succeeds.
//
// Batches handle no event before its turn, and nothing of it is rolled back. So the event that
// succeeded last is repeated instead. If it fails too, something that every event needs is
// broken: the partition is held at once. Nothing has succeeded yet: an event has heldAttempts
// more.

// Where the database refuses a statement for a reason that may be every event's, such as a missing
// table or right, no number of failures shows whose fault it is, and no success before them does:
// the table may have been dropped since. Only an event that runs the same statements now does. So
// the event becomes a dead letter when it has failed witnessesNeeded times in a row between two
// successes of others; until then the partition is held. So it is after a time limit.

// While the partition is held, a round tries up to samples events besides the first, and no more
// once they have taken sampleFor: a handler that times out makes every sample slow.
const (
	samples   = 3
	sampleFor = time.Second
)

// witnessesNeeded is how often the event in doubt must fail between two successes of others, where
// one may be chance: of a table that comes and goes, or of one of two servers behind an address.
const witnessesNeeded = 5

// filteredAhead is how many events after a batch are looked at with a filter, to find others that
// are handled.
const filteredAhead = 10_000

// brake counts events that fail. Its zero value is ready to use.
type brake struct {
	failed   map[int64]bool // numbers of the events that failed in a row, without one success
	witness  *driver.Event  // the last event that succeeded in a dry run; see witnesses
	held     bool           // no event succeeds, or is known to have: see eventDone
	stuck    bool           // no event was seen to run the statements that the database refuses
	unmapped engine.MappingTrial
}

// note counts an event that fails, once.
func (b *brake) note(e *driver.Event) {
	if b.failed == nil {
		b.failed = make(map[int64]bool, engine.BrakeAfter)
	}
	b.failed[e.Sequence] = true
}

// release begins to count again, because an event has succeeded.
func (b *brake) release() {
	clear(b.failed)
	b.held, b.stuck = false, false
}

func (b *brake) tripped() bool { return b.held || b.stuck || len(b.failed) >= engine.BrakeAfter }

// doubt decides about an event that has used up its attempts. If another event succeeds,
// the failure is its own if one more attempt fails. It is also its own if there is no
// other event to try and few have failed in a row, unless the failure may be every event's.
func (w *worker[Tx]) doubt(t *trial) error {
	w.brake.note(t.event)
	w.returned()
	found, all, err := w.findWitness(t)
	switch {
	case err != nil:
		return err
	case found:
		if t.confirmed { // by a witness before the attempt that failed
			t.witnesses++
		}
		if t.witnesses >= witnessesNeeded {
			return w.park(t)
		}
		t.confirmed = true
		t.retry()
		return nil
	}
	t.confirmed, t.witnesses = false, 0
	w.policy.witnesses.missing()
	w.brake.stuck = t.open() || !all
	if w.brake.tripped() {
		return w.hold(t)
	}
	t.confirmed = true
	return nil
}

// findWitness reports whether an event other than the one in doubt succeeds, and runs the
// statements that failed for that one. If none does, all reports whether each that waits was tried.
// Once one has succeeded, only that one is tried: a second one that succeeds where the first now
// fails would show that success is chance.
func (w *worker[Tx]) findWitness(t *trial) (found, all bool, err error) {
	elapsed := w.a.Settings.Clock.Elapsed
	began, most := elapsed(), engine.BrakeAfter
	if t.confirmed {
		most = 1
	}
	for _, other := range w.policy.witnesses.candidates(t.event, most) {
		if w.brake.tripped() || w.a.Idle.Err() != nil {
			break
		}
		if elapsed()-began >= engine.SearchFor {
			return false, false, nil
		}
		if found, err := w.dryRun(other, t.statements); found || err != nil {
			return found, true, err
		}
	}
	if w.a.Idle.Err() != nil { // not all were tried
		return false, false, w.a.Ended()
	}
	return false, true, nil
}

// dryRun reports whether the handler succeeds with an event and runs statements of these shapes, in
// a transaction that is rolled back.
func (w *worker[Tx]) dryRun(e *driver.Event, statements []string) (bool, error) {
	step := driver.Step{Lease: w.a.Lease, From: w.pos, To: w.pos, DryRun: true, Witness: statements}
	err := w.commit(step, w.batchOf([]*driver.Event{e}))
	var failed *driver.HandlerError
	switch {
	case err == nil:
		w.brake.witness = e
		w.brake.release()
		return true, nil
	case errors.Is(err, driver.ErrNotRun):
		return false, nil
	case errors.As(err, &failed):
		own := engine.FaultOf(failed.Err) == engine.FaultEvent
		if own {
			w.brake.note(e)
		}
		w.policy.witnesses.failed(own)
		return false, nil
	}
	return false, err
}

// hold keeps the partition where it is until an event succeeds: the first one, or one of
// those after it.
func (w *worker[Tx]) hold(t *trial) error {
	defer w.a.Waiting.Doing(partition.ActivityHold, t.event.Sequence, 1).Done()
	wait := w.a.Settings.Backoff(w.a.Rand)
	for n := 0; w.brake.tripped(); n++ {
		if w.policy.witnesses.exhausted(n) {
			break
		}
		w.failed(w.batchOf([]*driver.Event{t.event}), w.brake.heldError(t))
		if err := w.a.Pause(wait.Next()); err != nil {
			return err
		}
		open := t.open()
		if err := w.makeAttempt(t); err != nil && !errors.Is(err, errReclaimed) {
			return err
		}
		if w.done(t.event) || engine.FaultOf(t.failure).Final() {
			return nil
		}
		if open && !t.open() {
			w.brake.stuck = false // the statement works again: now it is the values
		}
		w.returned()
		if err := w.sample(t); err != nil && !errors.Is(err, errReclaimed) {
			return err
		}
	}
	t.confirmed = true
	t.retry()
	return nil
}

// sample tries events after the one in doubt, drawn at random, until one succeeds. More than one,
// because the first may fail by its own fault: the next round is up to RetryMax away.
func (w *worker[Tx]) sample(t *trial) error {
	elapsed := w.a.Settings.Clock.Elapsed
	began, others := elapsed(), w.policy.witnesses.candidates(t.event, 2*w.a.Settings.MaxBatch)
	for range min(samples, len(others)) {
		i := w.a.Rand.IntN(len(others))
		found, err := w.dryRun(others[i], t.statements)
		if found || err != nil || elapsed()-began >= sampleFor {
			return err
		}
		others = slices.Delete(others, i, i+1)
	}
	return nil
}

// heldError is reported while a partition is held.
func (b *brake) heldError(t *trial) error {
	last := t.failure
	if t.advice != "" {
		last = fmt.Errorf("%w: %s", last, t.advice)
	}
	switch {
	case b.stuck:
		return fmt.Errorf("partition is held: the event fails for a reason that may be every event's, and no other event that waits was seen to succeed in the same way: repair what the error names; events wait and none becomes a dead letter; last error: %w", last)
	case !b.held:
		return fmt.Errorf("partition is held: %d events in a row failed and none succeeded, so probably something that every event needs is broken: repair it; events wait and none becomes a dead letter, one at a time is tried until one succeeds; last error: %w", len(b.failed), last)
	case b.witness == nil:
		return fmt.Errorf("partition is held: nothing has succeeded since it was acquired, so the event may be bad, or something that every event needs is broken: repair it; the event is tried %d more times before it becomes a dead letter; last error: %w", engine.HeldAttempts, last)
	}
	return fmt.Errorf("partition is held: event %d, which had succeeded, fails too when it is repeated, so probably something that every event needs is broken: repair it; events wait and none becomes a dead letter, one at a time is tried until one succeeds; last error: %w", b.witness.Sequence, last)
}

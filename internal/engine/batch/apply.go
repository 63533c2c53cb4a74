package batch

import (
	"errors"
	"fmt"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/clock"
	"github.com/sluice-go/sluice/internal/engine"
)

// apply brings events to their end, in order: each is committed or becomes a dead
// letter. If all goes well that takes one transaction.
func (w *worker[Tx]) apply(events []*driver.Event) error {
	for {
		events = w.notDone(events)
		if len(events) == 0 {
			return nil
		}
		var err error
		if n := min(len(events), w.batchLimit(events)); n == 1 {
			err = w.applyOne(events[0], nil)
		} else {
			err = w.applyBatch(events[:n])
		}
		if err != nil {
			return err
		}
	}
}

// applyBatch applies several events in one transaction. If that fails because of one of
// them, it splits the batch around the events to blame, which the handler names or
// halving finds. Events may be left that are neither committed nor dead letters.
func (w *worker[Tx]) applyBatch(events []*driver.Event) error {
	failure, err := failureOf(w.tryBatch(events))
	if failure == nil {
		return err
	}
	bad := culprits(failure, events, w.given)
	if len(bad) == 0 {
		half := len(events) / 2
		if err := w.apply(events[:half]); err != nil {
			return err
		}
		return w.apply(events[half:])
	}
	if dead, n := w.rejections(events, bad); dead != nil {
		if failure, err := failureOf(w.transact(events[:n], dead)); failure == nil {
			return err
		}
	}
	for _, c := range bad {
		if engine.Unproved(c.Err) {
			w.brake.unmapped.Note(events[c.Index].Sequence, w.a.Settings.Clock.Elapsed())
		}
	}
	first := bad[0]
	if err := w.apply(events[:first.Index]); err != nil {
		return err
	}
	return w.applyOne(events[first.Index], &driver.HandlerError{Err: first.Err, Statements: failure.Statements, Advice: failure.Advice})
}

// rejections makes dead letters of the culprits if all of them are rejected, and by a mapping that
// maps other events. It returns how many events they and the events before them are.
func (w *worker[Tx]) rejections(events []*driver.Event, culprits []*driver.EventError) (dead []driver.DeadLetter, n int) {
	for _, c := range culprits {
		if !engine.FaultOf(c.Err).Final() || engine.Unproved(c.Err) {
			return nil, 0
		}
		e := events[c.Index]
		dead = append(dead, w.a.NewDeadLetter(e, c.Err, w.attempts(e)+1))
		n = c.Index + 1
	}
	return dead, n
}

// trial is an event that is applied alone, until it is committed or a dead letter.
type trial struct {
	event      *driver.Event
	failure    error    // of the last attempt; nil if the next one is to be made
	statements []string // that it is about, and what to do: see driver.HandlerError
	advice     string
	attempt    int  // its number
	confirmed  bool // the failure is the event's own: see doubt
	witnesses  int  // how often it failed in a row between two successes of others
	wait       *clock.Backoff
}

// fail takes the failure of an attempt.
func (t *trial) fail(failure *driver.HandlerError, attempt int) {
	t.failure, t.statements, t.advice, t.attempt = failure.Err, failure.Statements, failure.Advice, attempt
	var each *driver.EventError
	if errors.As(failure, &each) {
		t.failure = each.Err
	}
}

// open reports whether the failure may be every event's, so that only another event's success shows
// that it is this one's: a statement that the database refused, or a time limit.
func (t *trial) open() bool {
	return len(t.statements) > 0 || errors.Is(t.failure, driver.ErrTimeLimit)
}

// retry has another attempt made.
func (t *trial) retry() { t.failure = nil }

// applyOne brings one event to its end: it is committed, or becomes a dead letter
// after its attempts. A failure that is already known counts as an attempt.
func (w *worker[Tx]) applyOne(e *driver.Event, failure *driver.HandlerError) error {
	t := &trial{event: e, attempt: w.attempts(e), wait: w.a.Settings.Backoff(w.a.Rand)}
	if failure != nil {
		t.fail(failure, t.attempt+1)
	}
	for !w.done(e) {
		next := w.decide
		if t.failure == nil {
			next = w.makeAttempt
		}
		if err := next(t); err != nil && !errors.Is(err, errReclaimed) {
			return err
		}
	}
	return nil
}

// makeAttempt makes one attempt at an event.
func (w *worker[Tx]) makeAttempt(t *trial) error {
	if killer := w.killer(t.event); killer != nil {
		t.fail(&driver.HandlerError{Err: killer}, w.attempts(t.event))
		return nil
	}
	failure, err := failureOf(w.try(t.event))
	if failure != nil {
		t.fail(failure, w.attempts(t.event)+1)
	}
	return err
}

// decide decides what follows from a failed attempt.
func (w *worker[Tx]) decide(t *trial) error {
	last := t.attempt >= w.a.Settings.Attempts
	switch {
	case engine.FaultOf(t.failure) == engine.FaultRejected && engine.Unproved(t.failure):
		return w.doubtMapping(t)
	case engine.FaultOf(t.failure).Final(), last && t.confirmed && !t.open():
		return w.park(t)
	case last:
		return w.doubt(t)
	}
	if err := w.recordFailure(t.event, t.attempt, t.failure); err != nil {
		return err
	}
	w.a.Observe(driver.Observation{Kind: driver.KindRetried, To: t.event.Position(), Event: t.event, Attempt: t.attempt, Err: t.failure})
	t.retry()
	return w.a.Pause(t.wait.Next())
}

// park stores an event as a dead letter.
func (w *worker[Tx]) park(t *trial) error {
	failure, err := failureOf(w.transact([]*driver.Event{t.event}, []driver.DeadLetter{w.a.NewDeadLetter(t.event, t.failure, t.attempt+w.deaths(t.event))}))
	if failure != nil {
		return fmt.Errorf("store dead letter: %w", failure)
	}
	return err
}

// done reports whether an event lies before the checkpoint.
func (w *worker[Tx]) done(e *driver.Event) bool { return e.Sequence <= w.pos.Sequence }

// notDone returns the events without those that are done.
func (w *worker[Tx]) notDone(events []*driver.Event) []*driver.Event {
	for len(events) > 0 && w.done(events[0]) {
		events = events[1:]
	}
	return events
}

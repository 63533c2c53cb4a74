package stream

import (
	"cmp"
	"fmt"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine"
	"github.com/sluice-go/sluice/internal/engine/partition"
)

// doubts are the events that have used up their attempts although nothing of the
// partition was written in between, so that the cause may be something that every
// event needs. They wait, and are tried again. Once a record is written, the next
// failure of each of them is its own. The worker's goroutine alone uses it.
type doubts struct {
	inRow   int             // events that used up their attempts since a record was written
	written int64           // records that were written then
	hold    *partition.Span // reported while the partition is held
}

// tripped reports whether so many events failed in a row that the partition is held.
func (d *doubts) tripped() bool { return d.inRow >= engine.BrakeAfter }

// released ends the report that the partition is held.
func (d *doubts) released() {
	d.inRow = 0
	if d.hold != nil {
		d.hold.Done()
		d.hold = nil
	}
}

// recordFailed decides what happens to a record that was not written.
func (w *worker[R]) recordFailed(t *recordTask[R], err error) {
	fault := engine.FaultOf(err)
	switch {
	case w.a.Work.Err() != nil:
		// Whether the event or the cancellation caused the error is unknown.
	case fault == engine.FaultRetry:
		wait := cmp.Or(engine.StatedWait(err), w.cfg.RetryAfter)
		w.a.Progress.Ask(w.a.Settings.Clock.Elapsed(), wait)
		w.retry(t, wait, err)
	case fault == engine.FaultEnvironment:
		w.outage(err)
		w.queue.retryNow(t) // the records of its key stay blocked, so the order is kept
	case t.event.redrive != nil, fault.Final():
		w.convict(t, err)
	case w.a.IsFinal(err, t.attempts+1) && w.isOwn(t):
		w.convict(t, err)
	default:
		if w.doubts.tripped() {
			w.outage(fmt.Errorf("partition is held: %d events in a row failed and none was written, so the cause is probably something that every event needs: repair it; events wait, and one at a time is retried until one is written; event %d: %w",
				w.doubts.inRow, t.event.event.Sequence, err))
		}
		t.written = w.stats.written.Load()
		t.attempts++
		wait := w.a.Settings.Backoff(w.a.Rand)
		var d time.Duration
		for range min(t.attempts, 16) {
			d = wait.Next()
		}
		w.retry(t, d, err)
	}
}

// outage keeps records back, and reports why.
func (w *worker[R]) outage(err error) {
	if w.breaker.trip(w.a.Settings.Clock.Elapsed()) {
		w.a.Failed(err)
	}
}

// isOwn reports whether it is an event's own fault that it has used up its attempts:
// a record was written since it failed before, or there is no other event to try and
// few have failed in a row. Otherwise the event is in doubt.
func (w *worker[R]) isOwn(t *recordTask[R]) bool {
	d := &w.doubts
	written := w.stats.written.Load()
	if written != d.written {
		d.written = written
		d.released()
	}
	if written > t.written {
		return true
	}
	if !t.doubted {
		t.doubted = true
		w.queue.count(t.event, 1, 0)
		if t.event.doubted == 1 {
			d.inRow++
		}
	}
	// What waits for an earlier event of its key can't be tried.
	behind := w.queue.waiting + len(w.queue.unmade)
	alone := w.inFlight.list.InFlight()-w.deadLetters.len()-behind <= w.queue.doubted
	if d.tripped() {
		if d.hold == nil {
			hold := w.a.Waiting.Doing(partition.ActivityHold, t.event.event.Sequence, 1)
			d.hold = &hold
		}
		// If nothing else can be tried until this event is out of the way, no success
		// may ever come.
		return alone && behind > 0 && t.attempts >= w.a.Settings.Attempts+engine.HeldAttempts
	}
	return alone
}

// convict makes a record's event a failed one after its last attempt.
func (w *worker[R]) convict(t *recordTask[R], err error) {
	w.fail(t, err, t.attempts+1)
}

func (w *worker[R]) retry(t *recordTask[R], wait time.Duration, err error) {
	w.a.Observe(driver.Observation{Kind: driver.KindRetried, To: t.event.event.Position(), Event: t.event.event, Attempt: t.attempts, Err: err})
	w.queue.retryAt(t, w.a.Settings.Clock.Elapsed()+wait)
}

// fail makes a record's event a failed one.
func (w *worker[R]) fail(t *recordTask[R], err error, attempts int) {
	e := t.event
	if !e.failed.Load() {
		e.failure, e.attempts = err, attempts
		w.deadLetters.expect(e)
		if e.redrive != nil {
			w.redrives.hold(e.redrive)
		}
		e.failed.Store(true)
	}
	w.finish(t)
}

// finish ends a record that is not written and never will be.
func (w *worker[R]) finish(t *recordTask[R]) {
	w.queue.endDoubt(t)
	w.queue.unblock(t)
	if t.event.left.Add(-1) == 0 {
		w.eventFinished(t.event)
	}
}

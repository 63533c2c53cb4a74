package sluice

import (
	"cmp"
	"fmt"
	"time"

	"github.com/sluice-go/sluice/driver"
)

// doubts are the events that have used up their attempts although nothing of the
// partition was written in between, so that the cause may be something that every
// event needs. They wait, and are tried again. Once a record is written, the next
// failure of each of them is its own. The worker's goroutine alone uses it.
type doubts struct {
	inRow   int   // events that used up their attempts since a record was written
	written int64 // records that were written then
	hold    *span // reported while the partition is held
}

// heldAttempts is how often an event that keeps all others from being tried is tried again
// while the partition is held. Then it becomes a dead letter.
const heldAttempts = 10

// tripped reports whether so many events failed in a row that the partition is held.
func (d *doubts) tripped() bool { return d.inRow >= brakeAfter }

// released ends the report that the partition is held.
func (d *doubts) released() {
	d.inRow = 0
	if d.hold != nil {
		d.hold.done()
		d.hold = nil
	}
}

// recordFailed decides what happens to a record that was not written.
func (w *atLeastOnceWorker[R]) recordFailed(t *recordTask[R], err error) {
	fault := faultOf(err)
	switch {
	case w.a.work.Err() != nil:
		// Whether the event or the cancellation caused the error is unknown.
	case fault == faultRetry:
		wait := cmp.Or(statedWait(err), w.cfg.RetryAfter)
		w.a.progress.ask(w.a.cfg.Clock.Elapsed(), wait)
		w.retry(t, wait, err)
	case fault == faultEnvironment:
		w.outage(err)
		w.queue.retryNow(t) // the records of its key stay blocked, so the order is kept
	case t.event.redrive != nil, fault == faultRejected:
		w.convict(t, err)
	case w.a.isFinal(err, t.attempts+1) && w.isOwn(t):
		w.convict(t, err)
	default:
		if w.doubts.tripped() {
			w.outage(fmt.Errorf("partition is held: %d events in a row failed and none was written, so the cause is probably something that every event needs: repair it; events wait, and one at a time is retried until one is written; event %d: %w",
				w.doubts.inRow, t.event.event.Sequence, err))
		}
		t.written = w.stats.written.Load()
		t.attempts++
		wait := w.a.cfg.backoff(w.a.rand)
		var d time.Duration
		for range min(t.attempts, 16) {
			d = wait.Next()
		}
		w.retry(t, d, err)
	}
}

// outage keeps records back, and reports why.
func (w *atLeastOnceWorker[R]) outage(err error) {
	if w.breaker.trip(w.a.cfg.Clock.Elapsed()) {
		w.a.failed(err)
	}
}

// isOwn reports whether it is an event's own fault that it has used up its attempts:
// a record was written since it failed before, or there is no other event to try and
// few have failed in a row. Otherwise the event is in doubt.
func (w *atLeastOnceWorker[R]) isOwn(t *recordTask[R]) bool {
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
	behind := w.queue.behind + len(w.queue.unmade)
	alone := w.inFlight.list.InFlight()-w.deadLetters.len()-behind <= w.queue.doubted
	if d.tripped() {
		if d.hold == nil {
			hold := w.a.waiting.doing(activityHold, t.event.event.Sequence, 1)
			d.hold = &hold
		}
		// If nothing else can be tried until this event is out of the way, no success
		// may ever come.
		return alone && behind > 0 && t.attempts >= w.a.cfg.Attempts+heldAttempts
	}
	return alone
}

// convict makes a record's event a failed one after its last attempt.
func (w *atLeastOnceWorker[R]) convict(t *recordTask[R], err error) {
	w.fail(t, err, t.attempts+1)
}

func (w *atLeastOnceWorker[R]) retry(t *recordTask[R], wait time.Duration, err error) {
	w.a.observe(driver.Observation{Kind: driver.KindRetried, To: t.event.event.Position(), Attempt: t.attempts, Err: err})
	w.queue.retryAt(t, w.a.cfg.Clock.Elapsed()+wait)
}

// fail makes a record's event a failed one.
func (w *atLeastOnceWorker[R]) fail(t *recordTask[R], err error, attempts int) {
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
func (w *atLeastOnceWorker[R]) finish(t *recordTask[R]) {
	w.queue.endDoubt(t)
	w.queue.unblock(t)
	if t.event.left.Add(-1) == 0 {
		w.eventFinished(t.event)
	}
}

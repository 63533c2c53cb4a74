package stream

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine"
	"github.com/sluice-go/sluice/internal/engine/partition"
	"github.com/sluice-go/sluice/internal/memory"
	"github.com/sluice-go/sluice/stamp"
)

// inFlightEvent is an event that was admitted, until each of its records is
// finished.
type inFlightEvent struct {
	event *driver.Event // nil once it is done
	size  int64         // of the event in bytes
	// decoded is charged for what its records need besides the event; nil: nothing is.
	decoded *memory.Charge
	slot    uint64 // on the work list
	// submitted is when a record of it was first submitted, by Clock.Elapsed; 0: none was.
	submitted *atomic.Int64
	redrive   *driver.DeadLetter // the dead letter, if this is its redrive; it is on no work list
	left      atomic.Int32
	// failed is set before the last record is finished; failure and attempts
	// before that.
	failed   atomic.Bool
	failure  error
	attempts int
	// How many of its records are in doubt, and how many wait for another event's
	// of their key. The worker's goroutine alone uses them.
	doubted, blocked int32
}

// recordTask is one record of an in-flight event. If its records could not be made
// yet, it is the task of making them.
type recordTask[R any] struct {
	worker   *worker[R]
	event    *inFlightEvent
	record   R
	made     bool           // record is set
	key      string         // its ordering key
	ordered  bool           // it has one
	next     *recordTask[R] // the next one that waits for its turn of the same key
	waits    bool           // it waits for another event's record, and is counted for that
	attempts int            // that failed and count
	probe    bool           // sent to test whether an outage is over
	turn     atomic.Uint32  // counts the results
	doubted  bool           // it has used up its attempts, and whether that is the event's fault is unknown
	written  int64          // records of the partition that were written when it failed last
	result   driver.WriteResult
	due      time.Duration // by Clock.Elapsed, while it waits for another attempt
	measured time.Duration // when it was submitted, by Clock.Elapsed, if its latency is measured
}

// busy reports whether any event is in flight.
func (w *worker[R]) busy() bool {
	return !w.queue.empty() || len(w.queue.delayed) > 0 || w.queue.blocked > 0 || w.window.atSink() > 0 || w.results.any()
}

// makeAll makes the records of events and queues them. The user's functions run on a
// goroutine of their own, because one of them may end it.
//
// While the records of an event can't be made for now, later events wait, so that the
// order is kept.
func (w *worker[R]) makeAll(events []*inFlightEvent) {
	if len(events) == 0 {
		return
	}
	track := &w.a.Delivery
	defer track.Doing(partition.ActivityRecords, events[0].event.Sequence, 1).Done()
	for len(events) > 0 && w.a.Idle.Err() == nil {
		var e *inFlightEvent
		if !engine.Returns(func() {
			for len(events) > 0 && w.a.Idle.Err() == nil {
				e, events = events[0], events[1:]
				if unmade := w.queue.unmadeBefore(e); len(*unmade) > 0 && w.cfg.Ordering != unordered && (*unmade)[0] != e {
					*unmade = append(*unmade, e)
					continue
				}
				track.MoveTo(e.event.Sequence)
				events = w.makeRecords(e, events)
			}
		}) {
			events = w.notMade(e, engine.GoexitError("records function"), events)
		}
	}
}

// makeRecords makes an event's records and queues them. It returns the events whose
// records are to be made next: those that waited for this one, and more.
func (w *worker[R]) makeRecords(e *inFlightEvent, more []*inFlightEvent) []*inFlightEvent {
	var tasks []recordTask[R]
	err := engine.Guard(func() (err error) { tasks, err = w.recordsOf(e); return err })
	e.decoded = w.a.Memory.Collect()
	if err != nil || len(tasks) == 0 {
		e.decoded.Release()
	}
	if err != nil {
		return w.notMade(e, err, more)
	}
	more = w.queue.recordsReady(e, more)
	if len(tasks) == 0 {
		w.complete(e)
		return more
	}
	e.left.Store(int32(len(tasks)))
	for i := range tasks {
		w.queue.add(&tasks[i])
	}
	return more
}

// notMade takes an event whose records could not be made.
func (w *worker[R]) notMade(e *inFlightEvent, err error, more []*inFlightEvent) []*inFlightEvent {
	e.left.Store(1)
	unmade := w.queue.unmadeBefore(e)
	if engine.FaultOf(err).Counts() && engine.Unproved(err) && e.redrive == nil {
		err = w.doubtMapping(e, err, more)
	}
	switch {
	case engine.FaultOf(err).Counts():
		err = driver.Reject(fmt.Errorf("make records: %w", err)) // a Defer of the function's still applies
		more = w.queue.recordsReady(e, more)
	case w.cfg.Ordering != unordered && len(*unmade) == 0:
		*unmade = append(*unmade, e)
	}
	w.recordFailed(&recordTask[R]{worker: w, event: e}, err)
	return more
}

// recordsOf calls the user's functions for an event's records and their keys. An event that is not
// handled has none.
func (w *worker[R]) recordsOf(e *inFlightEvent) ([]recordTask[R], error) {
	if !w.a.Settings.Handles(e.event) {
		w.stats.filtered.Add(1)
		return nil, nil
	}
	records, err := w.records(w.recordCtxOf(e), e.event)
	if err != nil {
		return nil, err
	}
	tasks := make([]recordTask[R], len(records))
	for i, r := range records {
		t := &tasks[i]
		*t = recordTask[R]{worker: w, event: e, record: r, made: true}
		switch w.cfg.Ordering {
		case byKey:
			t.key = e.event.Key
			if w.key != nil {
				t.key = w.key(r)
			}
			t.ordered = t.key != "" || w.key == nil && e.event.EmptyKey
		case byPartition:
			t.ordered = true
		}
	}
	return tasks, nil
}

// recordCtxOf returns the context in which an event's records are made and
// submitted.
func (w *worker[R]) recordCtxOf(e *inFlightEvent) context.Context {
	if e.redrive == nil {
		return w.recordCtx
	}
	// A dead letter may be of an earlier incarnation of the topic.
	ctx := driver.WithAttempt(w.recordCtx, w.a.Attempt(e.redrive.Attempts, true))
	return driver.WithEmission(ctx, stamp.NewEmission(driver.FencingTokenOf(w.recordCtx), &w.a.Topic, e.redrive.Incarnation, &w.watermark, true))
}

// canSubmit reports whether there is a record to submit, no outage, and room at the
// sink.
func (w *worker[R]) canSubmit() bool {
	now := w.a.Settings.Clock.Elapsed()
	return !w.queue.empty() && w.breaker.allows(now) && w.window.room(now) > 0
}

// submitBatch is how many records are submitted before the worker looks for
// results.
const submitBatch = 256

// submit hands records to the sink, as many as the rate allows.
func (w *worker[R]) submit() error {
	n := min(w.queue.len(), submitBatch)
	if w.cfg.Rate != nil {
		n = min(n, w.window.free())
	}
	if w.breaker.tripped {
		n = 1 // a probe
	}
	if w.cfg.Rate != nil {
		var err error
		w.stats.waitBegins()
		w.a.Progress.Every.Store(int64(w.cfg.Rate.turn(len(w.a.Topic.Partitions))))
		waiting := w.a.Delivery.Doing(partition.ActivityRate, 0, 0)
		n, err = w.cfg.Rate.wait(w.a.Idle, w.a.Settings.Clock, n)
		waiting.Done()
		w.stats.waitEnds()
		if err != nil {
			return w.a.Ended()
		}
	}
	now := w.a.Settings.Clock.Elapsed()
	measured := false
	for ; n > 0 && !w.queue.empty() && w.window.free() > 0; n-- {
		t := w.queue.pop(w.breaker.tripped)
		switch {
		case !t.made:
			w.makeAll([]*inFlightEvent{t.event})
		case t.event.failed.Load():
			w.finish(t) // another record of the event has failed
		case w.isHeld(t.event):
			w.fail(t, &engine.HeldBack{Why: fmt.Sprintf("an earlier event of key %q is a dead letter", t.event.event.Key)}, 0)
		default:
			if err := w.redriveHeld(t.event.redrive); err != nil {
				w.fail(t, err, 0)
				continue
			}
			if w.breaker.tripped {
				t.probe = true
				w.breaker.probes++
			}
			t.measured = 0
			if !measured { // one of them is enough
				t.measured, measured = now, true
			}
			w.hand(t, now)
		}
	}
	w.queue.trim()
	return nil
}

// hand submits a record.
func (w *worker[R]) hand(t *recordTask[R], now time.Duration) {
	if s := t.event.submitted; s != nil && s.Load() == 0 {
		s.Store(max(int64(now), 1))
	}
	if t.attempts == 0 {
		t.written = w.stats.written.Load()
	}
	w.window.sent.Add(1)
	turn := t.turn.Load()
	done := func(r driver.WriteResult) {
		if t.turn.CompareAndSwap(turn, turn+1) {
			t.done(r)
		} else {
			w.doneTwice.Do(func() { w.a.Failed(errDoneTwice) })
		}
	}
	err := engine.Guard(func() error {
		w.sink.Submit(w.recordCtxOf(t.event), t.record, done)
		return nil
	})
	if err != nil && t.turn.CompareAndSwap(turn, turn+1) {
		t.done(driver.WriteResult{Err: driver.Outage(fmt.Errorf("submit to sink: %w", err))})
	}
}

var errDoneTwice = errors.New("sink called done more than once for a record: the later results are ignored; a sink must call it exactly once")

// done takes a record's result, on any goroutine.
func (t *recordTask[R]) done(r driver.WriteResult) {
	w := t.worker
	t.result = r
	if t.measured > 0 {
		w.window.measure(t.measured, w.a.Settings.Clock.Elapsed())
	}
	written := r.Err == nil
	if written && t.event.left.Add(-1) == 0 {
		w.eventFinished(t.event)
	}
	w.stats.add(r)
	// A success needs the worker only if something waits for it.
	if !written || t.ordered || t.probe || t.doubted {
		w.results.put(t)
	}
	w.window.finished.Add(1)
	partition.Wake(w.wakeup)
}

// resultQueue holds results on their way from the sink's goroutines to the
// worker's.
type resultQueue[R any] struct {
	mu    sync.Mutex
	tasks []*recordTask[R]
}

func (q *resultQueue[R]) put(t *recordTask[R]) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.tasks = append(q.tasks, t)
}

func (q *resultQueue[R]) takeAll() []*recordTask[R] {
	q.mu.Lock()
	defer q.mu.Unlock()
	tasks := q.tasks
	q.tasks = nil
	return tasks
}

func (q *resultQueue[R]) any() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.tasks) > 0
}

// takeResults handles the results that have arrived, and queues the retries that
// are due.
func (w *worker[R]) takeResults() {
	for _, t := range w.results.takeAll() {
		if t.probe {
			t.probe = false
			if w.breaker.probed(t.result.Err); t.result.Err == nil {
				w.doubts.released()
			}
		}
		if t.result.Err == nil {
			w.queue.endDoubt(t)
			w.queue.unblock(t)
		} else {
			w.recordFailed(t, t.result.Err)
		}
	}
	w.queue.takeDelayed(w.a.Settings.Clock.Elapsed())
	w.setTimer()
}

// setTimer sets the timer to the next moment at which the worker has something to
// do.
func (w *worker[R]) setTimer() {
	at := partition.Never
	if len(w.queue.delayed) > 0 {
		at = w.queue.delayed[0].due
	}
	if r, now := &w.reread, w.a.Settings.Clock.Elapsed(); r.waits && now < r.earliest {
		at = min(at, r.earliest)
	} else if r.waits && now < r.latest { // else a result wakes the worker
		at = min(at, r.latest)
	}
	if w.draining {
		at = partition.Never // nothing more is sent
	} else if b := &w.breaker; b.tripped && b.hasProbe() && !w.queue.empty() && b.probeAt > w.a.Settings.Clock.Elapsed() {
		// A probe whose time has come waits for room at the sink: a result wakes the worker.
		at = min(at, b.probeAt)
	}
	w.timer.Set(at)
}

// eventFinished is called when the last record of an event is finished, on any
// goroutine.
func (w *worker[R]) eventFinished(e *inFlightEvent) {
	e.decoded.Release()
	switch {
	case !e.failed.Load():
		w.complete(e)
	case e.redrive != nil:
		w.a.RedriveFailed(e.redrive, e.failure)
		w.redrives.failed(e.redrive)
	default:
		w.deadLetters.put(e)
	}
}

// complete marks an event as done. Events that were admitted together share an
// allocation, so it also releases the event: one that takes long must not keep the
// others in memory.
func (w *worker[R]) complete(e *inFlightEvent) {
	if e.redrive != nil {
		w.redrives.applied(e)
		return
	}
	e.event = nil
	w.inFlight.list.Done(e.slot)
	w.a.Memory.ReadAccount().Give(partition.ChargeOf(1, e.size))
	w.bytes.Add(-e.size) // last, so that events whose bytes are free are not counted as in flight
}

// isHeld reports whether an event is held back by a dead letter of its key.
func (w *worker[R]) isHeld(e *inFlightEvent) bool {
	return w.cfg.HoldKeys && e.redrive == nil && e.event.Key != "" && w.deadLetters.isHeld(e.event.Key)
}

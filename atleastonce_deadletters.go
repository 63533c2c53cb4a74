package sluice

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/sluice-go/sluice/driver"
)

// deadLetterWriter holds failed events until they are stored as dead letters, and
// knows which events and which held keys are. It is safe for concurrent use.
type deadLetterWriter struct {
	hold bool // KeyHold

	mu      sync.Mutex
	waiting []*inFlightEvent // to be stored
	failing map[string]int   // how many events of a key are failing or waiting, under KeyHold
	held    map[string]bool  // keys of stored dead letters, under KeyHold
	stored  []int64          // all events of this incarnation that are dead letters, ascending
}

func (d *deadLetterWriter) init(hold bool) {
	d.hold, d.failing, d.held = hold, map[string]int{}, map[string]bool{}
}

// load sets the events that earlier assignments have stored.
func (d *deadLetterWriter) load(stored []int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stored = stored
}

// all returns the events that are dead letters, ascending.
func (d *deadLetterWriter) all() []int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.stored)
}

// expect holds an event's key before another record of it can be submitted.
func (d *deadLetterWriter) expect(e *inFlightEvent) {
	if !d.hold || e.redrive != nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failing[e.event.Key]++
}

// isHeld reports whether a partition key is held back.
func (d *deadLetterWriter) isHeld(key string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.held[key] || d.failing[key] > 0
}

// holding reports whether any stored dead letter holds a key back.
func (d *deadLetterWriter) holding() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.held) > 0
}

// setHeld replaces the keys of stored dead letters.
func (d *deadLetterWriter) setHeld(keys []string) {
	held := make(map[string]bool, len(keys))
	for _, k := range keys {
		held[k] = true
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.held = held
}

// put takes a failed event whose records are finished.
func (d *deadLetterWriter) put(e *inFlightEvent) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.waiting = append(d.waiting, e)
}

// len returns how many events are to be stored.
func (d *deadLetterWriter) len() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.waiting)
}

// next returns up to n events to store. They stay until added is called.
func (d *deadLetterWriter) next(n int) []*inFlightEvent {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.waiting[:min(n, len(d.waiting))]
}

// added is called when the events that next returned are stored.
func (d *deadLetterWriter) added(events []*inFlightEvent) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.waiting = d.waiting[len(events):]
	if len(d.waiting) == 0 {
		d.waiting = nil
	}
	for _, e := range events {
		if i, found := slices.BinarySearch(d.stored, e.event.Sequence); !found {
			d.stored = slices.Insert(d.stored, i, e.event.Sequence)
		}
		if d.hold {
			key := e.event.Key
			d.held[key] = true
			if d.failing[key]--; d.failing[key] == 0 {
				delete(d.failing, key)
			}
		}
	}
}

// removed is called when redriven events of this incarnation are dead letters no
// more.
func (d *deadLetterWriter) removed(sequence int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if i, found := slices.BinarySearch(d.stored, sequence); found {
		d.stored = slices.Delete(d.stored, i, i+1)
	}
}

// storeBatch is how many dead letters are stored in one request.
const storeBatch = 1000

// storeDeadLetters stores dead letters, so that the checkpoint may pass their
// events.
func (w *atLeastOnceWorker[R]) storeDeadLetters(ctx context.Context) {
	for {
		events := w.deadLetters.next(storeBatch)
		if len(events) == 0 {
			return
		}
		dead := make([]DeadLetter, len(events))
		for i, e := range events {
			dead[i] = w.a.newDeadLetter(e.event, e.failure, e.attempts)
		}
		rctx, cancel := w.storeRequestCtx(ctx)
		err := w.store.Park(rctx, dead)
		cancel()
		if err != nil {
			if ctx.Err() == nil {
				w.a.failed(fmt.Errorf("store dead letters: %w", err))
			}
			return
		}
		w.deadLetters.added(events)
		for _, e := range events {
			at := e.event.Position()
			w.complete(e)
			w.a.observe(Observation{Kind: KindParked, To: at, Attempt: e.attempts, Err: e.failure})
		}
		wake(w.wakeup) // there is room
	}
}

// redriveQueue holds dead letters on redrive: found due, running, and finished but
// not settled in the store. It is safe for concurrent use.
type redriveQueue struct {
	mu        sync.Mutex
	due       []*DeadLetter    // for the worker to start
	running   map[int64]bool   // by id; until they are settled
	succeeded []*inFlightEvent // to be settled
	unsettled []*DeadLetter    // failed again; to be settled
	holding   map[string]int64 // by key: the first event whose redrive failed again; the later ones of the key wait

	nApplied, nFailed int // settled
}

func (q *redriveQueue) init() { q.running, q.holding = map[int64]bool{}, map[string]int64{} }

// hold keeps the later dead letters of a failed one's key back.
func (q *redriveQueue) hold(e *Event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	key, n := e.Key, e.Sequence
	if first, held := q.holding[key]; key != "" && (!held || n < first) {
		q.holding[key] = n
	}
}

// heldBy returns the earlier event of a dead letter's key whose redrive has failed.
func (q *redriveQueue) heldBy(e *inFlightEvent) (earlier int64, held bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	earlier, held = q.holding[e.event.Key]
	return earlier, held && earlier < e.event.Sequence
}

// release ends the holds by dead letters that are there no more. parked are those that
// are, ascending.
func (q *redriveQueue) release(parked []int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	maps.DeleteFunc(q.holding, func(_ string, n int64) bool {
		_, there := slices.BinarySearch(parked, n)
		return !there
	})
}

// holds reports whether any key is held back.
func (q *redriveQueue) holds() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.holding) > 0
}

// start reports whether a redrive is to be started: it does not run yet.
func (q *redriveQueue) start(id int64) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.running[id] {
		return false
	}
	q.running[id] = true
	return true
}

// abandon lets a redrive be started again.
func (q *redriveQueue) abandon(id int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.running, id)
}

// applied takes a redrive that was written.
func (q *redriveQueue) applied(e *inFlightEvent) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.succeeded = append(q.succeeded, e)
	if q.holding[e.event.Key] == e.event.Sequence {
		delete(q.holding, e.event.Key)
	}
}

// failed takes a redrive that has failed.
func (q *redriveQueue) failed(d *DeadLetter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.unsettled = append(q.unsettled, d)
}

// found sets the redrives that are due, and reports whether one is to be started.
func (q *redriveQueue) found(due []DeadLetter) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.due = nil
	for i := range due {
		if !q.running[due[i].ID] {
			q.due = append(q.due, &due[i])
		}
	}
	return len(q.due) > 0
}

// takeDue returns the redrives that were found due.
func (q *redriveQueue) takeDue() []*DeadLetter {
	q.mu.Lock()
	defer q.mu.Unlock()
	due := q.due
	q.due = nil
	return due
}

// full reports whether no more redrives may be started.
func (q *redriveQueue) full() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.running) >= redrivePage
}

// takeFinished returns the redrives to settle.
func (q *redriveQueue) takeFinished() (succeeded []*inFlightEvent, failed []*DeadLetter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	succeeded, failed = q.succeeded, q.unsettled
	q.succeeded, q.unsettled = nil, nil
	return succeeded, failed
}

// settleFailed takes back redrives that could not be settled.
func (q *redriveQueue) settleFailed(succeeded []*inFlightEvent, failed []*DeadLetter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.succeeded, q.unsettled = append(succeeded, q.succeeded...), append(failed, q.unsettled...)
}

// settled is called when redrives are settled in the store.
func (q *redriveQueue) settled(succeeded []*inFlightEvent, failed []*DeadLetter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, e := range succeeded {
		delete(q.running, e.redrive.ID)
	}
	for _, d := range failed {
		delete(q.running, d.ID)
	}
	q.nApplied += len(succeeded)
	q.nFailed += len(failed)
}

// totals returns how many redrives were settled.
func (q *redriveQueue) totals() (applied, failed int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.nApplied, q.nFailed
}

// settleRedrives stores the outcomes of redrives. While a command redrives, the
// worker's goroutine calls it too.
func (w *atLeastOnceWorker[R]) settleRedrives(ctx context.Context) {
	succeeded, failed := w.redrives.takeFinished()
	if len(succeeded)+len(failed) == 0 {
		return
	}
	ids, dead := make([]int64, len(succeeded)), make([]DeadLetter, len(failed))
	for i, e := range succeeded {
		ids[i] = e.redrive.ID
	}
	for i, d := range failed {
		dead[i] = *d
	}
	rctx, cancel := w.storeRequestCtx(ctx)
	defer cancel()
	if err := w.store.Settle(rctx, w.a.topic.Group, ids, dead); err != nil {
		w.redrives.settleFailed(succeeded, failed)
		if ctx.Err() == nil {
			w.a.failed(fmt.Errorf("settle redrives: %w", err))
		}
		return
	}
	for _, e := range succeeded {
		if e.redrive.Incarnation == w.a.incarnation {
			w.deadLetters.removed(e.event.Sequence)
		}
	}
	w.redrives.settled(succeeded, failed)
	for _, e := range succeeded {
		w.a.observe(Observation{Kind: KindRedriven, To: e.event.Position(), Events: 1})
	}
	for _, d := range failed {
		w.a.observe(Observation{Kind: KindRedriveFailed, To: d.Event.Position(), Attempt: d.Attempts, Err: errors.New(d.Error)})
	}
}

// findRedrives looks for dead letters whose redrive is due, and for the keys that
// are still held back.
func (w *atLeastOnceWorker[R]) findRedrives(ctx context.Context) {
	if w.redrives.full() {
		return
	}
	holding := w.deadLetters.holding()
	rctx, cancel := w.storeRequestCtx(ctx)
	defer cancel()
	if w.redrives.holds() {
		parked, err := w.store.Parked(rctx, w.a.topic.Group, w.a.lease.Partition, w.a.incarnation, driver.Origin.Sequence)
		if err != nil {
			if ctx.Err() == nil {
				w.a.failed(fmt.Errorf("look for dead letters: %w", err))
			}
			return
		}
		w.redrives.release(parked)
	}
	due, err := w.store.Due(rctx, w.a.topic.Group, w.a.lease.Partition, redrivePage)
	if err == nil && holding {
		var keys []string
		if keys, err = w.store.Held(rctx, w.a.topic.Group, w.a.lease.Partition); err == nil {
			w.deadLetters.setHeld(keys)
		}
	}
	if err != nil {
		if ctx.Err() == nil {
			w.a.failed(fmt.Errorf("look for redrives: %w", err))
		}
		return
	}
	if w.redrives.found(due) {
		wake(w.wakeup)
	}
}

package stream

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine"
	"github.com/sluice-go/sluice/internal/engine/partition"
	"github.com/sluice-go/sluice/internal/memory"
)

// redriveQueue holds dead letters on redrive: found due, running, and finished but
// not settled in the store. It is safe for concurrent use.
//
// Under KeyHold a dead letter is not redriven while an earlier one of its key is there.
// Each look at the store finds those that stay for now, so the order outlasts restarts
// and changes of owner. A redrive that fails between two looks holds the later ones that run.
type redriveQueue struct {
	mu        sync.Mutex
	due       []*driver.DeadLetter         // for the worker to start
	running   map[int64]*driver.DeadLetter // by id; from when they are found until they are settled
	succeeded []*inFlightEvent             // to be settled
	unsettled []*driver.DeadLetter         // failed again; to be settled
	holding   map[redriveKey]int64         // the first event whose dead letter stays; the later ones that run fail
	page      bool                         // the last look found a whole page: there may be more
	charged   int64                        // bytes for what is running
	reread    map[int64]int64              // bytes of those whose events were read again, by id

	nApplied, nFailed int // settled
}

// redriveKey is a partition key in one incarnation of the topic. Sequence numbers of two
// incarnations have no order.
type redriveKey struct{ incarnation, key string }

func redriveKeyOf(d *driver.DeadLetter) redriveKey {
	return redriveKey{d.Incarnation, storedKey(d.Event.Key)}
}

func (q *redriveQueue) init() {
	q.running, q.holding, q.reread = map[int64]*driver.DeadLetter{}, map[redriveKey]int64{}, map[int64]int64{}
}

// hold keeps the later dead letters of a failed one's key back.
func (q *redriveQueue) hold(d *driver.DeadLetter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.holdAfter(redriveKeyOf(d), d.Event.Sequence)
}

// holdAfter keeps the dead letters of a key after an event back. The lock is held.
func (q *redriveQueue) holdAfter(key redriveKey, n int64) {
	if first, held := q.holding[key]; key.key != "" && (!held || n < first) {
		q.holding[key] = n
	}
}

// heldBy returns the earlier event of a dead letter's key whose dead letter stays.
func (q *redriveQueue) heldBy(d *driver.DeadLetter) (earlier int64, held bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	earlier, held = q.holding[redriveKeyOf(d)]
	return earlier, held && earlier < d.Event.Sequence
}

// ids returns the IDs of the redrives that are due and of those that were started. It returns
// none if all that are due were started.
func (q *redriveQueue) ids(due []driver.DeadLetter) (ids []int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	started := maps.Clone(q.running)
	for _, d := range q.due {
		delete(started, d.ID)
	}
	fresh := false
	for i := range due {
		ids = append(ids, due[i].ID)
		fresh = fresh || started[due[i].ID] == nil
	}
	if !fresh {
		return nil
	}
	return slices.AppendSeq(ids, maps.Keys(started))
}

// found takes the redrives that are due, and the keys of the other dead letters. asked says that
// held is an answer of the store: it is not asked where all that are due were started, and if one
// of them was put back since, its hold must stay. looked is how many were settled before the look
// that found them: an answer from before a settlement is ignored. It reports whether a redrive is
// to be started.
func (q *redriveQueue) found(due []driver.DeadLetter, page int, held []driver.HeldKey, asked bool, looked int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.page = len(due) == page
	if looked != q.nApplied+q.nFailed || !asked && len(due) > 0 {
		return len(q.due) > 0
	}
	for _, d := range q.due { // they may be due no more
		delete(q.running, d.ID)
		delete(q.reread, d.ID)
	}
	q.due = nil
	maps.DeleteFunc(q.holding, func(key redriveKey, n int64) bool { return !q.runs(key, n) })
	first := make(map[redriveKey]int64, len(held))
	for _, h := range held {
		first[redriveKey{h.Incarnation, storedKey(h.Key)}] = h.First
	}
	for i := range due {
		d := &due[i]
		if q.running[d.ID] != nil {
			continue
		}
		q.due, q.running[d.ID] = append(q.due, d), d
		key := redriveKeyOf(d)
		if n, stays := first[key]; stays && n < d.Event.Sequence {
			q.holdAfter(key, n)
		}
	}
	return len(q.due) > 0
}

// runs reports whether a redrive of a key runs, of an event or a later one. The lock is held.
func (q *redriveQueue) runs(key redriveKey, first int64) bool {
	for _, d := range q.running {
		if redriveKeyOf(d) == key && d.Event.Sequence >= first {
			return true
		}
	}
	return false
}

// next takes a redrive that is to be started. It returns nil if there is none.
func (q *redriveQueue) next() (d *driver.DeadLetter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.due) > 0 {
		d, q.due = q.due[0], q.due[1:]
	}
	return d
}

// putBack takes back a redrive that could not be started.
func (q *redriveQueue) putBack(d *driver.DeadLetter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.due = append([]*driver.DeadLetter{d}, q.due...)
}

// dueNext returns the redrives that are to be started, in order.
func (q *redriveQueue) dueNext() []driver.DeadLetter {
	q.mu.Lock()
	defer q.mu.Unlock()
	list := make([]driver.DeadLetter, len(q.due))
	for i, d := range q.due {
		list[i] = *d
	}
	return list
}

// full reports whether no more redrives may be started.
func (q *redriveQueue) full() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.running) >= engine.RedrivePage
}

// more reports whether more are due than were found.
func (q *redriveQueue) more() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.page
}

// finished reports whether at least half a page is to be settled, or nothing runs.
func (q *redriveQueue) finished() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.succeeded)+len(q.unsettled) >= engine.RedrivePage/2 || len(q.running) == 0
}

// idle reports whether there are no redrives, nor keys that wait for one.
func (q *redriveQueue) idle() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.due)+len(q.running)+len(q.holding) == 0
}

// applied takes a redrive that was written.
func (q *redriveQueue) applied(e *inFlightEvent) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.succeeded = append(q.succeeded, e)
	key := redriveKeyOf(e.redrive)
	if first, held := q.holding[key]; held && first == e.redrive.Event.Sequence {
		delete(q.holding, key)
	}
}

// failed takes a redrive that has failed.
func (q *redriveQueue) failed(d *driver.DeadLetter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.unsettled = append(q.unsettled, d)
}

// takeFinished returns the redrives to settle.
func (q *redriveQueue) takeFinished() (succeeded []*inFlightEvent, failed []*driver.DeadLetter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	succeeded, failed = q.succeeded, q.unsettled
	q.succeeded, q.unsettled = nil, nil
	return succeeded, failed
}

// settleFailed takes back redrives that could not be settled.
func (q *redriveQueue) settleFailed(succeeded []*inFlightEvent, failed []*driver.DeadLetter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.succeeded, q.unsettled = append(succeeded, q.succeeded...), append(failed, q.unsettled...)
}

// settled is called when redrives are settled in the store.
func (q *redriveQueue) settled(succeeded []*inFlightEvent, failed []*driver.DeadLetter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, e := range succeeded {
		delete(q.running, e.redrive.ID)
		delete(q.reread, e.redrive.ID)
	}
	for _, d := range failed {
		delete(q.running, d.ID)
		delete(q.reread, d.ID)
	}
	q.nApplied += len(succeeded)
	q.nFailed += len(failed)
}

// charge charges an account for the redrives that run.
func (q *redriveQueue) charge(to *memory.Account) {
	q.mu.Lock()
	defer q.mu.Unlock()
	bytes := int64(0)
	for _, d := range q.running {
		bytes += partition.ChargeOf(1, int64(d.Event.Size())) + q.reread[d.ID]
	}
	to.Settle(q.charged, bytes)
	q.charged = bytes
}

// readAgain notes that the event of a redrive was read again.
func (q *redriveQueue) readAgain(id int64, e *driver.Event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.reread[id] = partition.ChargeOf(1, int64(e.Size()))
}

// totals returns how many redrives were settled.
func (q *redriveQueue) totals() (applied, failed int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.nApplied, q.nFailed
}

// redriveAll runs redrives until none is due. The log is not read meanwhile.
func (w *worker[R]) redriveAll() error {
	for {
		if err := w.Prepare(); err != nil {
			return err
		}
		for w.busy() {
			if err := w.proceed(); err != nil {
				return err
			}
		}
		w.settleRedrives(w.a.Idle)
		if w.a.Idle.Err() != nil {
			return w.a.Ended()
		}
		var due []driver.DeadLetter
		err := w.a.Request(w.a.Idle, "look for redrives", func(ctx context.Context) (err error) {
			due, err = w.store.Due(ctx, w.a.Topic.Group, w.a.Lease.Partition, 1)
			return err
		})
		if err != nil || len(due) == 0 {
			return err
		}
		if err := w.a.Pause(w.a.Settings.RetryMin); err != nil {
			return err
		}
	}
}

// findRedrives looks for dead letters whose redrive is due, and for the keys that
// are still held back.
func (w *worker[R]) findRedrives(ctx context.Context) {
	if w.redrives.full() {
		return
	}
	holding := w.deadLetters.holding()
	rctx, cancel := w.storeRequestCtx(ctx)
	defer cancel()
	err := w.lookForRedrives(rctx)
	if err == nil && holding {
		var keys []driver.HeldKey
		if keys, err = w.store.Held(rctx, w.a.Topic.Group, w.a.Lease.Partition, nil); err == nil {
			w.deadLetters.setHeld(keys)
		}
	}
	if err != nil && ctx.Err() == nil && !errors.Is(err, partition.ErrAskedTogether) {
		w.a.Failed(fmt.Errorf("look for redrives: %w", err))
	}
}

// lookForRedrives asks the store for dead letters whose redrive is due, and under KeyHold for
// the earlier ones of their keys that stay: it asks for these last, so that none that becomes
// due between the two requests is missed.
func (w *worker[R]) lookForRedrives(ctx context.Context) error {
	applied, failed := w.redrives.totals()
	if may, err := w.a.Host.RedrivesDue(ctx, w.a); err != nil || !may && w.redrives.idle() {
		return err
	}
	page, estimate := w.a.ChargeRedrives(engine.RedrivePage)
	account := w.a.Memory.RedrivenAccount()
	defer account.Give(estimate)
	due, err := w.store.Due(ctx, w.a.Topic.Group, w.a.Lease.Partition, page)
	if err != nil {
		return err
	}
	var held []driver.HeldKey
	ids := w.redrives.ids(due)
	keys := w.cfg.HoldKeys
	if len(ids) > 0 && keys {
		if held, err = w.store.Held(ctx, w.a.Topic.Group, w.a.Lease.Partition, ids); err != nil {
			return err
		}
	}
	defer w.redrives.charge(account)
	if w.redrives.found(due, page, held, len(ids) > 0 || !keys, applied+failed) {
		partition.Wake(w.wakeup)
	}
	return nil
}

// rereading divides the time between the events and dead letters without a body, for which the log
// is read apart. A round reads some of these. Their records are sent in the events' turn, so that
// it is twice as long as the round, and until as many events' records are written as redrives'.
type rereading struct {
	took     time.Duration // of the last round
	read     int64         // dead letters in it
	waits    bool          // some wait for the end of the events' turn
	earliest time.Duration // by Clock.Elapsed: the events' turn ends then at the earliest
	latest   time.Duration // and then at the latest
	written  int64         // and when so many records of the partition are written
}

// end ends a round: the events' turn begins.
func (r *rereading) end(now, most time.Duration, written int64) {
	r.earliest = now + 2*r.took
	r.latest = max(r.earliest, now+most)
	r.written = written + 2*r.read
	r.took, r.read = 0, 0
}

// eventsTurn reports whether the events' turn goes on.
func (w *worker[R]) eventsTurn(now time.Duration) bool {
	r := &w.reread
	return now < r.earliest || now < r.latest && w.stats.written.Load() < r.written && w.inFlight.list.InFlight() > w.deadLetters.len()
}

// startRedrives starts the redrives that were found. Those without a body are read from the log for
// RedriveFor at most.
func (w *worker[R]) startRedrives(mayRead bool) error {
	elapsed := w.a.Settings.Clock.Elapsed
	began := elapsed()
	if mayRead {
		defer func() { w.reread.took = elapsed() - began }()
	}
	w.reread.waits = false
	read := map[int64]*driver.Event{} // by the ID of the dead letter
	for d := w.redrives.next(); d != nil; d = w.redrives.next() {
		if !d.HasBody && (mayRead && elapsed()-began >= engine.RedriveFor || !mayRead && w.eventsTurn(elapsed())) {
			// The later ones wait too: one may have the key of this one.
			w.redrives.putBack(d)
			w.reread.waits = true
			w.setTimer()
			return nil
		}
		if !d.HasBody && mayRead && read[d.ID] == nil {
			if err := w.rereadRun(d, read); err != nil {
				w.redrives.putBack(d)
				return err
			}
		}
		if err := w.startRedrive(d, read[d.ID], mayRead); err != nil {
			w.redrives.putBack(d)
			if errors.Is(err, partition.ErrReopen) || errors.Is(err, driver.ErrFenced) || errors.Is(err, driver.ErrStolen) || w.a.Idle.Err() != nil {
				return err
			}
			w.a.Failed(fmt.Errorf("redrive dead letter %d: %w", d.ID, err))
			return nil
		}
	}
	return nil
}

// rereadRun reads the event of a dead letter from the log, and with it those of the next ones that
// are near it, as far as that works.
func (w *worker[R]) rereadRun(d *driver.DeadLetter, read map[int64]*driver.Event) error {
	run := append([]driver.DeadLetter{*d}, w.redrives.dueNext()...)
	if len(run) == 1 {
		return nil
	}
	events, charged, err := w.a.RereadRun(run)
	for i, e := range events {
		read[run[i].ID] = e
		w.redrives.readAgain(run[i].ID, e)
	}
	account := w.a.Memory.RedrivenAccount()
	account.Give(charged)
	w.redrives.charge(account)
	return err
}

// startRedrive makes the records of a dead letter. One without a body needs the log, if its event
// was not read: unless the log may be read now, startRedrive returns errReopen.
func (w *worker[R]) startRedrive(d *driver.DeadLetter, read *driver.Event, mayRead bool) error {
	if err := w.redriveHeld(d); err != nil {
		w.redriveRefused(d, err)
		return nil
	}
	e := &d.Event
	switch {
	case read != nil:
		e = read
		w.reread.read++
	case !d.HasBody:
		if !mayRead {
			return partition.ErrReopen
		}
		found, err := w.a.Reread(d)
		switch {
		case err == nil:
			e = found
			w.reread.read++
		case w.a.Idle.Err() == nil && partition.NeedsOperator(err):
			w.redriveRefused(d, err)
			return nil
		default:
			return err
		}
	}
	w.makeAll([]*inFlightEvent{{event: e, redrive: d}})
	return nil
}

// redriveRefused ends a redrive of which no record was made.
func (w *worker[R]) redriveRefused(d *driver.DeadLetter, err error) {
	w.a.RedriveFailed(d, err)
	w.redrives.hold(d)
	w.redrives.failed(d)
}

// redriveHeld returns an error if a dead letter may not be redriven now: under KeyHold
// an earlier one of its key is there.
func (w *worker[R]) redriveHeld(d *driver.DeadLetter) error {
	if d == nil || !w.cfg.HoldKeys {
		return nil
	}
	if earlier, held := w.redrives.heldBy(d); held {
		return &engine.HeldBack{Why: fmt.Sprintf("the dead letter of event %d, which is earlier and has the same key %q, is there: redrive or discard that one first", earlier, d.Event.Key)}
	}
	return nil
}

// settleRedrives stores the outcomes of redrives. While a command redrives, the
// worker's goroutine calls it too.
func (w *worker[R]) settleRedrives(ctx context.Context) {
	succeeded, failed := w.redrives.takeFinished()
	if len(succeeded)+len(failed) == 0 {
		return
	}
	ids, dead := make([]int64, len(succeeded)), make([]driver.DeadLetter, len(failed))
	for i, e := range succeeded {
		ids[i] = e.redrive.ID
	}
	for i, d := range failed {
		dead[i] = *d
	}
	rctx, cancel := w.storeRequestCtx(ctx)
	defer cancel()
	if err := w.store.Settle(rctx, w.a.Topic.Group, ids, dead); err != nil {
		w.redrives.settleFailed(succeeded, failed)
		if ctx.Err() == nil {
			w.a.Failed(fmt.Errorf("settle redrives: %w", err))
		}
		return
	}
	for _, e := range succeeded {
		if e.redrive.Incarnation == w.a.Incarnation {
			w.deadLetters.removed(e.event.Sequence)
		}
	}
	w.redrives.settled(succeeded, failed)
	w.redrives.charge(w.a.Memory.RedrivenAccount())
	for _, e := range succeeded {
		w.a.Observe(driver.Observation{Kind: driver.KindRedriven, To: e.event.Position(), Event: e.event, Events: 1})
	}
	for _, d := range failed {
		w.a.Observe(driver.Observation{Kind: driver.KindRedriveFailed, To: d.Event.Position(), Event: &d.Event, Attempt: d.Attempts, RetriedIn: w.a.RetriedIn(d), Err: errors.New(d.Error)})
	}
}

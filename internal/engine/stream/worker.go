package stream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine"
	"github.com/sluice-go/sluice/internal/engine/partition"
	"github.com/sluice-go/sluice/stamp"
)

// worker delivers one partition's events during one assignment.
//
// Its own goroutine, the delivery's, admits events as they come, makes their
// records and submits those (records.go). The sink's goroutines return
// the results. A background goroutine stores the checkpoint and the dead letters,
// so that a slow store does not delay the events. A timer wakes the worker when a
// retry is due.
type worker[R any] struct {
	a       *partition.Assignment
	store   driver.AtLeastOnceStore
	records func(context.Context, *driver.Event) ([]R, error)
	sink    driver.Sink[R]
	key     func(R) string // nil: the event's partition key
	cfg     *Config

	// Shared with the other goroutines. Each has its own lock, or is atomic.
	inFlight    inFlightList
	results     resultQueue[R]
	timer       *partition.Timer
	stats       writeStats
	deadLetters deadLetterWriter
	redrives    redriveQueue
	checkpoints checkpointer
	watermark   atomic.Pointer[stamp.Watermark] // of the checkpoint, as last stored
	window      partitionWindow                 // bounds the records that the sink has
	bytes       atomic.Int64                    // of the events in flight
	wakeup      chan struct{}                   // wakes the worker: a result, or a retry that is due

	// The worker's goroutine alone uses these.
	recordCtx context.Context        // of making and submitting records: it carries an emission
	start     driver.Position        // the checkpoint at the claim
	admitted  driver.Position        // events up to here were admitted
	loaded    bool                   // the dead letters and held keys of earlier assignments are loaded
	done      []driver.SequenceRange // after the checkpoint and done by an earlier assignment
	parked    []driver.ParkedEvent   // the events of earlier assignments' dead letters after the checkpoint
	skip      []driver.SequenceRange // all of these
	doneUpTo  driver.Position        // in a sparse topic: the last of these but dead letters, with the checkpoint's offset
	maxEvents int                    // in flight
	maxBytes  int64                  // of them
	events    uint64                 // admitted so far
	completed uint64                 // of those, how many lie below the furthest that is done, when last asked
	queue     sendQueue[R]
	breaker   circuitBreaker
	doubts    doubts
	draining  bool // nothing more is sent
	reread    rereading
	mapping   engine.MappingTrial

	doneTwice sync.Once // reports a sink that completes a record more than once

	background    sync.WaitGroup // stores and reports; runs the timer
	endBackground context.CancelFunc
}

func (d *delivery[R]) newWorker(a *partition.Assignment) *worker[R] {
	sharers := int(a.Settings.Partitions)
	if sharers <= 0 { // it may come to hold all
		sharers = len(a.Topic.Partitions)
	}
	w := &worker[R]{
		a: a, store: d.stored, records: engine.DecodedRecords(d.records), sink: d.sink, key: d.key, cfg: d.cfg,
		start: driver.Unset, admitted: driver.Unset, doneUpTo: driver.Unset,
		maxEvents: max(1, d.cfg.MaxEvents/sharers),
		maxBytes:  max(1, d.cfg.MaxBytes/int64(sharers)),
		wakeup:    make(chan struct{}, 1),
		breaker:   circuitBreaker{wait: a.Settings.Backoff(a.Rand)},
		stats:     writeStats{clock: a.Settings.Clock},
	}
	w.window.shared, w.window.wakeup = d.window, w.wakeup
	w.inFlight.init(w.maxEvents, a.Topic.Sparse)
	w.checkpoints.position, w.checkpoints.reported = driver.Unset, driver.Unset.Sequence
	w.timer = partition.NewTimer(a.Settings.Clock, w.wakeup)
	w.queue.init()
	w.deadLetters.init(d.cfg.HoldKeys)
	w.redrives.init()
	w.watermark.Store(stamp.NewWatermark(driver.Origin.Sequence, nil))
	return w
}

// startBackground starts the goroutines beside the worker's own.
func (w *worker[R]) startBackground() {
	ctx, cancel := context.WithCancel(w.a.Work)
	w.endBackground = cancel
	w.a.Sink.Polled(partition.ActivitySink, func() (changes uint64, busy bool) {
		return uint64(w.window.finished.Load()), w.window.atSink() > 0
	})
	w.a.Progress.Written.Store(&w.stats.written)
	w.background.Go(func() { w.a.Survive(func() { w.storeAndReport(ctx) }) })
	w.background.Go(func() { w.timer.Run(ctx) })
}

// storeAndReport stores dead letters, the outcomes of redrives and the checkpoint,
// looks for redrives, and reports progress, until ctx ends.
func (w *worker[R]) storeAndReport(ctx context.Context) {
	cfg := w.a.Settings
	tick := min(w.cfg.CheckpointEvery, cfg.RedriveEvery, time.Second)
	now := cfg.Clock.Elapsed()
	w.checkpoints.stored = now
	checkpoint, look := partition.Every(w.cfg.CheckpointEvery, now), partition.Every(cfg.RedriveEvery, now)
	checkpoint.Next = now + tick // the first one early, to show that the partition moves
	look.Next = now
	for w.settleFor(ctx, tick) == nil {
		w.storeDeadLetters(ctx)
		w.settleRedrives(ctx)
		if checkpoint.Due(cfg.Clock.Elapsed()) {
			w.storeCheckpoint(ctx)
		}
		w.reportStats()
		w.reportAge()
		if look.Due(cfg.Clock.Elapsed()) {
			w.findRedrives(ctx)
		}
	}
}

// settleFor settles redrives and looks for others while more than one page of them is due, for a
// time. It returns ctx's error if that ends first.
func (w *worker[R]) settleFor(ctx context.Context, tick time.Duration) error {
	clock := w.a.Settings.Clock
	for ; w.redrives.more() && tick > pageEvery; tick -= pageEvery {
		if err := clock.Sleep(ctx, pageEvery); err != nil {
			return err
		}
		if w.redrives.finished() {
			w.settleRedrives(ctx)
			w.findRedrives(ctx)
		}
	}
	return clock.Sleep(ctx, tick)
}

// pageEvery is how often finished redrives are settled, and others looked for, while there are
// many.
const pageEvery = 50 * time.Millisecond

// storeRequestCtx bounds one request to the store, well within the lease.
func (w *worker[R]) storeRequestCtx(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := w.a.RequestCtx(ctx)
	storing := w.a.Storing.Doing(partition.ActivityStore, 0, 0)
	return ctx, func() {
		storing.Done()
		cancel()
	}
}

// drain waits for the records that the sink has, and stores what became of them:
// for as long as that takes if the consumer is to stop, for a moment if its work
// is cancelled.
func (w *worker[R]) drain(cause error) {
	w.draining = true
	defer w.window.leave() // not before: what the sink still has counts
	stopped := cause == nil || errors.Is(cause, driver.ErrStopped)
	if !stopped {
		w.a.Cancel(cause) // the partition belongs to another owner
	}
	shutdown, cancel := w.a.ShutdownCtx()
	defer cancel()
	for w.window.atSink() > 0 {
		w.takeResults()
		over := w.a.Work.Done()
		if w.a.Work.Err() != nil {
			over = shutdown.Done()
		}
		select {
		case <-w.wakeup:
		case <-over:
		}
		if shutdown.Err() != nil && w.a.Work.Err() != nil {
			break
		}
	}
	w.takeResults()
	w.endBackground()
	w.background.Wait()
	if !stopped || w.a.Work.Err() != nil && !errors.Is(context.Cause(w.a.Work), driver.ErrStopped) {
		return
	}
	ctx, done := w.a.ShutdownCtx()
	defer done()
	w.storeDeadLetters(ctx)
	w.settleRedrives(ctx)
	w.storeCheckpoint(ctx)
	w.reportStats()
}

// Claimed implements worker. Only the first claim of an assignment says something
// new: no other consumer moves the checkpoint in this epoch.
func (w *worker[R]) Claimed(cp driver.Checkpoint) {
	if w.admitted == driver.Unset {
		w.start, w.admitted, w.done = cp.Position, cp.Position, cp.Done
		if n := len(cp.Done); n > 0 && w.a.Topic.Sparse {
			w.doneUpTo = driver.Position{Sequence: cp.Done[n-1].Last, Offset: cp.Position.Offset}
		}
		w.startAt(cp.Position)
		w.recordCtx = driver.WithEmission(driver.WithAttempt(w.a.Work, w.a.Attempt(0, false)), stamp.NewEmission(driver.FencingToken{Lease: w.a.Lease, Incarnation: w.a.Incarnation}, &w.a.Topic, w.a.Incarnation, &w.watermark, false))
	}
	w.a.Observe(driver.Observation{Kind: driver.KindClaimed, To: cp.Position, Attempt: cp.Claims})
}

// StoreStart implements worker.
func (w *worker[R]) StoreStart(start driver.Position) error {
	err := w.a.Request(w.a.Work, "store start", func(ctx context.Context) error {
		return w.store.Begin(ctx, w.a.Lease, w.start, start)
	})
	if err != nil {
		return err
	}
	w.start, w.admitted = start, start
	w.startAt(start)
	return nil
}

// startAt sets the checkpoint that the worker starts from.
func (w *worker[R]) startAt(at driver.Position) {
	w.checkpoints.moveTo(at)
	w.inFlight.startAt(at)
}

// Position implements worker.
func (w *worker[R]) Position() driver.Position { return w.admitted }

// Interrupted implements worker. A checkpoint that is set after a loss must not pass events that
// are still in flight, or that were not read again.
func (w *worker[R]) Interrupted(err error) bool {
	if lost, is := errors.AsType[*driver.TruncatedError](err); is {
		low, _, _, _ := w.inFlight.progress()
		lost.Before = max(0, lost.End-1-low.Sequence)
	}
	return false
}

// Recreated implements worker. What is in flight must not count in the new incarnation, also
// where the database has lost the checkpoint, so that the claim begins one. Only the epoch of
// the next assignment refuses it.
func (w *worker[R]) Recreated() bool { return false }

// Prepare implements worker. It loads which events are dead letters, and reads
// from the log those on redrive whose bodies are not stored: the broker allows no
// other reader of this consumer.
func (w *worker[R]) Prepare() error {
	if !w.loaded {
		if err := w.loadDeadLetters(); err != nil {
			return err
		}
	}
	if err := w.a.Request(w.a.Idle, "look for redrives", w.lookForRedrives); err != nil {
		return err
	}
	return w.startRedrives(true)
}

// loadDeadLetters loads what earlier assignments have stored: dead letters, which
// count as done, and held keys.
func (w *worker[R]) loadDeadLetters() error {
	var parked []driver.ParkedEvent
	err := w.a.Request(w.a.Idle, "look for dead letters", func(ctx context.Context) (err error) {
		parked, err = w.store.Parked(ctx, w.a.Topic.Group, w.a.Lease.Partition, w.a.Incarnation, driver.Origin.Sequence)
		return err
	})
	if err != nil {
		return err
	}
	numbers := make([]int64, len(parked))
	for i := range parked {
		numbers[i] = parked[i].Position.Sequence
	}
	behind, _ := slices.BinarySearch(numbers, w.start.Sequence+1)
	w.parked = parked[behind:]
	w.skip = w.doneAndParked()
	w.deadLetters.load(numbers)
	w.watermark.Store(stamp.NewWatermark(w.start.Sequence, numbers))
	earlier := slices.Clone(w.skip)
	if w.a.Topic.Sparse { // dead letters may have another offset than the checkpoint there
		earlier = slices.Clone(w.done)
	}
	// Last: with what earlier assignments have done there is something to store, and
	// the watermark of that checkpoint must name their dead letters.
	w.checkpoints.setEarlier(earlier)
	if w.cfg.HoldKeys {
		err := w.a.Request(w.a.Idle, "look for held keys", func(ctx context.Context) error {
			held, err := w.store.Held(ctx, w.a.Topic.Group, w.a.Lease.Partition, nil)
			if err == nil {
				w.deadLetters.setHeld(held)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	w.loaded = true
	return nil
}

// doneAndParked returns what need not be done after the checkpoint, ascending.
func (w *worker[R]) doneAndParked() []driver.SequenceRange {
	all := slices.Clone(w.done)
	for _, p := range w.parked {
		all = append(all, driver.SequenceRange{First: p.Position.Sequence, Last: p.Position.Sequence})
	}
	slices.SortFunc(all, func(a, b driver.SequenceRange) int { return cmp.Compare(a.First, b.First) })
	return all
}

// setLostAside sets the dead letters aside whose events the log has lost, if others with their
// numbers are to be admitted.
func (w *worker[R]) setLostAside(events []*driver.Event) error {
	if !w.a.Topic.Sparse || len(w.parked) == 0 {
		return nil
	}
	lost := partition.LostAmong(w.parked, events)
	if len(lost) == 0 {
		return nil
	}
	if err := w.a.SetAside(w.store, lost); err != nil {
		return err
	}
	for _, p := range lost {
		w.deadLetters.removed(p.Position.Sequence)
	}
	w.parked = partition.Difference(w.parked, lost)
	w.skip = w.doneAndParked()
	return nil
}

// Deliver implements worker. It admits and submits events as there is room for
// them.
func (w *worker[R]) Deliver(buffer *partition.Buffer) error {
	w.reread.end(w.a.Settings.Clock.Elapsed(), w.a.Settings.LeaseFor, w.stats.written.Load())
	for {
		if w.a.Idle.Err() != nil {
			return w.a.Ended()
		}
		if err := w.startRedrives(false); err != nil {
			return err
		}
		w.takeResults()
		may := w.canSubmit()
		if may && !w.queue.redrivesOnly() {
			if err := w.submit(); err != nil {
				return err
			}
			continue
		}
		if w.queue.empty() || w.queue.redrivesOnly() { // events take turns with redrives
			events, err := buffer.Take(min(w.room(), w.a.Settings.MaxBatch), w.maxBytes-w.bytes.Load())
			if err != nil {
				return fmt.Errorf("read log: %w", err)
			}
			if len(events) > 0 {
				if err := w.admit(events); err != nil {
					return err
				}
				continue
			}
			if err := w.pass(buffer.Tail()); err != nil {
				return err
			}
			if may {
				if err := w.submit(); err != nil {
					return err
				}
				continue
			}
		}
		select {
		case <-buffer.Ready:
		case <-w.wakeup:
		case <-w.a.Idle.Done():
		}
	}
}

// proceed does one step of a worker that reads nothing.
func (w *worker[R]) proceed() error {
	w.takeResults()
	if w.canSubmit() {
		return w.submit()
	}
	if !w.busy() {
		return nil
	}
	select {
	case <-w.wakeup:
		return nil
	case <-w.a.Idle.Done():
		return w.a.Ended()
	}
}

// room returns how many events may still be admitted. All events from the oldest
// that is not done count, because the work list spans them.
func (w *worker[R]) room() int {
	if w.bytes.Load() >= w.maxBytes {
		return 0
	}
	room := w.maxEvents - int(w.events-w.completed)
	if room < w.a.Settings.MaxBatch {
		_, w.completed = w.inFlight.low()
		room = w.maxEvents - int(w.events-w.completed)
	}
	return room
}

// admit puts events on the work list and makes their records.
func (w *worker[R]) admit(events []*driver.Event) error {
	if err := w.checkHistory(events); err != nil {
		return err
	}
	if err := w.setLostAside(events); err != nil {
		return err
	}
	admitted := make([]inFlightEvent, len(events))
	w.inFlight.add(events, admitted)
	w.events += uint64(len(events))
	undone := make([]*inFlightEvent, 0, len(events))
	for i, e := range events {
		w.admitted = e.Position()
		if w.doneBefore(e.Sequence) {
			w.inFlight.list.Done(admitted[i].slot)
			admitted[i].event = nil
			w.a.Memory.ReadAccount().Give(partition.ChargeOf(1, int64(e.Size())))
			continue
		}
		admitted[i].size = int64(e.Size())
		w.bytes.Add(admitted[i].size)
		undone = append(undone, &admitted[i])
	}
	w.makeAll(undone)
	return nil
}

// pass takes numbers without an event, which follow the events that were admitted. The checkpoint
// passes them once these are done.
func (w *worker[R]) pass(to driver.Position) error {
	if to.Sequence <= w.admitted.Sequence {
		return nil
	}
	if to.Sequence < w.doneUpTo.Sequence && partition.AnotherHistory(to, w.doneUpTo) {
		return w.truncated(w.admitted)
	}
	w.admitted = to
	w.inFlight.pass(to)
	return nil
}

// checkHistory returns an error if the log has lost events after the checkpoint that an earlier
// assignment has done: the offset of one of these numbers is not theirs. What comes next must not
// count as done.
func (w *worker[R]) checkHistory(events []*driver.Event) error {
	before := w.admitted
	for _, e := range events {
		if e.Sequence > w.doneUpTo.Sequence {
			break
		}
		at := e.Position()
		if partition.AnotherHistory(at, w.doneUpTo) {
			return w.truncated(before)
		}
		before = at
	}
	return nil
}

// truncated returns the error of a log that lost what was done after a position.
func (w *worker[R]) truncated(after driver.Position) error {
	return &driver.TruncatedError{Partition: w.a.Lease.Partition, Position: w.doneUpTo, End: after.Sequence + 1}
}

// doneBefore reports whether an earlier assignment has done an event. It must be
// called in ascending order.
func (w *worker[R]) doneBefore(sequence int64) bool {
	for len(w.skip) > 0 && w.skip[0].Last < sequence {
		w.skip = w.skip[1:]
	}
	return len(w.skip) > 0 && w.skip[0].First <= sequence
}

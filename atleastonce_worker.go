package sluice

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
)

// atLeastOnceWorker delivers one partition's events during one assignment.
//
// Its own goroutine, the delivery's, admits events as they come, makes their
// records and submits those (atleastonce_records.go). The sink's goroutines return
// the results. A background goroutine stores the checkpoint and the dead letters,
// so that a slow store does not delay the events. A timer wakes the worker when a
// retry is due.
type atLeastOnceWorker[R any] struct {
	a       *assignment
	store   driver.AtLeastOnceStore
	records func(context.Context, *Event) ([]R, error)
	sink    Sink[R]
	key     func(R) string // nil: the event's partition key
	cfg     *AtLeastOnceConfig

	// Shared with the other goroutines. Each has its own lock, or is atomic.
	inFlight    inFlightList
	results     resultQueue[R]
	timer       wakeTimer
	stats       writeStats
	deadLetters deadLetterWriter
	redrives    redriveQueue
	checkpoints checkpointer
	watermark   atomic.Pointer[watermark] // of the checkpoint, as last stored
	window      partitionWindow           // bounds the records that the sink has
	bytes       atomic.Int64              // of the events in flight
	wakeup      chan struct{}             // wakes the worker: a result, or a retry that is due

	// The worker's goroutine alone uses these.
	recordCtx context.Context        // of making and submitting records: it carries an emission
	start     Position               // the checkpoint at the claim
	admitted  Position               // events up to here were admitted
	loaded    bool                   // the dead letters and held keys of earlier assignments are loaded
	done      []driver.SequenceRange // after the checkpoint and done by an earlier assignment
	parked    []driver.ParkedEvent   // the events of earlier assignments' dead letters after the checkpoint
	skip      []driver.SequenceRange // all of these
	doneUpTo  Position               // in a sparse topic: the last of these but dead letters, with the checkpoint's offset
	maxEvents int                    // in flight
	maxBytes  int64                  // of them
	events    uint64                 // admitted so far
	completed uint64                 // of those, how many lie below the furthest that is done, when last asked
	queue     sendQueue[R]
	breaker   circuitBreaker
	doubts    doubts
	draining  bool // nothing more is sent
	reread    rereading
	mapping   mappingTrial

	doneTwice sync.Once // reports a sink that completes a record more than once

	background    sync.WaitGroup // stores and reports; runs the timer
	endBackground context.CancelFunc
}

func (d *atLeastOnce[R]) newWorker(a *assignment) *atLeastOnceWorker[R] {
	sharers := int(a.c.cfg.Partitions)
	if sharers <= 0 { // it may come to hold all
		sharers = len(a.topic.Partitions)
	}
	w := &atLeastOnceWorker[R]{
		a: a, store: d.store, records: d.records, sink: d.sink, key: d.key, cfg: &d.cfg,
		start: driver.Unset, admitted: driver.Unset, doneUpTo: driver.Unset,
		maxEvents: max(1, d.cfg.MaxEvents/sharers),
		maxBytes:  max(1, d.cfg.MaxBytes/int64(sharers)),
		wakeup:    make(chan struct{}, 1),
		breaker:   circuitBreaker{wait: a.c.backoff(a.rand)},
		stats:     writeStats{clock: a.c.cfg.Clock},
	}
	w.window.shared, w.window.wakeup = d.window, w.wakeup
	w.inFlight.init(w.maxEvents, a.topic.Sparse)
	w.checkpoints.at, w.checkpoints.reported = driver.Unset, driver.Unset.Sequence
	w.timer.init()
	w.queue.init()
	w.deadLetters.init(d.cfg.OnDeadLetter == KeyHold)
	w.redrives.init()
	w.watermark.Store(newWatermark(driver.Origin.Sequence, nil))
	return w
}

// startBackground starts the goroutines beside the worker's own.
func (w *atLeastOnceWorker[R]) startBackground() {
	ctx, cancel := context.WithCancel(w.a.work)
	w.endBackground = cancel
	w.a.sink.polled(activitySink, func() (changes uint64, busy bool) {
		return uint64(w.window.finished.Load()), w.window.atSink() > 0
	})
	w.a.progress.written.Store(&w.stats.written)
	w.background.Go(func() { w.a.survive(func() { w.storeAndReport(ctx) }) })
	w.background.Go(func() { w.timer.run(ctx, w.a.c.cfg.Clock, w.wakeup) })
}

// storeAndReport stores dead letters, the outcomes of redrives and the checkpoint,
// looks for redrives, and reports progress, until ctx ends.
func (w *atLeastOnceWorker[R]) storeAndReport(ctx context.Context) {
	cfg := &w.a.c.cfg
	tick := min(w.cfg.CheckpointEvery, cfg.RedriveEvery, time.Second)
	w.checkpoints.stored = cfg.Clock.Elapsed()
	nextCheckpoint := w.checkpoints.stored + tick // the first one early, to show that the partition moves
	var nextLook time.Duration
	for cfg.Clock.Sleep(ctx, tick) == nil {
		w.storeDeadLetters(ctx)
		w.settleRedrives(ctx)
		if now := cfg.Clock.Elapsed(); now >= nextCheckpoint {
			nextCheckpoint = now + w.cfg.CheckpointEvery
			w.storeCheckpoint(ctx)
		}
		w.reportStats()
		w.reportAge()
		if now := cfg.Clock.Elapsed(); now >= nextLook {
			nextLook = now + cfg.RedriveEvery
			w.findRedrives(ctx)
		}
	}
}

// storeRequestCtx bounds one request to the store, well within the lease.
func (w *atLeastOnceWorker[R]) storeRequestCtx(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := w.a.requestCtx(ctx)
	storing := w.a.storing.doing(activityStore, 0, 0)
	return ctx, func() {
		storing.done()
		cancel()
	}
}

// drain waits for the records that the sink has, and stores what became of them:
// for as long as that takes if the consumer is to stop, for a moment if its work
// is cancelled.
func (w *atLeastOnceWorker[R]) drain(cause error) {
	w.draining = true
	defer w.window.leave() // not before: what the sink still has counts
	stopped := cause == nil || errors.Is(cause, ErrStopped)
	if !stopped {
		w.a.cancel(cause) // the partition belongs to another owner
	}
	shutdown, cancel := w.a.shutdownCtx()
	defer cancel()
	for w.window.atSink() > 0 {
		w.takeResults()
		over := w.a.work.Done()
		if w.a.work.Err() != nil {
			over = shutdown.Done()
		}
		select {
		case <-w.wakeup:
		case <-over:
		}
		if shutdown.Err() != nil && w.a.work.Err() != nil {
			break
		}
	}
	w.takeResults()
	w.endBackground()
	w.background.Wait()
	if !stopped || w.a.work.Err() != nil && !errors.Is(context.Cause(w.a.work), ErrStopped) {
		return
	}
	ctx, done := w.a.shutdownCtx()
	defer done()
	w.storeDeadLetters(ctx)
	w.settleRedrives(ctx)
	w.storeCheckpoint(ctx)
	w.reportStats()
}

// claimed implements worker. Only the first claim of an assignment says something
// new: no other consumer moves the checkpoint in this epoch.
func (w *atLeastOnceWorker[R]) claimed(cp Checkpoint) {
	if w.admitted == driver.Unset {
		w.start, w.admitted, w.done = cp.Position, cp.Position, cp.Done
		if n := len(cp.Done); n > 0 && w.a.topic.Sparse {
			w.doneUpTo = Position{Sequence: cp.Done[n-1].Last, Offset: cp.Position.Offset}
		}
		w.startAt(cp.Position)
		w.recordCtx = context.WithValue(w.a.work, emissionKey{}, &emission{
			FencingToken: FencingToken{Lease: w.a.lease, Incarnation: w.a.incarnation},
			source:       idSourceOf(&w.a.topic, w.a.incarnation),
			incarnation:  w.a.incarnation,
			watermark:    &w.watermark,
		})
	}
	w.a.observe(Observation{Kind: KindClaimed, To: cp.Position, Attempt: cp.Claims})
}

// storeStart implements worker.
func (w *atLeastOnceWorker[R]) storeStart(start Position) error {
	ctx, cancel := w.a.requestCtx(w.a.work)
	defer cancel()
	if err := w.store.Begin(ctx, w.a.lease, w.start, start); err != nil {
		return err
	}
	w.start, w.admitted = start, start
	w.startAt(start)
	return nil
}

// startAt sets the checkpoint that the worker starts from.
func (w *atLeastOnceWorker[R]) startAt(at Position) {
	w.checkpoints.moveTo(at)
	w.inFlight.startAt(at)
}

// position implements worker.
func (w *atLeastOnceWorker[R]) position() Position { return w.admitted }

// interrupted implements worker. A checkpoint that is set after a loss must not pass events that are
// still in flight, or that were not read again.
func (w *atLeastOnceWorker[R]) interrupted(err error) bool {
	if lost, is := errors.AsType[*TruncatedError](err); is {
		low, _, _, _ := w.inFlight.progress()
		lost.Before = max(0, lost.End-1-low.Sequence)
	}
	return false
}

// recreated implements worker. What is in flight must not count in the new incarnation, also
// where the database has lost the checkpoint, so that the claim begins one. Only the epoch of
// the next assignment refuses it.
func (w *atLeastOnceWorker[R]) recreated() bool { return false }

// prepare implements worker. It loads which events are dead letters, and reads
// from the log those on redrive whose bodies are not stored: the broker allows no
// other reader of this consumer.
func (w *atLeastOnceWorker[R]) prepare() error {
	if !w.loaded {
		if err := w.loadDeadLetters(); err != nil {
			return err
		}
	}
	if err := w.a.request(w.a.idle, "look for redrives", w.lookForRedrives); err != nil {
		return err
	}
	return w.startRedrives(true)
}

// loadDeadLetters loads what earlier assignments have stored: dead letters, which
// count as done, and held keys.
func (w *atLeastOnceWorker[R]) loadDeadLetters() error {
	var parked []driver.ParkedEvent
	err := w.a.request(w.a.idle, "look for dead letters", func(ctx context.Context) (err error) {
		parked, err = w.store.Parked(ctx, w.a.topic.Group, w.a.lease.Partition, w.a.incarnation, driver.Origin.Sequence)
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
	w.watermark.Store(newWatermark(w.start.Sequence, numbers))
	earlier := slices.Clone(w.skip)
	if w.a.topic.Sparse { // dead letters may have another offset than the checkpoint there
		earlier = slices.Clone(w.done)
	}
	// Last: with what earlier assignments have done there is something to store, and
	// the watermark of that checkpoint must name their dead letters.
	w.checkpoints.setEarlier(earlier)
	if w.cfg.OnDeadLetter == KeyHold {
		err := w.a.request(w.a.idle, "look for held keys", func(ctx context.Context) error {
			held, err := w.store.Held(ctx, w.a.topic.Group, w.a.lease.Partition, nil)
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
func (w *atLeastOnceWorker[R]) doneAndParked() []driver.SequenceRange {
	all := slices.Clone(w.done)
	for _, p := range w.parked {
		all = append(all, driver.SequenceRange{First: p.Position.Sequence, Last: p.Position.Sequence})
	}
	slices.SortFunc(all, func(a, b driver.SequenceRange) int { return cmp.Compare(a.First, b.First) })
	return all
}

// setLostAside sets the dead letters aside whose events the log has lost, if others with their numbers
// are to be admitted.
func (w *atLeastOnceWorker[R]) setLostAside(events []*Event) error {
	if !w.a.topic.Sparse || len(w.parked) == 0 {
		return nil
	}
	lost := lostAmong(w.parked, events)
	if len(lost) == 0 {
		return nil
	}
	if err := w.a.setAside(w.store, lost); err != nil {
		return err
	}
	for _, p := range lost {
		w.deadLetters.removed(p.Position.Sequence)
	}
	w.parked = without(w.parked, lost)
	w.skip = w.doneAndParked()
	return nil
}

// deliver implements worker. It admits and submits events as there is room for
// them.
func (w *atLeastOnceWorker[R]) deliver(buffer *prefetchBuffer) error {
	w.reread.end(w.a.c.cfg.Clock.Elapsed(), w.a.c.cfg.LeaseFor, w.stats.written.Load())
	for {
		if w.a.idle.Err() != nil {
			return w.a.ended()
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
			events, err := buffer.take(min(w.room(), w.a.c.cfg.MaxBatch), w.maxBytes-w.bytes.Load())
			if err != nil {
				return fmt.Errorf("read log: %w", err)
			}
			if len(events) > 0 {
				if err := w.admit(events); err != nil {
					return err
				}
				continue
			}
			if err := w.pass(buffer.behind()); err != nil {
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
		case <-buffer.ready:
		case <-w.wakeup:
		case <-w.a.idle.Done():
		}
	}
}

// proceed does one step of a worker that reads nothing.
func (w *atLeastOnceWorker[R]) proceed() error {
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
	case <-w.a.idle.Done():
		return w.a.ended()
	}
}

// room returns how many events may still be admitted. All events from the oldest
// that is not done count, because the work list spans them.
func (w *atLeastOnceWorker[R]) room() int {
	if w.bytes.Load() >= w.maxBytes {
		return 0
	}
	room := w.maxEvents - int(w.events-w.completed)
	if room < w.a.c.cfg.MaxBatch {
		_, w.completed = w.inFlight.low()
		room = w.maxEvents - int(w.events-w.completed)
	}
	return room
}

// admit puts events on the work list and makes their records.
func (w *atLeastOnceWorker[R]) admit(events []*Event) error {
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
func (w *atLeastOnceWorker[R]) pass(to Position) error {
	if to.Sequence <= w.admitted.Sequence {
		return nil
	}
	if to.Sequence < w.doneUpTo.Sequence && anotherHistory(to, w.doneUpTo) {
		return w.truncated(w.admitted)
	}
	w.admitted = to
	w.inFlight.pass(to)
	return nil
}

// checkHistory returns an error if the log has lost events after the checkpoint that an earlier
// assignment has done: the offset of one of these numbers is not theirs. What comes next must not
// count as done.
func (w *atLeastOnceWorker[R]) checkHistory(events []*Event) error {
	before := w.admitted
	for _, e := range events {
		if e.Sequence > w.doneUpTo.Sequence {
			break
		}
		at := e.Position()
		if anotherHistory(at, w.doneUpTo) {
			return w.truncated(before)
		}
		before = at
	}
	return nil
}

// truncated returns the error of a log that lost what was done after a position.
func (w *atLeastOnceWorker[R]) truncated(after Position) error {
	return &TruncatedError{Partition: w.a.lease.Partition, Position: w.doneUpTo, End: after.Sequence + 1}
}

// doneBefore reports whether an earlier assignment has done an event. It must be
// called in ascending order.
func (w *atLeastOnceWorker[R]) doneBefore(sequence int64) bool {
	for len(w.skip) > 0 && w.skip[0].Last < sequence {
		w.skip = w.skip[1:]
	}
	return len(w.skip) > 0 && w.skip[0].First <= sequence
}

package batch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/clock"
	"github.com/sluice-go/sluice/internal/engine"
	"github.com/sluice-go/sluice/internal/engine/partition"
	"github.com/sluice-go/sluice/stamp"
)

// worker delivers one partition's events during one assignment, in order and
// batch by batch, on one goroutine. Its steps are those of sluice.Transactional and sluice.Batches,
// which differ in their [workerPolicy].
type worker[Tx any] struct {
	a       *partition.Assignment
	store   driver.TxStore[Tx] // of Batches, a batchStore
	handler func(ctx context.Context, tx Tx, b driver.Batch) error
	policy  workerPolicy

	pos         driver.Position // the checkpoint, as far as is known
	record      attemptLog      // of the event after pos, or of a dead letter on redrive
	claims      int             // that saw no progress: see driver.Checkpoint
	suspectUpTo int64           // events up to this one are suspected of killing the process; Unset's if none
	suspected   int64           // so many numbers they had when they became that
	suspects    int             // and so many events after them, whose numbers are not known yet
	outage      *clock.Backoff  // between tries while the database, or what the handler needs, fails
	limit       batchLimit
	brake       brake
	batch       []*driver.Event   // the events taken from the buffer last
	given       []*driver.Event   // the events that the handler got last, but in a dry run or a redrive
	taken       int64             // the last of them, and of the duplicates among them
	tail        driver.Position   // numbers without an event that follow it end here; Unset if there are none
	buffer      *partition.Buffer // those after them
	dedup       *stamp.Memory

	deadLettersBelow int64                // see driver.Checkpoint
	parked           []driver.ParkedEvent // in a sparse topic: the events of dead letters after the position of the claim
	parkedLoaded     bool
	redrives         redrivePace
	filling          filling
	duties           duties
	redriven         int // dead letters
	redriveFailures  int
}

// newWorker makes a worker without a policy.
func newWorker[Tx any](a *partition.Assignment, store driver.TxStore[Tx], handler func(context.Context, Tx, driver.Batch) error) *worker[Tx] {
	return &worker[Tx]{
		dedup: stamp.NewMemory(a.Settings.StampsFrom),
		a:     a, store: store, handler: engine.DecodedBatches(handler),
		tail: driver.Unset, suspectUpTo: driver.Unset.Sequence, outage: a.Settings.Backoff(a.Rand), limit: newBatchLimit(a.Settings),
	}
}

// deliverAll delivers the partition's events until the assignment ends. After a panic the attempt
// stays on record, as if it had ended the process: a batch whose commit panics each time is
// isolated.
func (w *worker[Tx]) deliverAll() error {
	err := w.a.Guarded(func() error { return w.a.Run(w, w.store) })
	if _, panicked := errors.AsType[*driver.PanicError](err); panicked {
		return err
	}
	w.takeBack()
	w.a.Leave(w.store)
	return err
}

// Claimed implements worker.
func (w *worker[Tx]) Claimed(cp driver.Checkpoint) {
	switch at := cp.Position.Sequence; {
	case at < w.pos.Sequence:
		// The database has lost commits, and the ids of their events with them.
		w.dedup.Reset()
		w.brake = brake{}
	case at > w.pos.Sequence && at > w.dedup.DecidedUpTo:
		// Another process of this owner name and epoch has moved the checkpoint past events
		// that were not read here. Their ids are in the database.
		w.dedup.Reset()
	}
	w.record.load(cp, cp.Position.Sequence != w.pos.Sequence)
	w.pos, w.deadLettersBelow = cp.Position, cp.DeadLettersBelow
	w.parked, w.parkedLoaded = nil, false
	w.suspect(cp)
	w.a.Observe(driver.Observation{Kind: driver.KindClaimed, To: cp.Position, Attempt: cp.Claims})
}

// StoreStart implements worker.
func (w *worker[Tx]) StoreStart(start driver.Position) error {
	err := w.a.Request(w.a.Work, "store start", func(ctx context.Context) error {
		return w.store.Begin(ctx, w.a.Lease, w.pos, start)
	})
	if err != nil {
		return err
	}
	w.pos = start
	w.record.clear()
	return nil
}

// Prepare implements worker. It redrives: dead letters without a stored body are
// read from the log, and the broker allows no other reader of this consumer.
func (w *worker[Tx]) Prepare() error {
	if err := w.halted(); err != nil {
		return err
	}
	if w.attemptsOnRecord() {
		w.redrives.due = true // after that event
		return nil
	}
	return w.runRedrives(true)
}

// Position implements worker.
func (w *worker[Tx]) Position() driver.Position { return w.pos }

// Interrupted implements worker.
func (w *worker[Tx]) Interrupted(error) bool { return false }

// Recreated implements worker. No transaction is under way then.
func (w *worker[Tx]) Recreated() bool { return true }

// Deliver implements worker.
func (w *worker[Tx]) Deliver(buffer *partition.Buffer) error {
	w.buffer, w.filling.waits = buffer, false
	cfg := w.a.Settings
	opened := cfg.Clock.Elapsed()
	w.redrives.rest(opened) // the time in which the log was opened was not the events'
	w.duties.begin(cfg, w.suspicious(), w.a.Topic.Sparse, w.policy.saveEvery, opened)
	timer := partition.NewTimer(cfg.Clock, buffer.Ready)
	ctx, cancel := context.WithCancel(w.a.Idle)
	var timing sync.WaitGroup
	timing.Go(func() { timer.Run(ctx) })
	defer timing.Wait()
	defer cancel()
	waiting := true // the reader may have events that wait
	for {
		if w.a.Idle.Err() != nil {
			return w.a.Ended()
		}
		if w.duties.look.Due(cfg.Clock.Elapsed()) {
			w.redrives.due = true
		}
		if w.redrives.due && cfg.Clock.Elapsed() >= w.redrives.restUntil && !w.attemptsOnRecord() {
			if err := w.runRedrives(false); err != nil {
				return err
			}
		}
		events, err := w.take()
		if err != nil {
			return fmt.Errorf("read log: %w", err)
		}
		if len(events) > 0 {
			if err := w.deliverTurn(events); err != nil {
				return err
			}
			waiting = false
			continue
		}
		if waiting = waiting && cfg.Clock.Elapsed() < w.redrives.restUntil; w.redrives.due && w.redrives.restUntil > 0 && !waiting && !w.attemptsOnRecord() {
			w.redrives.restUntil = 0 // there are no events that wait
			w.redrives.forgive()
			continue
		}
		if err := w.whileIdle(); err != nil {
			return err
		}
		timer.Set(w.nextDuty())
		select {
		case <-buffer.Ready:
		case <-w.a.Idle.Done():
		}
	}
}

// deliverTurn applies the events taken from the buffer, and counts the time that redrives which
// are due have waited for them.
func (w *worker[Tx]) deliverTurn(events []*driver.Event) error {
	clock := w.a.Settings.Clock
	began, contested := clock.Elapsed(), w.redrives.due
	if err := w.deliverBatch(events); err != nil {
		return err
	}
	w.batch, w.given = nil, nil // they are charged no more
	w.duties.delivered = clock.Elapsed()
	w.duties.fenced = w.duties.delivered
	if contested {
		w.redrives.batch = w.duties.delivered - began
	}
	return nil
}

// checkFence commits an empty step. The owner of a partition without events notices in this
// way that an operator has set its checkpoint. The step stores what Batches have done.
func (w *worker[Tx]) checkFence() error {
	err := w.commit(driver.Step{Lease: w.a.Lease, From: w.pos, To: w.pos}, driver.Batch{})
	if errors.Is(err, errReclaimed) {
		return nil
	}
	return err
}

// deliverBatch applies the events taken from the buffer.
func (w *worker[Tx]) deliverBatch(events []*driver.Event) error {
	w.meet(events)
	w.tail = driver.Unset
	if w.a.Topic.Sparse {
		if w.setBack() {
			if err := w.setLostAside(events); err != nil {
				return err
			}
			return w.deliverApart(events)
		}
		w.tail = w.buffer.Tail()
	}
	return w.deliverRun(events)
}

// deliverRun applies events, without those that are duplicates of earlier ones.
func (w *worker[Tx]) deliverRun(events []*driver.Event) error {
	last := events[len(events)-1]
	w.taken = last.Sequence
	kept, err := w.withoutDuplicates(events)
	if err != nil {
		return err
	}
	if len(kept) == 0 {
		return w.skip(w.upTo(last))
	}
	w.batch = kept
	return w.apply(kept)
}

// withoutDuplicates returns the events that are not duplicates of earlier ones.
func (w *worker[Tx]) withoutDuplicates(events []*driver.Event) ([]*driver.Event, error) {
	if !w.policy.stamps || !slices.ContainsFunc(events, stamp.In) {
		return events, nil
	}
	if w.dedup.BelievesNone() {
		w.dedup.NoteUnnamed(events[slices.IndexFunc(events, stamp.In)])
		w.reportStamps()
		return events, nil
	}
	if !w.dedup.Loaded {
		// In this epoch no other consumer adds to it.
		err := w.a.Request(w.a.Work, "read dedup state", func(ctx context.Context) error {
			rows, err := w.store.ReadDedup(ctx, w.a.Topic.Group, w.a.Lease.Partition)
			if err == nil {
				err = w.dedup.Load(rows, w.pos.Sequence)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	kept := w.dedup.Filter(events, w.pos.Sequence)
	for _, err := range w.dedup.Forgotten() {
		w.a.Failed(err)
	}
	w.reportStamps()
	return kept, nil
}

// reportStamps reports what is wrong with stamps and new in this assignment.
func (w *worker[Tx]) reportStamps() {
	for _, err := range w.dedup.TakeFaults() {
		w.a.Failed(err)
	}
}

package sluice

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/clock"
)

// Delivery is how events take effect. Its constructor's name is the guarantee:
// [Transactional], [Batches], [AtLeastOnce] or [Replay].
type Delivery interface {
	// check returns what is wrong with its configuration.
	check() error
	// deliver delivers a partition's events until the assignment ends, and
	// returns why.
	deliver(a *assignment) error
	// redrive runs the redrives that are due on a partition, and nothing else.
	redrive(a *assignment) (applied, failed int, err error)
	// redriveDue reports whether there are any.
	redriveDue(ctx context.Context, group Group, partition string) (bool, error)
	// copyMarks returns the store of dead letters, nil if it does not remember copies.
	copyMarks() driver.CopyMarks
	// redriveFinder returns the store of dead letters, nil if it finds redrives by partition only.
	redriveFinder() driver.RedriveFinder
	// groupLister returns the store of checkpoints, nil if it does not list groups.
	groupLister() driver.GroupLister
}

// Transactional delivers each event's effect exactly once: the handler's
// writes, the checkpoint and the dead letters commit in one transaction of
// store, fenced by the lease's epoch and owner and by the position they start
// from.
//
// Where the events are messages of an [AtLeastOnce] stage that carry a [Stamp],
// and [Config].StampsFrom names that stage,
// the exactly-once guarantee starts at that stage's events: a message that was
// sent more than once is handled once. Of several messages that share a stamp,
// because an event's properties were copied to each, only the first is handled: see
// [Stamp].
func Transactional[Tx any](store driver.TxStore[Tx], handler Handler[Tx]) Delivery {
	return &transactional[Tx]{store: store, handler: handler}
}

type transactional[Tx any] struct {
	store   driver.TxStore[Tx]
	handler Handler[Tx]
}

func (d *transactional[Tx]) check() error {
	if d.store == nil || d.handler == nil {
		return errors.New("transactional: store or handler is nil")
	}
	return nil
}

func (d *transactional[Tx]) copyMarks() driver.CopyMarks { return copyMarksOf(d.store) }

func (d *transactional[Tx]) groupLister() driver.GroupLister { return groupListerOf(d.store) }

func groupListerOf(store any) driver.GroupLister {
	lister, _ := store.(driver.GroupLister)
	return lister
}

func (d *transactional[Tx]) redriveFinder() driver.RedriveFinder { return redriveFinderOf(d.store) }

func (d *transactional[Tx]) deliver(a *assignment) error { return d.newWorker(a).deliverAll() }

func (d *transactional[Tx]) redrive(a *assignment) (applied, failed int, err error) {
	return d.newWorker(a).redriveAll()
}

func (d *transactional[Tx]) redriveDue(ctx context.Context, group Group, partition string) (bool, error) {
	due, err := d.store.Due(ctx, group, partition, 1)
	return len(due) > 0, err
}

func (d *transactional[Tx]) newWorker(a *assignment) *batchWorker[Tx] {
	w := newBatchWorker(a, d.store, d.handler)
	w.policy = workerPolicy{stamps: true, trials: true, report: a.observe, witnesses: laterEvents[Tx]{w}}
	return w
}

// batchWorker delivers one partition's events during one assignment, in order and
// batch by batch, on one goroutine. Its steps are those of [Transactional] and [Batches],
// which differ in their [workerPolicy]. transactional_limit.go says how many events a batch
// has, transactional_apply.go splits batches that fail, transactional_commit.go commits
// them, transactional_brake.go decides whether an event is to blame,
// transactional_suspect.go finds events that end the process, transactional_halt.go halts the
// partition of a handler that ends its transaction, and transactional_redrive.go redrives dead
// letters.
type batchWorker[Tx any] struct {
	a       *assignment
	store   driver.TxStore[Tx] // of Batches, a batchStore
	handler Handler[Tx]
	policy  workerPolicy

	pos         Position       // the checkpoint, as far as is known
	record      attemptLog     // of the event after pos, or of a dead letter on redrive
	claims      int            // that saw no progress: see driver.Checkpoint
	suspectUpTo int64          // events up to this one are suspected of killing the process; Unset's if none
	suspects    int            // and so many events after it, whose numbers are not known yet
	outage      *clock.Backoff // between tries while the database, or what the handler needs, fails
	limit       batchLimit
	brake       brake
	batch       []*Event        // the events taken from the buffer last
	given       []*Event        // the events that the handler got last, but in a dry run or a redrive
	taken       int64           // the last of them, and of the duplicates among them
	tail        Position        // numbers without an event that follow it end here; Unset if there are none
	buffer      *prefetchBuffer // those after them
	dedup       deduplicator

	deadLettersBelow int64                // see driver.Checkpoint
	parked           []driver.ParkedEvent // in a sparse topic: the events of dead letters after the position of the claim
	parkedLoaded     bool
	redrives         redrivePace
	redriven         int // dead letters
	redriveFailures  int
}

// newBatchWorker makes a worker without a policy.
func newBatchWorker[Tx any](a *assignment, store driver.TxStore[Tx], handler Handler[Tx]) *batchWorker[Tx] {
	return &batchWorker[Tx]{
		dedup: deduplicator{belief: newStampBelief(a.c.cfg.StampsFrom)},
		a:     a, store: store, handler: handler,
		tail: driver.Unset, suspectUpTo: driver.Unset.Sequence, outage: a.c.backoff(a.rand), limit: newBatchLimit(&a.c.cfg),
	}
}

// deliverAll delivers the partition's events until the assignment ends. After a panic the attempt
// stays on record, as if it had ended the process: a batch whose commit panics each time is
// isolated.
func (w *batchWorker[Tx]) deliverAll() error {
	err := w.a.guarded(func() error { return w.a.run(w, w.store) })
	if _, panicked := errors.AsType[*PanicError](err); panicked {
		return err
	}
	w.takeBack()
	w.a.leave(w.store)
	return err
}

// claimed implements worker.
func (w *batchWorker[Tx]) claimed(cp Checkpoint) {
	switch at := cp.Position.Sequence; {
	case at < w.pos.Sequence:
		// The database has lost commits, and the ids of their events with them.
		w.dedup.reset()
		w.brake = brake{}
	case at > w.pos.Sequence && at > w.dedup.decidedUpTo:
		// Another process of this owner name and epoch has moved the checkpoint past events
		// that were not read here. Their ids are in the database.
		w.dedup.reset()
	}
	w.record.load(cp, cp.Position.Sequence != w.pos.Sequence)
	w.pos, w.deadLettersBelow = cp.Position, cp.DeadLettersBelow
	w.parked, w.parkedLoaded = nil, false
	w.suspect(cp)
	w.a.observe(Observation{Kind: KindClaimed, To: cp.Position, Attempt: cp.Claims})
}

// storeStart implements worker.
func (w *batchWorker[Tx]) storeStart(start Position) error {
	ctx, cancel := w.a.requestCtx(w.a.work)
	defer cancel()
	if err := w.store.Begin(ctx, w.a.lease, w.pos, start); err != nil {
		return err
	}
	w.pos = start
	w.record.clear()
	return nil
}

// prepare implements worker. It redrives: dead letters without a stored body are
// read from the log, and the broker allows no other reader of this consumer.
func (w *batchWorker[Tx]) prepare() error {
	if err := w.halted(); err != nil {
		return err
	}
	if w.attemptsOnRecord() {
		w.redrives.due = true // after that event
		return nil
	}
	return w.runRedrives(true)
}

// position implements worker.
func (w *batchWorker[Tx]) position() Position { return w.pos }

// interrupted implements worker.
func (w *batchWorker[Tx]) interrupted(error) bool { return false }

// recreated implements worker. No transaction is under way then.
func (w *batchWorker[Tx]) recreated() bool { return true }

// deliver implements worker.
func (w *batchWorker[Tx]) deliver(buffer *prefetchBuffer) error {
	w.buffer = buffer
	var look, calm, gaps, save interval
	var ticking sync.WaitGroup
	ctx, cancel := context.WithCancel(w.a.idle)
	cfg := &w.a.c.cfg
	ticking.Go(func() { look.run(ctx, cfg.Clock, cfg.RedriveEvery, buffer.ready) })
	if w.suspicious() {
		ticking.Go(func() { calm.run(ctx, cfg.Clock, cfg.RenewEvery, buffer.ready) })
	}
	if w.a.topic.Sparse {
		ticking.Go(func() { gaps.run(ctx, cfg.Clock, passEvery, buffer.ready) })
	}
	if every := w.policy.saveEvery; every > 0 {
		ticking.Go(func() { save.run(ctx, cfg.Clock, every, buffer.ready) })
	}
	defer ticking.Wait()
	defer cancel()
	w.redrives.rest(cfg.Clock.Elapsed()) // the time in which the log was opened was not the events'
	rest := w.redrives.round
	ticking.Go(func() {
		if cfg.Clock.Sleep(ctx, rest) == nil {
			wake(buffer.ready)
		}
	})
	waiting := true              // the reader may have events that wait
	taken := cfg.Clock.Elapsed() // when there were events last
	checked := taken             // when the checkpoint was known to be this lease's
	for {
		if w.a.idle.Err() != nil {
			return w.a.ended()
		}
		if look.fired() {
			w.redrives.due = true
		}
		if w.redrives.due && cfg.Clock.Elapsed() >= w.redrives.restUntil && !w.attemptsOnRecord() {
			if err := w.runRedrives(false); err != nil {
				return err
			}
		}
		events, err := buffer.take(w.batchLimit(), int64(cfg.PrefetchBytes))
		if err != nil {
			return fmt.Errorf("read log: %w", err)
		}
		if len(events) > 0 {
			began, contested := cfg.Clock.Elapsed(), w.redrives.due
			if err := w.deliverBatch(events); err != nil {
				return err
			}
			taken = cfg.Clock.Elapsed()
			if contested {
				w.redrives.batch = taken - began
			}
			checked, waiting = taken, false
			continue
		}
		if gaps.fired() {
			if err := w.pass(buffer.behind()); err != nil {
				return err
			}
		}
		if waiting = waiting && cfg.Clock.Elapsed() < w.redrives.restUntil; w.redrives.due && w.redrives.restUntil > 0 && !waiting && !w.attemptsOnRecord() {
			w.redrives.restUntil = 0 // there are no events that wait
			w.redrives.forgive()
			continue
		}
		if calm.fired() && w.suspicious() && cfg.Clock.Elapsed()-taken >= cfg.RenewEvery {
			w.clearSuspicion()
		}
		if now := cfg.Clock.Elapsed(); save.fired() || now-checked >= cfg.LeaseFor {
			if err := w.checkFence(); err != nil {
				return err
			}
			checked = now
		}
		select {
		case <-buffer.ready:
		case <-w.a.idle.Done():
		}
	}
}

// checkFence commits an empty step. The owner of a partition without events notices in this
// way that an operator has set its checkpoint. The step stores what Batches have done.
func (w *batchWorker[Tx]) checkFence() error {
	err := w.commit(driver.Step{Lease: w.a.lease, From: w.pos, To: w.pos}, Batch{})
	if errors.Is(err, errReclaimed) {
		return nil
	}
	return err
}

// deliverBatch applies the events taken from the buffer.
func (w *batchWorker[Tx]) deliverBatch(events []*Event) error {
	w.meet(events)
	w.tail = driver.Unset
	if w.a.topic.Sparse {
		if w.setBack() {
			if err := w.setLostAside(events); err != nil {
				return err
			}
			return w.deliverApart(events)
		}
		w.tail = w.buffer.behind()
	}
	return w.deliverRun(events)
}

// deliverRun applies events, without those that are duplicates of earlier ones.
func (w *batchWorker[Tx]) deliverRun(events []*Event) error {
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
func (w *batchWorker[Tx]) withoutDuplicates(events []*Event) ([]*Event, error) {
	if !w.policy.stamps || !slices.ContainsFunc(events, carriesStamp) {
		return events, nil
	}
	if len(w.dedup.belief) == 0 {
		e := events[slices.IndexFunc(events, carriesStamp)]
		text, _, _ := stampText(e.Properties)
		w.dedup.noteFault(e, unnamedStage(text))
		w.reportStamps()
		return events, nil
	}
	if !w.dedup.loaded {
		// In this epoch no other consumer adds to it.
		err := w.a.request(w.a.work, "read dedup state", func(ctx context.Context) error {
			rows, err := w.store.ReadDedup(ctx, w.a.topic.Group, w.a.lease.Partition)
			if err == nil {
				err = w.dedup.load(rows, w.pos.Sequence)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	kept := w.dedup.filter(events, w.pos.Sequence)
	for _, err := range w.dedup.full.errors() {
		w.a.failed(err)
	}
	w.reportStamps()
	return kept, nil
}

// reportStamps reports what is wrong with stamps and new in this assignment.
func (w *batchWorker[Tx]) reportStamps() {
	for _, err := range w.dedup.faults {
		w.a.failed(err)
	}
	w.dedup.faults = nil
}

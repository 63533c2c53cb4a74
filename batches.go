package sluice

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/sluice-go/sluice/driver"
)

// BatchesConfig holds what has a default in [Batches]. The zero value is ready to use.
type BatchesConfig struct {
	// CheckpointEvery is the time between two checkpoints of a partition. A crash repeats what was
	// done since the last one, a stop repeats nothing. Default: 0, a checkpoint after each batch.
	CheckpointEvery time.Duration
}

// Batches calls handler with the events of each partition in the log's order, one batch at a time,
// and moves the checkpoint when it has returned nil. It is for effects that need no transaction, or
// cannot join one: a batch that is uploaded as a file, loaded into a warehouse in bulk, or sent to
// a web service. store keeps checkpoints and dead letters. A nil cfg takes every default.
//
// Each event is handled at least once, or is a dead letter, before the checkpoint passes it. An
// event is handled only when all events before it are done or are dead letters. Events are
// repeated, from the checkpoint on and in other batches, when the process ends or the lease is lost.
// So an effect should not depend on where a batch begins and ends, and repeating it must do no
// harm. [Batch] identifies each event for that: by Group, Incarnation, Partition and the event's
// sequence number.
//
// The handler's error says whose fault it is, as that of a [Handler] does. An [*driver.EventError], or
// several that are joined, names the events to blame; the engine finds others by splitting the
// batch. Nothing is rolled back: the events of a batch that failed are handled again. A time limit
// of the handler's own ([context.DeadlineExceeded]) that names no event makes the next batches
// smaller.
//
// An event that has used up [Config.Attempts] may fail for a reason that every event has, such as a
// service that is down. So before it becomes a dead letter, the handler is called with the event
// that succeeded last, once more. If that fails too, the partition is held until one of the two
// succeeds. If nothing has succeeded since the partition was acquired, the event is tried ten more
// times. To mark an error as an [driver.Outage] is better: it takes effect at once, and nothing is repeated.
//
// [Hooks].Batch is called when the handler has returned. Stamps of earlier stages are not used:
// see [Transactional].
func Batches(store driver.AtLeastOnceStore, handler func(context.Context, Batch) error, cfg *BatchesConfig) Delivery {
	var every time.Duration
	if cfg != nil {
		every = cfg.CheckpointEvery
	}
	var err error
	switch {
	case store == nil || handler == nil:
		err = errors.New("batches: store or handler is nil")
	case every < 0:
		err = fmt.Errorf("batches: checkpoint every %v: must not be negative", every)
	}
	return delivery{newBatches(store, handler, every), err}
}

type batches struct {
	batchesStore    driver.AtLeastOnceStore
	handler         func(context.Context, Batch) error
	checkpointEvery time.Duration
}

// newBatches makes the delivery that sluice.Batches describes.
func newBatches(store driver.AtLeastOnceStore, handler func(context.Context, Batch) error, checkpointEvery time.Duration) engineDelivery {
	return &batches{store, handler, checkpointEvery}
}

func (d *batches) store() any { return d.batchesStore }

func (d *batches) deliver(a *assignment) error { return d.newWorker(a).deliverAll() }

func (d *batches) redrive(a *assignment) (applied, failed int, err error) {
	return d.newWorker(a).redriveAll()
}

func (d *batches) redriveDue(ctx context.Context, group Group, partition string) (bool, error) {
	due, err := d.batchesStore.Due(ctx, group, partition, 1)
	return len(due) > 0, err
}

// newWorker returns the worker of one assignment, over a store whose transactions hold nothing of the
// handler's.
func (d *batches) newWorker(a *assignment) *batchWorker[struct{}] {
	s := &batchStore{AtLeastOnceStore: d.batchesStore, a: a, every: d.checkpointEvery, done: driver.Unset, at: driver.Unset, postponed: map[int64]time.Duration{}}
	handler := func(ctx context.Context, _ struct{}, b Batch) error { return d.handler(ctx, b) }
	a.progress.every.Store(int64(d.checkpointEvery)) // steps are reported with their checkpoint
	w := newBatchWorker[struct{}](a, s, handler)
	w.policy = workerPolicy{saveEvery: s.every, report: s.report, witnesses: eventDone{&w.brake}}
	return w
}

// batchStore is the [driver.TxStore] of one assignment of [Batches]. It calls the handler, and then
// stores what follows from that. What is done is never repeated in the assignment, whatever
// becomes of the checkpoint. The delivery's goroutine alone uses it.
type batchStore struct {
	driver.AtLeastOnceStore
	a     *assignment
	every time.Duration

	incarnation string             // of the positions
	done        Position           // all up to here is done; Unset until the claim
	at          Position           // the checkpoint, as last stored
	stored      time.Duration      // when that was, by Clock.Elapsed
	careful     time.Duration      // until when it is stored after each batch, likewise
	unreported  driver.Observation // of the steps whose checkpoint is not stored

	postponed map[int64]time.Duration // redrives by ID, and until when, by Clock.Elapsed
}

// Claim implements [driver.TxStore]. In its epoch no other consumer moves the checkpoint. So if that
// is before what is done, it was not stored, or the database has lost it.
func (s *batchStore) Claim(ctx context.Context, lease Lease, incarnation string) (Checkpoint, error) {
	cp, err := s.AtLeastOnceStore.Claim(ctx, lease, incarnation)
	if err != nil || cp.Incarnation != incarnation {
		return cp, err
	}
	if s.at = cp.Position; cp.Claims > 1 {
		// If a batch ends the process, it must not repeat for ever what comes before that batch.
		s.careful = s.a.acquired + 2*s.every
	}
	if s.incarnation == incarnation && s.at.Sequence < s.done.Sequence {
		if s.at == driver.Unset {
			s.a.failed(storedAgain(lease, s.done))
		}
		if err := s.save(ctx); err != nil {
			return cp, err
		}
		cp.Position, cp.Claims, cp.Attempt = s.done, 1, driver.AttemptRecord{}
	}
	if s.incarnation != incarnation {
		s.unreported = driver.Observation{}
	}
	s.incarnation, s.done = incarnation, cp.Position
	return cp, nil
}

// Begin implements [driver.TxStore].
func (s *batchStore) Begin(ctx context.Context, lease Lease, from, to Position) error {
	err := s.AtLeastOnceStore.Begin(ctx, lease, from, to)
	if err == nil {
		s.done, s.at, s.stored = to, to, s.a.cfg.Clock.Elapsed()
	}
	return err
}

// Commit implements [driver.TxStore]. The dead letters are stored before the handler is called with
// events after them.
func (s *batchStore) Commit(ctx context.Context, step driver.Step, handle func(context.Context, struct{}) error) error {
	if len(step.DeadLetters) > 0 {
		if err := s.park(ctx, step.DeadLetters); err != nil {
			return err
		}
	}
	if handle != nil {
		if err := handled(ctx, handle); err != nil {
			return err
		}
	}
	switch {
	case step.DryRun:
		return nil
	case len(step.Redriven)+len(step.FailedRedrives) > 0:
		return s.settle(ctx, step)
	}
	s.done = step.To
	if now := s.a.cfg.Clock.Elapsed(); handle != nil && now-s.stored < s.every && now >= s.careful {
		return nil
	}
	return s.save(ctx)
}

// handled calls a handler, and returns its error as [driver.TxStore] lists them.
func handled(ctx context.Context, handle func(context.Context, struct{}) error) error {
	err := handle(ctx, struct{}{})
	named := errors.As(err, new(*driver.EventError))
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.DeadlineExceeded) && !named && faultOf(err) == faultEvent && ctx.Err() == nil:
		return fmt.Errorf("%w: %w", driver.ErrTimeLimit, err)
	}
	return &driver.HandlerError{Err: err}
}

// park stores dead letters.
func (s *batchStore) park(ctx context.Context, dead []DeadLetter) error {
	ctx, cancel := s.a.requestCtx(ctx)
	defer cancel()
	if err := s.Park(ctx, dead); err != nil {
		return fmt.Errorf("store dead letters: %w", err)
	}
	return nil
}

// settle ends redrives. Those that are postponed stay due in the store, whose clock is not known here.
func (s *batchStore) settle(ctx context.Context, step driver.Step) error {
	if step.PostponeFor > 0 {
		for i := range step.FailedRedrives {
			s.postponed[step.FailedRedrives[i].ID] = s.a.cfg.Clock.Elapsed() + step.PostponeFor
		}
		return nil
	}
	ctx, cancel := s.a.requestCtx(ctx)
	defer cancel()
	if err := s.Settle(ctx, step.Lease.Group, step.Redriven, step.FailedRedrives); err != nil {
		return fmt.Errorf("settle redrives: %w", err)
	}
	return nil
}

// Due implements [driver.TxStore].
func (s *batchStore) Due(ctx context.Context, group Group, partition string, limit int) ([]DeadLetter, error) {
	now := s.a.cfg.Clock.Elapsed()
	maps.DeleteFunc(s.postponed, func(_ int64, until time.Duration) bool { return until <= now })
	due, err := s.AtLeastOnceStore.Due(ctx, group, partition, limit+len(s.postponed))
	return slices.DeleteFunc(due, func(d DeadLetter) bool { return s.postponed[d.ID] > 0 }), err
}

// save stores the checkpoint. One that is unchanged is stored for its fence, once in a lease.
func (s *batchStore) save(ctx context.Context) error {
	now := s.a.cfg.Clock.Elapsed()
	if s.at == s.done && now-s.stored < s.a.cfg.LeaseFor {
		return nil
	}
	ctx, cancel := s.a.requestCtx(ctx)
	defer cancel()
	if err := s.Advance(ctx, s.a.lease, s.incarnation, s.done, nil); err != nil {
		return err
	}
	s.at, s.stored = s.done, now
	if o := s.unreported; o.Kind != 0 {
		s.unreported = driver.Observation{}
		s.a.observe(o)
	}
	return nil
}

// report reports steps that are done, when their checkpoint is stored: with those before them, if the answer
// to the request that stored it was lost.
func (s *batchStore) report(o driver.Observation) {
	if u := s.unreported; u.Kind != 0 {
		o.From, o.Events, o.Duration = u.From, o.Events+u.Events, o.Duration+u.Duration
		o.Filtered += u.Filtered
	}
	s.unreported = o
	if s.at == s.done {
		s.unreported = driver.Observation{}
		s.a.observe(o)
	}
}

// RecordAttempt implements [driver.TxStore]. The record belongs to the event after the checkpoint.
func (s *batchStore) RecordAttempt(ctx context.Context, lease Lease, at Position, attempt driver.AttemptRecord) error {
	if s.at != s.done {
		if err := s.save(ctx); err != nil {
			return err
		}
	}
	return s.AtLeastOnceStore.RecordAttempt(ctx, lease, at, attempt)
}

// Leave implements [driver.TxStore].
func (s *batchStore) Leave(ctx context.Context, lease Lease) error {
	var notSaved error
	if s.at != s.done {
		if notSaved = s.save(ctx); errors.Is(notSaved, ErrFenced) {
			notSaved = nil
		}
	}
	return errors.Join(notSaved, s.AtLeastOnceStore.Leave(ctx, lease))
}

// ReadDedup implements [driver.TxStore]. There is none: see [Batches].
func (*batchStore) ReadDedup(context.Context, Group, string) ([]driver.DedupState, error) {
	return nil, nil
}

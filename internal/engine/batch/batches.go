package batch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine"
	"github.com/sluice-go/sluice/internal/engine/partition"
)

type batches struct {
	batchesStore    driver.AtLeastOnceStore
	handler         func(context.Context, driver.Batch) error
	checkpointEvery time.Duration
}

// Batches makes the delivery that sluice.Batches describes.
func Batches(store driver.AtLeastOnceStore, handler func(context.Context, driver.Batch) error, checkpointEvery time.Duration) partition.Delivery {
	return &batches{store, handler, checkpointEvery}
}

func (d *batches) Store() any { return d.batchesStore }

// FillsBatches marks a delivery to which Settings.FillFor applies.
func (d *batches) FillsBatches() {}

func (d *batches) Deliver(a *partition.Assignment) error { return d.newWorker(a).deliverAll() }

func (d *batches) Redrive(a *partition.Assignment) (applied, failed int, err error) {
	return d.newWorker(a).redriveAll()
}

func (d *batches) RedriveDue(ctx context.Context, group driver.Group, partition string) (bool, error) {
	due, err := d.batchesStore.Due(ctx, group, partition, 1)
	return len(due) > 0, err
}

// newWorker returns the worker of one assignment, over a store whose transactions hold nothing of
// the handler's.
func (d *batches) newWorker(a *partition.Assignment) *worker[struct{}] {
	s := &batchStore{AtLeastOnceStore: d.batchesStore, a: a, every: d.checkpointEvery, done: driver.Unset, checkpoint: driver.Unset, postponed: map[int64]time.Duration{}}
	handler := func(ctx context.Context, _ struct{}, b driver.Batch) error { return d.handler(ctx, b) }
	a.Progress.Every.Store(int64(d.checkpointEvery + a.Settings.FillFor)) // steps are reported with their checkpoint
	w := newWorker[struct{}](a, s, handler)
	w.policy = workerPolicy{saveEvery: s.every, report: s.report, witnesses: eventDone{&w.brake}}
	return w
}

// batchStore is the [driver.TxStore] of one assignment of sluice.Batches. It calls the handler, and
// then stores what follows from that. What is done is never repeated in the assignment, whatever
// becomes of the checkpoint. The delivery's goroutine alone uses it.
type batchStore struct {
	driver.AtLeastOnceStore
	a     *partition.Assignment
	every time.Duration

	incarnation string             // of the positions
	done        driver.Position    // all up to here is done; Unset until the claim
	checkpoint  driver.Position    // the checkpoint, as last stored
	stored      time.Duration      // when that was, by Clock.Elapsed
	careful     time.Duration      // until when it is stored after each batch, likewise
	unreported  driver.Observation // of the steps whose checkpoint is not stored

	postponed map[int64]time.Duration // redrives by ID, and until when, by Clock.Elapsed
}

// Claim implements [driver.TxStore]. In its epoch no other consumer moves the checkpoint. So if
// that is before what is done, it was not stored, or the database has lost it.
func (s *batchStore) Claim(ctx context.Context, lease driver.Lease, incarnation string) (driver.Checkpoint, error) {
	cp, err := s.AtLeastOnceStore.Claim(ctx, lease, incarnation)
	if err != nil || cp.Incarnation != incarnation {
		return cp, err
	}
	if s.checkpoint = cp.Position; cp.Claims > 1 {
		// If a batch ends the process, it must not repeat for ever what comes before that batch.
		s.careful = s.a.Acquired + 2*s.every
	}
	if s.incarnation == incarnation && s.checkpoint.Sequence < s.done.Sequence {
		if s.checkpoint == driver.Unset {
			s.a.Failed(partition.StoredAgain(lease, s.done))
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
func (s *batchStore) Begin(ctx context.Context, lease driver.Lease, from, to driver.Position) error {
	err := s.AtLeastOnceStore.Begin(ctx, lease, from, to)
	if err == nil {
		s.done, s.checkpoint, s.stored = to, to, s.a.Settings.Clock.Elapsed()
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
	if now := s.a.Settings.Clock.Elapsed(); handle != nil && now-s.stored < s.every && now >= s.careful {
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
	case errors.Is(err, context.DeadlineExceeded) && !named && engine.FaultOf(err) == engine.FaultEvent && ctx.Err() == nil:
		return fmt.Errorf("%w: %w", driver.ErrTimeLimit, err)
	}
	return &driver.HandlerError{Err: err}
}

// park stores dead letters.
func (s *batchStore) park(ctx context.Context, dead []driver.DeadLetter) error {
	ctx, cancel := s.a.RequestCtx(ctx)
	defer cancel()
	if err := s.Park(ctx, dead); err != nil {
		return fmt.Errorf("store dead letters: %w", err)
	}
	return nil
}

// settle ends redrives. Those that are postponed stay due in the store, whose clock is not known
// here.
func (s *batchStore) settle(ctx context.Context, step driver.Step) error {
	if step.PostponeFor > 0 {
		for i := range step.FailedRedrives {
			s.postponed[step.FailedRedrives[i].ID] = s.a.Settings.Clock.Elapsed() + step.PostponeFor
		}
		return nil
	}
	ctx, cancel := s.a.RequestCtx(ctx)
	defer cancel()
	if err := s.Settle(ctx, step.Lease.Group, step.Redriven, step.FailedRedrives); err != nil {
		return fmt.Errorf("settle redrives: %w", err)
	}
	return nil
}

// Due implements [driver.TxStore].
func (s *batchStore) Due(ctx context.Context, group driver.Group, partition string, limit int) ([]driver.DeadLetter, error) {
	now := s.a.Settings.Clock.Elapsed()
	maps.DeleteFunc(s.postponed, func(_ int64, until time.Duration) bool { return until <= now })
	due, err := s.AtLeastOnceStore.Due(ctx, group, partition, limit+len(s.postponed))
	return slices.DeleteFunc(due, func(d driver.DeadLetter) bool { return s.postponed[d.ID] > 0 }), err
}

// save stores the checkpoint. One that is unchanged is stored for its fence, once in a lease.
func (s *batchStore) save(ctx context.Context) error {
	now := s.a.Settings.Clock.Elapsed()
	if s.checkpoint == s.done && now-s.stored < s.a.Settings.LeaseFor {
		return nil
	}
	ctx, cancel := s.a.RequestCtx(ctx)
	defer cancel()
	if err := s.Advance(ctx, s.a.Lease, s.incarnation, s.done, nil); err != nil {
		return err
	}
	s.checkpoint, s.stored = s.done, now
	if o := s.unreported; o.Kind != 0 {
		s.unreported = driver.Observation{}
		s.a.Observe(o)
	}
	return nil
}

// report reports steps that are done, when their checkpoint is stored: with those before them, if
// the answer to the request that stored it was lost.
func (s *batchStore) report(o driver.Observation) {
	if u := s.unreported; u.Kind != 0 {
		o.From, o.Events, o.Duration = u.From, o.Events+u.Events, o.Duration+u.Duration
		o.Filtered += u.Filtered
	}
	s.unreported = o
	if s.checkpoint == s.done {
		s.unreported = driver.Observation{}
		s.a.Observe(o)
	}
}

// RecordAttempt implements [driver.TxStore]. The record belongs to the event after the checkpoint.
func (s *batchStore) RecordAttempt(ctx context.Context, lease driver.Lease, at driver.Position, attempt driver.AttemptRecord) error {
	if s.checkpoint != s.done {
		if err := s.save(ctx); err != nil {
			return err
		}
	}
	return s.AtLeastOnceStore.RecordAttempt(ctx, lease, at, attempt)
}

// Leave implements [driver.TxStore].
func (s *batchStore) Leave(ctx context.Context, lease driver.Lease) error {
	var notSaved error
	if s.checkpoint != s.done {
		if notSaved = s.save(ctx); errors.Is(notSaved, driver.ErrFenced) {
			notSaved = nil
		}
	}
	return errors.Join(notSaved, s.AtLeastOnceStore.Leave(ctx, lease))
}

// ReadDedup implements [driver.TxStore]. There is none: see sluice.Batches.
func (*batchStore) ReadDedup(context.Context, driver.Group, string) ([]driver.DedupState, error) {
	return nil, nil
}

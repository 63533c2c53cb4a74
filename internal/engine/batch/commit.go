package batch

import (
	"context"
	"errors"
	"fmt"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine"
	"github.com/sluice-go/sluice/internal/engine/partition"
)

// errReclaimed means that a step was not done, and may be tried again from w.pos.
var errReclaimed = errors.New("checkpoint claimed again")

// transact applies events in one transaction. Those of the dead letters, which are
// in the same order, are not handled: their dead letters are stored instead.
func (w *worker[Tx]) transact(events []*driver.Event, dead []driver.DeadLetter) error {
	good := events
	if len(dead) > 0 {
		good = make([]*driver.Event, 0, len(events))
		rest := dead
		for _, e := range events {
			if len(rest) > 0 && rest[0].Event.Sequence == e.Sequence {
				rest = rest[1:]
			} else {
				good = append(good, e)
			}
		}
	}
	began := w.a.Settings.Clock.Elapsed()
	given, err := w.handled(good)
	if err != nil {
		return err
	}
	w.given = given
	b := w.batchOf(given)
	if err := w.advance(w.upTo(events[len(events)-1]), dead, len(events), b); err != nil {
		if errors.Is(err, errReclaimed) {
			w.limit.shrink(len(events))
		}
		return err
	}
	w.limit.adapt(len(events), w.a.Settings.Clock.Elapsed()-began)
	if n := len(b.Events); n > 0 {
		w.brake.release()
		w.policy.witnesses.applied(b.Events[n-1])
	}
	for i := range dead {
		d := &dead[i]
		w.a.Observe(driver.Observation{Kind: driver.KindParked, To: d.Event.Position(), Event: &d.Event, Attempt: d.Attempts, RetriedIn: w.a.RetriedIn(d), Err: errors.New(d.Error)})
	}
	if hook := w.a.Settings.Hooks.Batch; hook != nil {
		b.Events = events
		called := w.a.Delivery.Doing(partition.ActivityBatch, events[0].Sequence, len(events))
		w.a.Hook("batch", func() error { return hook(w.a.Work, b) })
		called.Done()
	}
	return nil
}

// advance moves the checkpoint past the given number of events, and past the
// duplicates among them.
func (w *worker[Tx]) advance(to driver.Position, dead []driver.DeadLetter, events int, b driver.Batch) error {
	step := driver.Step{Lease: w.a.Lease, From: w.pos, To: to, DeadLetters: dead}
	duplicates := w.dedup.AddTo(&step)
	if w.setBack() && events+duplicates > 0 {
		step.SettleIncarnation = w.a.Incarnation
	}
	began := w.a.Settings.Clock.Elapsed()
	if err := w.commit(step, b); err != nil {
		return err
	}
	w.dedup.Committed(&step)
	w.policy.report(driver.Observation{
		Kind: driver.KindCommitted, From: step.From, To: step.To, Events: events + duplicates, Duplicates: duplicates,
		Filtered: events - len(dead) - len(b.Events),
		Duration: w.a.Settings.Clock.Elapsed() - began, Lag: w.a.Lag.Measure(step.To),
	})
	return nil
}

// setBack reports whether events after the checkpoint have dead letters already: an operator has
// set it back.
func (w *worker[Tx]) setBack() bool { return w.pos.Sequence+1 < w.deadLettersBelow }

// skip moves the checkpoint past duplicates alone, or past numbers without an event.
func (w *worker[Tx]) skip(to driver.Position) error {
	for w.pos.Sequence < to.Sequence {
		err := w.advance(to, nil, 0, driver.Batch{})
		var failed *driver.HandlerError
		switch {
		case errors.As(err, &failed):
			return fmt.Errorf("move the checkpoint to %v, where no event is to be handled: %w", to, failed.Err)
		case err != nil && !errors.Is(err, errReclaimed):
			return err
		}
	}
	return nil
}

// batchOf returns events as the handler gets them.
func (w *worker[Tx]) batchOf(events []*driver.Event) driver.Batch {
	b := driver.Batch{Group: w.a.Topic.Group, Incarnation: w.a.Incarnation, Partition: w.a.Lease.Partition, Epoch: w.a.Lease.Epoch, Events: events}
	if len(events) == 1 {
		b.Attempts = w.attempts(events[0])
	}
	return b
}

// redrivenBatch returns the events of dead letters as the handler gets them: those that were not
// filtered out.
func (w *worker[Tx]) redrivenBatch(run []driver.DeadLetter, given []*driver.Event) driver.Batch {
	b := w.batchOf(given)
	b.Redriven, b.Incarnation, b.Attempts = true, run[0].Incarnation, 0
	for i := range run {
		b.Attempts = max(b.Attempts, run[i].Attempts)
	}
	return b
}

// handle returns the handler applied to a batch, nil for an empty batch.
func (w *worker[Tx]) handle(b driver.Batch) func(context.Context, Tx) error {
	if len(b.Events) == 0 {
		return nil
	}
	return func(ctx context.Context, tx Tx) error {
		ctx = driver.WithAttempt(ctx, w.a.Attempt(b.Attempts, b.Redriven))
		defer func() { w.a.Memory.Collect().Release() }()
		defer w.a.Delivery.Doing(partition.ActivityHandler, b.Events[0].Sequence, len(b.Events)).Done()
		return engine.GuardGoexit("handler", func() error { return w.handler(ctx, tx, b) })
	}
}

func (w *worker[Tx]) stepCommit(step driver.Step, b driver.Batch) error {
	defer w.a.Delivery.Doing(partition.ActivityCommit, 0, 0).Done()
	return w.store.Commit(w.a.Work, step, w.handle(b))
}

// commit runs one step with the handler applied to a batch, which may be empty. It
// returns nil if the step is known to be done, a [*driver.HandlerError] if an event is at
// fault or a redrive has failed, errReclaimed if the step is to be tried again, or the
// reason why the assignment must end.
func (w *worker[Tx]) commit(step driver.Step, b driver.Batch) error {
	err := w.stepCommit(step, b)
	var failed *driver.HandlerError
	switch {
	case err == nil:
		w.outage.Reset()
		w.pos = step.To
		if step.From != step.To {
			w.record.clear()
			w.claims = min(w.claims, 1)
		}
		return nil
	case errors.Is(err, driver.ErrHandlerEnded):
		return w.halt(b, err)
	case errors.As(err, &failed) && w.a.Work.Err() == nil:
		return w.handlerFailed(b, failed)
	case errors.Is(err, driver.ErrNotRun):
		return err
	}
	if err := w.storeFailed(step, b, err); err != nil {
		return err
	}
	if err := w.reclaim(); err != nil {
		return err
	}
	switch {
	case step.From != step.To && w.pos.Sequence == step.To.Sequence:
		// No other consumer moves the checkpoint in this epoch, so this step did.
		return nil
	case tookTooLong(b, err):
		return &driver.HandlerError{Err: err}
	case errors.Is(err, driver.ErrFenced) && w.pos.Sequence == step.From.Sequence:
		// Another transaction still holds the checkpoint, or the database has lost
		// a write that it had acknowledged.
		if err := w.a.Pause(w.outage.Next()); err != nil {
			return err
		}
	}
	return errReclaimed
}

// storeFailed reports that the store has not done a step, or does not know whether it
// has, and waits if that was an outage. It returns an error if the assignment must end.
func (w *worker[Tx]) storeFailed(step driver.Step, b driver.Batch, err error) error {
	fenced := errors.Is(err, driver.ErrFenced) && !errors.As(err, new(*driver.HandlerError))
	if fenced {
		// Observed also after the lease has ended: it shows that a late commit was
		// refused.
		w.a.Observe(driver.Observation{Kind: driver.KindFenced, From: step.From, To: step.To, Err: err})
	}
	switch {
	case w.a.Work.Err() != nil:
		return w.a.Ended()
	case fenced:
	case errors.Is(err, driver.ErrUnknown):
		w.a.Observe(driver.Observation{Kind: driver.KindUnknown, From: step.From, To: step.To, Err: err})
	case tookTooLong(b, err):
		// The event is at fault, if the database answers.
	case errors.Is(err, driver.ErrTimeLimit) && len(b.Events) > 1:
		w.failed(b, fmt.Errorf("commit: %w", err))
		// No wait: the next transaction is smaller.
	default:
		w.failed(b, fmt.Errorf("commit: %w", err))
		w.returned()
		return w.a.Pause(w.outage.Next())
	}
	return nil
}

// tookTooLong reports whether a time limit has passed while the handler had one event: no
// other can be the cause.
func tookTooLong(b driver.Batch, err error) bool {
	return len(b.Events) == 1 && errors.Is(err, driver.ErrTimeLimit)
}

// handlerFailed returns the handler's failure if an event is at fault, or if a dead letter
// was redriven. Otherwise the partition waits.
func (w *worker[Tx]) handlerFailed(b driver.Batch, failure *driver.HandlerError) error {
	if engine.FaultOf(failure.Err).Counts() {
		w.outage.Reset()
		return failure
	}
	if b.Redriven {
		return failure // the dead letter waits, and not the partition
	}
	w.returned()
	w.failed(b, failure)
	wait := engine.StatedWait(failure)
	if w.a.Progress.Ask(w.a.Settings.Clock.Elapsed(), wait); wait == 0 {
		wait = w.outage.Next()
	}
	if err := w.a.Pause(wait); err != nil {
		return err
	}
	return errReclaimed
}

// failed reports a failure that is no event's fault, and the events that wait.
func (w *worker[Tx]) failed(b driver.Batch, err error) {
	o := driver.Observation{Kind: driver.KindFailed, Events: len(b.Events), Err: err}
	switch n := len(b.Events); n {
	case 0:
	case 1:
		o.To = b.Events[0].Position()
		o.Err = fmt.Errorf("event %d: %w", o.To.Sequence, err)
	default:
		o.To = b.Events[n-1].Position()
		o.Err = fmt.Errorf("events %d to %d: %w", b.Events[0].Sequence, o.To.Sequence, err)
	}
	w.a.Observe(o)
}

// failureOf returns the failure of an event that an error of commit carries. If there is
// none, end is the reason why the assignment must end; nil if the step was done or is to
// be tried again.
func failureOf(err error) (failure *driver.HandlerError, end error) {
	switch {
	case errors.As(err, &failure):
		return failure, nil
	case errors.Is(err, errReclaimed):
		return nil, nil
	}
	return nil, err
}

// reclaim asks the database where the checkpoint stands, for as long as that
// takes. If the checkpoint has moved backwards the log must be read from there:
// then it returns errReopen.
func (w *worker[Tx]) reclaim() error {
	for {
		var cp driver.Checkpoint
		err := w.a.Request(w.a.Work, "claim checkpoint again", func(ctx context.Context) (err error) {
			cp, err = w.store.Claim(ctx, w.a.Lease, w.a.Incarnation)
			return err
		})
		switch {
		case err == nil:
			before := w.pos
			w.Claimed(cp)
			if w.pos.Sequence < before.Sequence {
				return partition.ErrReopen
			}
			return nil
		case w.a.Work.Err() != nil:
			return w.a.Ended()
		case errors.Is(err, driver.ErrFenced):
			return err
		}
		w.a.Failed(err)
		if err := w.a.Pause(w.outage.Next()); err != nil {
			return err
		}
	}
}

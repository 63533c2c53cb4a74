package sluice

import (
	"context"
	"errors"
	"fmt"

	"github.com/sluice-go/sluice/driver"
)

// errReclaimed means that a step was not done, and may be tried again from w.pos.
var errReclaimed = errors.New("checkpoint claimed again")

// transact applies events in one transaction. Those of the dead letters, which are
// in the same order, are not handled: their dead letters are stored instead.
func (w *batchWorker[Tx]) transact(events []*Event, dead []DeadLetter) error {
	good := events
	if len(dead) > 0 {
		good = make([]*Event, 0, len(events))
		rest := dead
		for _, e := range events {
			if len(rest) > 0 && rest[0].Event.Sequence == e.Sequence {
				rest = rest[1:]
			} else {
				good = append(good, e)
			}
		}
	}
	began := w.a.c.cfg.Clock.Elapsed()
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
	w.limit.adapt(len(events), w.a.c.cfg.Clock.Elapsed()-began)
	if n := len(b.Events); n > 0 {
		w.brake.release()
		w.policy.witnesses.applied(b.Events[n-1])
	}
	for _, d := range dead {
		w.a.observe(Observation{Kind: KindParked, To: d.Event.Position(), Attempt: d.Attempts, Err: errors.New(d.Error)})
	}
	if hook := w.a.c.cfg.Hooks.Batch; hook != nil {
		b.Events = events
		called := w.a.delivery.doing(activityBatch, events[0].Sequence, len(events))
		w.a.hook("batch", func() error { return hook(w.a.work, b) })
		called.done()
	}
	return nil
}

// advance moves the checkpoint past the given number of events, and past the
// duplicates among them.
func (w *batchWorker[Tx]) advance(to Position, dead []DeadLetter, events int, b Batch) error {
	step := driver.Step{Lease: w.a.lease, From: w.pos, To: to, DeadLetters: dead}
	duplicates := w.dedup.addTo(&step)
	if w.setBack() && events+duplicates > 0 {
		step.SettleIncarnation = w.a.incarnation
	}
	began := w.a.c.cfg.Clock.Elapsed()
	if err := w.commit(step, b); err != nil {
		return err
	}
	w.dedup.committed(&step)
	w.policy.report(Observation{
		Kind: KindCommitted, From: step.From, To: step.To, Events: events + duplicates, Duplicates: duplicates,
		Filtered: events - len(dead) - len(b.Events),
		Duration: w.a.c.cfg.Clock.Elapsed() - began, Lag: w.a.lag.behind(step.To),
	})
	return nil
}

// setBack reports whether events after the checkpoint have dead letters already: an operator has set
// it back.
func (w *batchWorker[Tx]) setBack() bool { return w.pos.Sequence+1 < w.deadLettersBelow }

// skip moves the checkpoint past duplicates alone, or past numbers without an event.
func (w *batchWorker[Tx]) skip(to Position) error {
	for w.pos.Sequence < to.Sequence {
		err := w.advance(to, nil, 0, Batch{})
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
func (w *batchWorker[Tx]) batchOf(events []*Event) Batch {
	return Batch{Group: w.a.topic.Group, Incarnation: w.a.incarnation, Partition: w.a.lease.Partition, Epoch: w.a.lease.Epoch, Events: events}
}

// handle returns the handler applied to a batch, nil for an empty batch.
func (w *batchWorker[Tx]) handle(b Batch) func(context.Context, Tx) error {
	if len(b.Events) == 0 {
		return nil
	}
	return func(ctx context.Context, tx Tx) error {
		defer func() { w.a.memory.Collect().Release() }()
		defer w.a.delivery.doing(activityHandler, b.Events[0].Sequence, len(b.Events)).done()
		return guardGoexit("handler", func() error { return w.handler(ctx, tx, b) })
	}
}

func (w *batchWorker[Tx]) stepCommit(step driver.Step, b Batch) error {
	defer w.a.delivery.doing(activityCommit, 0, 0).done()
	return w.store.Commit(w.a.work, step, w.handle(b))
}

// commit runs one step with the handler applied to a batch, which may be empty. It
// returns nil if the step is known to be done, a [*driver.HandlerError] if an event is at
// fault or a redrive has failed, errReclaimed if the step is to be tried again, or the
// reason why the assignment must end.
func (w *batchWorker[Tx]) commit(step driver.Step, b Batch) error {
	err := w.stepCommit(step, b)
	var failed *driver.HandlerError
	switch {
	case err == nil:
		w.outage.Reset()
		w.pos = step.To
		if step.From != step.To {
			w.record.clear()
		}
		return nil
	case errors.Is(err, driver.ErrHandlerEnded):
		return w.halt(b, err)
	case errors.As(err, &failed) && w.a.work.Err() == nil:
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
	case errors.Is(err, ErrFenced) && w.pos.Sequence == step.From.Sequence:
		// Another transaction still holds the checkpoint, or the database has lost
		// a write that it had acknowledged.
		if err := w.a.pause(w.outage.Next()); err != nil {
			return err
		}
	}
	return errReclaimed
}

// storeFailed reports that the store has not done a step, or does not know whether it
// has, and waits if that was an outage. It returns an error if the assignment must end.
func (w *batchWorker[Tx]) storeFailed(step driver.Step, b Batch, err error) error {
	fenced := errors.Is(err, ErrFenced) && !errors.As(err, new(*driver.HandlerError))
	if fenced {
		// Observed also after the lease has ended: it shows that a late commit was
		// refused.
		w.a.observe(Observation{Kind: KindFenced, From: step.From, To: step.To, Err: err})
	}
	switch {
	case w.a.work.Err() != nil:
		return w.a.ended()
	case fenced:
	case errors.Is(err, ErrUnknown):
		w.a.observe(Observation{Kind: KindUnknown, From: step.From, To: step.To, Err: err})
	case tookTooLong(b, err):
		// The event is at fault, if the database answers.
	case errors.Is(err, driver.ErrTimeLimit) && len(b.Events) > 1:
		w.failed(b, fmt.Errorf("commit: %w", err))
		// No wait: the next transaction is smaller.
	default:
		w.failed(b, fmt.Errorf("commit: %w", err))
		w.returned()
		return w.a.pause(w.outage.Next())
	}
	return nil
}

// tookTooLong reports whether a time limit has passed while the handler had one event: no
// other can be the cause.
func tookTooLong(b Batch, err error) bool {
	return len(b.Events) == 1 && errors.Is(err, driver.ErrTimeLimit)
}

// handlerFailed returns the handler's failure if an event is at fault, or if a dead letter
// was redriven. Otherwise the partition waits.
func (w *batchWorker[Tx]) handlerFailed(b Batch, failure *driver.HandlerError) error {
	if faultOf(failure.Err).counts() {
		w.outage.Reset()
		return failure
	}
	if b.Redriven {
		return failure // the dead letter waits, and not the partition
	}
	w.returned()
	w.failed(b, failure)
	wait := statedWait(failure)
	if w.a.progress.ask(w.a.c.cfg.Clock.Elapsed(), wait); wait == 0 {
		wait = w.outage.Next()
	}
	if err := w.a.pause(wait); err != nil {
		return err
	}
	return errReclaimed
}

// failed reports a failure that is no event's fault, and the events that wait.
func (w *batchWorker[Tx]) failed(b Batch, err error) {
	o := Observation{Kind: KindFailed, Events: len(b.Events), Err: err}
	switch n := len(b.Events); n {
	case 0:
	case 1:
		o.To = b.Events[0].Position()
		o.Err = fmt.Errorf("event %d: %w", o.To.Sequence, err)
	default:
		o.To = b.Events[n-1].Position()
		o.Err = fmt.Errorf("events %d to %d: %w", b.Events[0].Sequence, o.To.Sequence, err)
	}
	w.a.observe(o)
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

// batchLimit returns how many events the next transaction may take.
func (w *batchWorker[Tx]) batchLimit() int {
	if w.pos.Sequence < w.suspectUpTo || w.suspects > 0 {
		return 1
	}
	return w.limit.now
}

// reclaim asks the database where the checkpoint stands, for as long as that
// takes. If the checkpoint has moved backwards the log must be read from there:
// then it returns errReopen.
func (w *batchWorker[Tx]) reclaim() error {
	for {
		var cp Checkpoint
		err := w.a.request(w.a.work, "claim checkpoint again", func(ctx context.Context) (err error) {
			cp, err = w.store.Claim(ctx, w.a.lease, w.a.incarnation)
			return err
		})
		switch {
		case err == nil:
			before := w.pos
			w.claimed(cp)
			if w.pos.Sequence < before.Sequence {
				return errReopen
			}
			return nil
		case w.a.work.Err() != nil:
			return w.a.ended()
		case errors.Is(err, ErrFenced):
			return err
		}
		w.a.failed(err)
		if err := w.a.pause(w.outage.Next()); err != nil {
			return err
		}
	}
}

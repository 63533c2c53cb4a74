package sluice

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/sluice-go/sluice/driver"
)

// errReclaimed means that a step was not done and that the checkpoint was claimed
// again: the caller continues from w.pos.
var errReclaimed = errors.New("checkpoint claimed again")

// apply brings events to their end, in order: each is committed or becomes a dead
// letter. If all goes well that takes one transaction. Otherwise apply splits the
// batch around the events to blame, which the handler names or halving finds.
func (w *transactionalWorker[Tx]) apply(events []*Event) error {
	for {
		events = w.notDone(events)
		switch len(events) {
		case 0:
			return nil
		case 1:
			return w.applyOne(events[0], nil)
		}
		err := w.transact(events, nil)
		var failure *driver.HandlerError
		switch {
		case err == nil:
			return nil
		case errors.Is(err, errReclaimed):
			continue
		case !errors.As(err, &failure):
			return err
		}

		culprits := blamed(failure.Err, len(events))
		if len(culprits) == 0 {
			half := len(events) / 2
			if err := w.apply(events[:half]); err != nil {
				return err
			}
			events = events[half:]
			continue
		}
		if dead, n := w.finalFailures(events, culprits); dead != nil {
			err := w.transact(events[:n], dead)
			if err == nil || errors.Is(err, errReclaimed) {
				continue
			}
			if !errors.As(err, &failure) {
				return err
			}
		}
		first := culprits[0]
		if err := w.apply(events[:first.Index]); err != nil {
			return err
		}
		if err := w.applyOne(events[first.Index], first.Err); err != nil {
			return err
		}
	}
}

// finalFailures makes dead letters of the culprits if none of them gets another
// attempt. It returns how many events they and the events before them are.
func (w *transactionalWorker[Tx]) finalFailures(events []*Event, culprits []*EventError) (dead []DeadLetter, n int) {
	for _, c := range culprits {
		e := events[c.Index]
		attempt := w.attempts(e) + 1
		if !w.a.isFinal(c.Err, attempt) {
			return nil, 0
		}
		dead = append(dead, w.a.newDeadLetter(e, c.Err, attempt))
		n = c.Index + 1
	}
	return dead, n
}

// applyOne brings one event to its end: it is committed, or becomes a dead letter
// after its attempts. A failure that is already known counts as an attempt.
func (w *transactionalWorker[Tx]) applyOne(e *Event, failure error) error {
	attempt := w.attempts(e)
	if failure != nil {
		attempt++
	}
	wait := w.a.c.backoff(w.a.rand)
	for !w.done(e) {
		if failure == nil {
			failure = w.killer(e)
		}
		if failure == nil {
			err := w.try(e)
			var failed *driver.HandlerError
			switch {
			case err == nil:
				return nil
			case errors.Is(err, errReclaimed):
				continue
			case !errors.As(err, &failed):
				return err
			}
			failure = failed.Err
			attempt = w.attempts(e) + 1
		}
		var each *EventError
		if errors.As(failure, &each) {
			failure = each.Err
		}
		if w.a.isFinal(failure, attempt) {
			err := w.transact([]*Event{e}, []DeadLetter{w.a.newDeadLetter(e, failure, attempt+w.deaths(e))})
			var failed *driver.HandlerError
			switch {
			case errors.Is(err, errReclaimed):
				continue
			case errors.As(err, &failed):
				return fmt.Errorf("store dead letter: %w", failed.Err)
			}
			return err
		}
		if err := w.recordFailure(e, attempt, failure); err != nil {
			if errors.Is(err, errReclaimed) {
				continue
			}
			return err
		}
		w.a.observe(Observation{Kind: KindRetried, To: e.Position(), Attempt: attempt, Err: failure})
		if err := w.a.pause(wait.Next()); err != nil {
			return err
		}
		failure = nil
	}
	return nil
}

// transact applies events in one transaction. Those of the dead letters, which are
// in the same order, are not handled: their dead letters are stored instead.
func (w *transactionalWorker[Tx]) transact(events []*Event, dead []DeadLetter) error {
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
	b := Batch{Group: w.a.topic.Group, Partition: w.a.lease.Partition, Epoch: w.a.lease.Epoch, Events: good}
	if err := w.advance(w.dedup.after(events[len(events)-1]), dead, len(events), w.handle(b)); err != nil {
		return err
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
func (w *transactionalWorker[Tx]) advance(to Position, dead []DeadLetter, events int, fn func(context.Context, Tx) error) error {
	step := driver.Step{Lease: w.a.lease, From: w.pos, To: to, DeadLetters: dead}
	if w.pos.Sequence+1 < w.deadLettersBelow {
		// The checkpoint was set back: events after it have dead letters already.
		step.SettleIncarnation = w.a.incarnation
	}
	duplicates := w.dedup.addTo(&step)
	began := w.a.c.cfg.Clock.Elapsed()
	if err := w.commit(step, fn); err != nil {
		return err
	}
	w.dedup.committed(&step)
	w.a.observe(Observation{
		Kind: KindCommitted, From: step.From, To: step.To, Events: events + duplicates, Duplicates: duplicates,
		Duration: w.a.c.cfg.Clock.Elapsed() - began, Lag: w.a.lag.behind(step.To),
	})
	return nil
}

// skip moves the checkpoint past duplicates alone.
func (w *transactionalWorker[Tx]) skip(to Position) error {
	for w.pos.Sequence < to.Sequence {
		err := w.advance(to, nil, 0, nil)
		var failed *driver.HandlerError
		switch {
		case errors.As(err, &failed):
			return fmt.Errorf("skip duplicates: %w", failed.Err)
		case err != nil && !errors.Is(err, errReclaimed):
			return err
		}
	}
	return nil
}

// handle returns the handler applied to a batch, nil for an empty batch.
func (w *transactionalWorker[Tx]) handle(b Batch) func(context.Context, Tx) error {
	if len(b.Events) == 0 {
		return nil
	}
	return func(ctx context.Context, tx Tx) error {
		defer w.a.delivery.doing(activityHandler, b.Events[0].Sequence, len(b.Events)).done()
		return guardGoexit("handler", func() error { return w.handler(ctx, tx, b) })
	}
}

// commit runs one step. It returns nil if the step is known to be done, a
// [*driver.HandlerError], errReclaimed if it is not done and the checkpoint was
// claimed again, or the reason why the assignment must end.
func (w *transactionalWorker[Tx]) commit(step driver.Step, fn func(context.Context, Tx) error) error {
	committing := w.a.delivery.doing(activityCommit, 0, 0)
	err := w.store.Commit(w.a.work, step, fn)
	committing.done()
	var failed *driver.HandlerError
	switch {
	case err == nil:
		w.outage.Reset()
		w.pos = step.To
		if step.From != step.To {
			w.record.clear()
		}
		return nil
	case errors.As(err, &failed) && w.a.work.Err() == nil:
		w.outage.Reset()
		return failed
	case errors.Is(err, ErrFenced) && failed == nil:
		// Observed also after the lease has ended: it shows that a late commit was
		// refused.
		w.a.observe(Observation{Kind: KindFenced, From: step.From, To: step.To, Err: err})
		if w.a.work.Err() != nil {
			return w.a.ended()
		}
	case w.a.work.Err() != nil:
		return w.a.ended()
	case errors.Is(err, ErrUnknown):
		w.a.observe(Observation{Kind: KindUnknown, From: step.From, To: step.To, Err: err})
	default:
		w.a.failed(fmt.Errorf("commit: %w", err))
		if err := w.a.pause(w.outage.Next()); err != nil {
			return err
		}
	}
	if err := w.reclaim(); err != nil {
		return err
	}
	switch {
	case step.From != step.To && w.pos.Sequence == step.To.Sequence:
		// No other consumer moves the checkpoint in this epoch, so this step did.
		return nil
	case errors.Is(err, ErrFenced) && w.pos.Sequence == step.From.Sequence:
		// Another transaction still holds the checkpoint, or the database has lost
		// a write that it had acknowledged.
		if err := w.a.pause(w.outage.Next()); err != nil {
			return err
		}
	}
	return errReclaimed
}

// reclaim asks the database where the checkpoint stands, for as long as that
// takes. If the checkpoint has moved backwards the log must be read from there:
// then it returns errReopen.
func (w *transactionalWorker[Tx]) reclaim() error {
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

// done reports whether an event lies before the checkpoint.
func (w *transactionalWorker[Tx]) done(e *Event) bool { return e.Sequence <= w.pos.Sequence }

// notDone returns the events without those that are done.
func (w *transactionalWorker[Tx]) notDone(events []*Event) []*Event {
	for len(events) > 0 && w.done(events[0]) {
		events = events[1:]
	}
	return events
}

// blamed returns the events that a handler's error blames, each once, in order.
// An index outside the batch is ignored.
func blamed(err error, n int) []*EventError {
	var list []*EventError
	var walk func(error)
	walk = func(err error) {
		switch err := err.(type) {
		case nil:
		case *EventError:
			if err.Index >= 0 && err.Index < n && err.Err != nil {
				list = append(list, err)
			}
		case interface{ Unwrap() error }:
			walk(err.Unwrap())
		case interface{ Unwrap() []error }:
			for _, e := range err.Unwrap() {
				walk(e)
			}
		}
	}
	walk(err)
	slices.SortStableFunc(list, func(a, b *EventError) int { return cmp.Compare(a.Index, b.Index) })
	return slices.CompactFunc(list, func(a, b *EventError) bool { return a.Index == b.Index })
}

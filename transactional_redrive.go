package sluice

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice/driver"
)

// redrivePage is how many dead letters on redrive are looked up at a time.
const redrivePage = 100

// redriveTimer fires when it is time to look for redrives.
type redriveTimer struct{ due atomic.Bool }

// run fires the timer at an interval until ctx ends, and wakes the delivery.
func (r *redriveTimer) run(ctx context.Context, clock Clock, every time.Duration, delivery chan struct{}) {
	for clock.Sleep(ctx, every) == nil {
		r.due.Store(true)
		wake(delivery)
	}
}

// fired reports whether the timer has fired since the last call.
func (r *redriveTimer) fired() bool { return r.due.Swap(false) }

func (d *transactional[Tx]) redriveDue(ctx context.Context, group Group, partition string) (bool, error) {
	due, err := d.store.Due(ctx, group, partition, 1)
	return len(due) > 0, err
}

func (d *transactional[Tx]) redrive(a *assignment) (applied, failed int, err error) {
	w := d.newWorker(a)
	defer a.leave(d.store)
	err = errReopen
	for a.idle.Err() == nil {
		if errors.Is(err, errReopen) {
			err = a.claim(w, d.store)
		} else {
			var more bool
			err = a.request(a.idle, "look for redrives", func(ctx context.Context) (err error) {
				more, err = d.redriveDue(ctx, a.topic.Group, a.lease.Partition)
				return err
			})
			if err == nil && !more {
				return w.redriven, w.redriveFailures, nil
			}
			before := w.redriven + w.redriveFailures
			if err == nil {
				err = w.runRedrives(true)
			}
			if err == nil && w.redriven+w.redriveFailures == before {
				err = a.pause(a.c.cfg.RetryMin)
			}
		}
		if err != nil && !errors.Is(err, errReopen) {
			return w.redriven, w.redriveFailures, err
		}
	}
	return w.redriven, w.redriveFailures, a.ended()
}

// runRedrives runs the redrives that are due. It runs between two batches, so
// never beside the handler. A dead letter without a body needs the log: unless the
// log may be read now, runRedrives returns errReopen.
func (w *transactionalWorker[Tx]) runRedrives(mayRead bool) error {
	var due []DeadLetter
	err := w.a.request(w.a.idle, "look for redrives", func(ctx context.Context) (err error) {
		due, err = w.store.Due(ctx, w.a.topic.Group, w.a.lease.Partition, redrivePage)
		return err
	})
	if err != nil {
		if w.a.idle.Err() != nil {
			return w.a.ended()
		}
		w.a.failed(err)
		return nil
	}
	for i := range due {
		if w.a.idle.Err() != nil {
			return w.a.ended()
		}
		if !due[i].HasBody && !mayRead {
			return errReopen
		}
		err := w.redriveOne(&due[i])
		if err != nil && !errors.Is(err, errReclaimed) {
			return err
		}
	}
	return nil
}

// redriveOne applies one dead letter and removes it, in one transaction. If the
// handler fails, it stores the new error instead.
func (w *transactionalWorker[Tx]) redriveOne(d *DeadLetter) error {
	e := d.Event
	if !d.HasBody {
		found, err := w.a.reread(d)
		if err != nil {
			if w.a.idle.Err() != nil {
				return w.a.ended()
			}
			if needsOperator(err) {
				return w.storeRedriveFailure(d, err)
			}
			return err
		}
		e = *found
	}
	began := w.a.c.cfg.Clock.Elapsed()
	attempt := w.attempts(&e)
	if attempt >= deathsAllowed {
		return w.storeRedriveFailure(d, fmt.Errorf("the process ended %d times while it redrove this event", attempt))
	}
	// The attempt is recorded before it starts: a redrive that kills the process
	// must not do so for ever. It does not replace the record of another event:
	// then only a command runs redrives, and its death can be seen.
	if !w.attemptsOnRecord() {
		if err := w.recordAttempt(driver.AttemptRecord{Sequence: e.Sequence, Attempts: attempt + 1}); err != nil {
			return err
		}
	}
	b := Batch{Group: w.a.topic.Group, Partition: w.a.lease.Partition, Epoch: w.a.lease.Epoch, Redriven: true, Events: []*Event{&e}}
	err := w.commit(driver.Step{Lease: w.a.lease, From: w.pos, To: w.pos, Redriven: []int64{d.ID}}, w.handle(b))
	var failed *driver.HandlerError
	switch {
	case err == nil:
		w.clearAttempt(e.Sequence)
		w.redriven++
		w.a.observe(Observation{Kind: KindRedriven, To: e.Position(), Events: 1, Duration: w.a.c.cfg.Clock.Elapsed() - began})
		return nil
	case errors.As(err, &failed):
		var each *EventError
		if errors.As(failed.Err, &each) {
			return w.storeRedriveFailure(d, each.Err)
		}
		return w.storeRedriveFailure(d, failed.Err)
	}
	return err
}

// storeRedriveFailure stores a dead letter whose redrive has failed.
func (w *transactionalWorker[Tx]) storeRedriveFailure(d *DeadLetter, failure error) error {
	w.a.redriveFailed(d, failure)
	err := w.commit(driver.Step{Lease: w.a.lease, From: w.pos, To: w.pos, FailedRedrives: []DeadLetter{*d}}, nil)
	if err != nil {
		return err
	}
	w.clearAttempt(d.Event.Sequence)
	w.redriveFailures++
	w.a.observe(Observation{Kind: KindRedriveFailed, To: d.Event.Position(), Attempt: d.Attempts, Err: failure})
	return nil
}

// clearAttempt clears the attempt record of a redrive.
func (w *transactionalWorker[Tx]) clearAttempt(sequence int64) {
	if w.attempt.Sequence == sequence {
		w.attempt = driver.AttemptRecord{}
	}
}

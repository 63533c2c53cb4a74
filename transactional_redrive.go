package sluice

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice/driver"
)

// redrivePage is how many dead letters on redrive are looked up at a time.
const redrivePage = 100

// redriveFor is how long a round of redrives may keep the partition's events waiting:
// the redrive that is in progress then is the round's last. The events after the
// checkpoint get as much time before the next round. If they had more, because a batch takes long,
// the next round has as much more.
const redriveFor = time.Second

// redrivePace divides the worker's time between redrives and the events after the
// checkpoint.
type redrivePace struct {
	due       bool          // it is time to look for redrives
	round     time.Duration // how long the last round took
	restUntil time.Duration // but not before this, by Clock.Elapsed, while there are events
	after     int64         // ID of the dead letter that ended the last round; 0: none

	batch time.Duration // how long the newest batch took that redrives waited for, until it is counted
	owed  time.Duration // how much longer than theirs the events' last turn was: the next round gets it
}

// rest gives the events after the checkpoint as much time as the last round took.
func (p *redrivePace) rest(now time.Duration) { p.restUntil = now + p.round }

// begin begins a round. A batch that began within the events' turn may have ended long after it. most
// bounds what the round is given for that.
func (p *redrivePace) begin(now, most time.Duration) {
	p.owed = min(p.owed+max(0, min(now-p.restUntil, p.batch)), most)
	p.batch = 0
}

// end ends a round that took a time, and gives the events as much, but for what was owed to it.
func (p *redrivePace) end(now, took time.Duration) {
	p.round = max(0, took-p.owed)
	p.owed = max(0, p.owed-took)
	p.rest(now)
}

// forgive forgets what is owed: one of the two does not wait.
func (p *redrivePace) forgive() { p.batch, p.owed = 0, 0 }

// interval fires at regular intervals.
type interval struct{ due atomic.Bool }

// run fires until ctx ends, and wakes the delivery.
func (i *interval) run(ctx context.Context, clock Clock, every time.Duration, delivery chan struct{}) {
	for clock.Sleep(ctx, every) == nil {
		i.due.Store(true)
		wake(delivery)
	}
}

// fired reports whether it has fired since the last call.
func (i *interval) fired() bool { return i.due.Swap(false) }

// redriveAll runs the redrives that are due, and nothing else.
func (w *batchWorker[Tx]) redriveAll() (applied, failed int, err error) {
	a := w.a
	defer a.leave(w.store)
	defer w.takeBack()
	wait := a.c.backoff(a.rand)
	err = errReopen
	for a.idle.Err() == nil {
		if errors.Is(err, errReopen) {
			err = a.claim(w, w.store)
		} else {
			var due []DeadLetter
			var ahead int
			due, ahead, err = w.dueRedrives()
			if err == nil && len(due) == 0 {
				if ahead > 0 {
					a.failed(fmt.Errorf("%d dead letters are not redriven: the checkpoint, at %v, is before their events, so the next consumer handles the events again; start one", ahead, w.pos))
				}
				return w.redriven, w.redriveFailures, nil
			}
			before := w.redriven + w.redriveFailures
			if err == nil {
				err = w.redriveRound(due, true)
			}
			if w.redriven+w.redriveFailures > before {
				wait.Reset()
			} else if err == nil {
				err = a.pause(wait.Next())
			}
		}
		if err != nil && !errors.Is(err, errReopen) {
			return w.redriven, w.redriveFailures, err
		}
	}
	return w.redriven, w.redriveFailures, a.ended()
}

// dueRedrives returns dead letters whose redrive is due. Those of events after the
// checkpoint are only counted: the events are read again, and their steps settle the
// dead letters.
func (w *batchWorker[Tx]) dueRedrives() (due []DeadLetter, ahead int, err error) {
	err = w.a.request(w.a.idle, "look for redrives", func(ctx context.Context) error {
		if may, err := w.a.c.redrives.mayBeDue(ctx, w.a); !may {
			return err
		}
		var err error
		due, err = w.store.Due(ctx, w.a.topic.Group, w.a.lease.Partition, redrivePage)
		return err
	})
	all := len(due)
	due = slices.DeleteFunc(due, func(d DeadLetter) bool {
		return d.Incarnation == w.a.incarnation && d.Event.Sequence > w.pos.Sequence
	})
	return due, all - len(due), err
}

// runRedrives looks for redrives and runs a round of them. It runs between two
// batches, so never beside the handler.
func (w *batchWorker[Tx]) runRedrives(mayRead bool) error {
	w.redrives.due = false
	due, _, err := w.dueRedrives()
	if err != nil {
		if w.a.idle.Err() != nil {
			return w.a.ended()
		}
		if !errors.Is(err, errAskedTogether) {
			w.a.failed(err)
		}
		return nil
	}
	if len(due) == 0 {
		w.redrives.forgive()
		return nil
	}
	return w.redriveRound(due, mayRead)
}

// redriveRound runs redrives until there are no more, one meets an outage, or the time
// of a round is over. A dead letter without a body needs the log: unless the log may be
// read now, redriveRound returns errReopen.
func (w *batchWorker[Tx]) redriveRound(due []DeadLetter, mayRead bool) error {
	elapsed := w.a.c.cfg.Clock.Elapsed
	began := elapsed()
	pace := &w.redrives
	pace.begin(began, w.limit.long)
	length := redriveFor + pace.owed
	defer func() { pace.end(elapsed(), elapsed()-began) }()
	// A dead letter that always meets an outage must not keep the others from their turn.
	if i := slices.IndexFunc(due, func(d DeadLetter) bool { return d.ID == w.redrives.after }); i >= 0 {
		due = slices.Concat(due[i+1:], due[:i+1])
	}
	// One that may have ended the process is first: the record of another would replace its own.
	if i := slices.IndexFunc(due, func(d DeadLetter) bool { return d.ID == w.record.known.DeadLetter }); i >= 0 {
		due = slices.Concat(due[i:i+1], due[:i], due[i+1:])
	}
	for i := range due {
		if w.a.idle.Err() != nil {
			return w.a.ended()
		}
		if elapsed()-began >= length {
			w.redrives.due = true
			break
		}
		if !due[i].HasBody && !mayRead {
			return errReopen
		}
		err := w.redriveOne(&due[i])
		if errors.Is(err, errReclaimed) {
			w.redrives.after = due[i].ID
			return nil
		}
		if err != nil {
			return err
		}
	}
	w.redrives.after = 0
	w.returned()
	return nil
}

// redriveOne applies one dead letter and removes it, in one transaction. If the
// handler fails, it stores the new error instead. After an outage it returns
// errReclaimed: the round ends.
func (w *batchWorker[Tx]) redriveOne(d *DeadLetter) error {
	e := d.Event
	if !d.HasBody {
		found, err := w.a.reread(d)
		switch {
		case err == nil:
			e = *found
		case w.a.idle.Err() != nil:
			return w.a.ended()
		case needsOperator(err):
			return w.storeRedriveFailure(d, err)
		case errors.Is(err, ErrFenced), errors.Is(err, ErrStolen):
			return err
		default:
			w.a.failed(fmt.Errorf("redrive dead letter %d: %w", d.ID, err))
			return errReclaimed
		}
	}
	began := w.a.c.cfg.Clock.Elapsed()
	if deaths := w.record.of(e.Sequence, d.ID).Unreturned; deaths >= deathsAllowed {
		return w.storeRedriveFailure(d, fmt.Errorf("the process ended %d times while it redrove this event", deaths))
	}
	// The attempt is recorded before it starts: a redrive that kills the process
	// must not do so for ever. It does not replace the record of another event:
	// then only a command runs redrives, and its death can be seen.
	if !w.attemptsOnRecord() {
		if err := w.recordStart(e.Sequence, d.ID); err != nil {
			return err
		}
	}
	given, err := w.handled([]*Event{&e})
	if err != nil {
		return err
	}
	b := w.batchOf(given)
	b.Redriven, b.Incarnation = true, d.Incarnation
	err = w.commit(driver.Step{Lease: w.a.lease, From: w.pos, To: w.pos, Redriven: []int64{d.ID}}, b)
	var failed *driver.HandlerError
	switch {
	case err == nil:
		w.clearRedrive(d)
		w.redriven++
		w.a.observe(Observation{Kind: KindRedriven, To: e.Position(), Events: 1, Duration: w.a.c.cfg.Clock.Elapsed() - began})
		return nil
	case errors.As(err, &failed):
		failure := failed.Err
		var each *EventError
		if errors.As(failure, &each) {
			failure = each.Err
		}
		own := faultOf(failure).counts()
		if own && len(failed.Statements) > 0 {
			if own, err = w.isOwn(&e, failed); err != nil {
				return err
			}
		}
		if own {
			return w.storeRedriveFailure(d, failure)
		}
		return w.postpone(d, failure)
	}
	return err
}

// isOwn reports whether a redrive has failed by its event's own fault, though the database refused a
// statement for a reason that may be every event's: an event that waits runs that statement.
func (w *batchWorker[Tx]) isOwn(e *Event, failure *driver.HandlerError) (bool, error) {
	t := &trial{event: e}
	t.fail(failure, 1)
	found, _, err := w.findWitness(t)
	return found, err
}

// postpone has a dead letter redriven later, because what its handler needs is not
// available. If that is nothing of this event's own, the round ends.
func (w *batchWorker[Tx]) postpone(d *DeadLetter, failure error) error {
	wait := cmp.Or(statedWait(failure), w.a.c.cfg.RetryMax)
	w.a.failed(fmt.Errorf("redrive of event %d is postponed by %v: %w", d.Event.Sequence, wait, failure))
	d.Status, d.Error = StatusRedrive, errorText(failure)
	if err := w.commit(driver.Step{Lease: w.a.lease, From: w.pos, To: w.pos, FailedRedrives: []DeadLetter{*d}, PostponeFor: wait}, Batch{}); err != nil {
		return err
	}
	w.clearRedrive(d)
	w.returned()
	if faultOf(failure) != faultRetry {
		return errReclaimed
	}
	return nil
}

// storeRedriveFailure stores a dead letter whose redrive has failed.
func (w *batchWorker[Tx]) storeRedriveFailure(d *DeadLetter, failure error) error {
	w.a.redriveFailed(d, failure)
	err := w.commit(driver.Step{Lease: w.a.lease, From: w.pos, To: w.pos, FailedRedrives: []DeadLetter{*d}}, Batch{})
	if err != nil {
		return err
	}
	w.clearRedrive(d)
	w.redriveFailures++
	w.a.observe(Observation{Kind: KindRedriveFailed, To: d.Event.Position(), Attempt: d.Attempts, Err: failure})
	return nil
}

// clearRedrive forgets the attempts at a dead letter whose redrive has ended.
func (w *batchWorker[Tx]) clearRedrive(d *DeadLetter) {
	if w.record.known.DeadLetter == d.ID {
		w.record.known = driver.AttemptRecord{}
	}
}

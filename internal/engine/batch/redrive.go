package batch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine"
	"github.com/sluice-go/sluice/internal/engine/partition"
)

// redrivePace divides the worker's time between redrives and the events after the
// checkpoint.
type redrivePace struct {
	due       bool          // it is time to look for redrives
	round     time.Duration // how long the last round took
	restUntil time.Duration // but not before this, by Clock.Elapsed, while there are events
	lastID    int64         // ID of the dead letter that ended the last round; 0: none
	together  int           // how many are redriven in one step at most
	alone     int           // so many next ones have a step each, because one may have ended the process

	page    int   // so many were looked up last at most
	charged int64 // bytes for those that were found

	batch time.Duration // how long the newest batch took that redrives waited for, until it is counted
	owed  time.Duration // how much longer than theirs the events' last turn was: the next round gets it
}

// rest gives the events after the checkpoint as much time as the last round took.
func (p *redrivePace) rest(now time.Duration) { p.restUntil = now + p.round }

// begin begins a round. A batch that began within the events' turn may have ended long after it.
// most bounds what the round is given for that.
func (p *redrivePace) begin(now, most time.Duration) {
	p.owed = min(p.owed+max(0, min(now-p.restUntil, p.batch)), most)
	p.batch = 0
}

// end ends a round. The events get as much time as it took, less what was owed to the round.
func (p *redrivePace) end(now, took time.Duration) {
	p.round = max(0, took-p.owed)
	p.owed = max(0, p.owed-took)
	p.rest(now)
}

// forgive forgets what is owed: one of the two does not wait.
func (p *redrivePace) forgive() { p.batch, p.owed = 0, 0 }

// redriveAll runs the redrives that are due, and nothing else.
func (w *worker[Tx]) redriveAll() (applied, failed int, err error) {
	a := w.a
	defer a.Leave(w.store)
	defer w.takeBack()
	defer w.releaseRedrives()
	wait := a.Settings.Backoff(a.Rand)
	err = partition.ErrReopen
	for a.Idle.Err() == nil {
		if errors.Is(err, partition.ErrReopen) {
			err = a.Claim(w, w.store)
		} else {
			var due []driver.DeadLetter
			var ahead int
			w.releaseRedrives()
			due, ahead, err = w.dueRedrives()
			if err == nil && len(due) == 0 {
				if ahead > 0 {
					a.Failed(fmt.Errorf("%d dead letters are not redriven: the checkpoint, at %v, is before their events, so the next consumer handles the events again; start one", ahead, w.pos))
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
				err = a.Pause(wait.Next())
			}
		}
		if err != nil && !errors.Is(err, partition.ErrReopen) {
			return w.redriven, w.redriveFailures, err
		}
	}
	return w.redriven, w.redriveFailures, a.Ended()
}

// dueRedrives returns dead letters whose redrive is due. Those of events after the
// checkpoint are only counted: the events are read again, and their steps settle the
// dead letters. What is found is charged until releaseRedrives.
func (w *worker[Tx]) dueRedrives() (due []driver.DeadLetter, ahead int, err error) {
	err = w.a.Request(w.a.Idle, "look for redrives", func(ctx context.Context) error {
		if may, err := w.a.Host.RedrivesDue(ctx, w.a); !may {
			return err
		}
		page, estimate := w.a.ChargeRedrives(engine.RedrivePage)
		var err error
		due, err = w.store.Due(ctx, w.a.Topic.Group, w.a.Lease.Partition, page)
		w.redrives.page, w.redrives.charged = page, partition.ChargeOfRedrives(due)
		w.a.Memory.RedrivenAccount().Settle(estimate, w.redrives.charged)
		return err
	})
	all := len(due)
	due = slices.DeleteFunc(due, func(d driver.DeadLetter) bool {
		return d.Incarnation == w.a.Incarnation && d.Event.Sequence > w.pos.Sequence
	})
	return due, all - len(due), err
}

// releaseRedrives ends the charge for dead letters that were found.
func (w *worker[Tx]) releaseRedrives() {
	w.a.Memory.RedrivenAccount().Give(w.redrives.charged)
	w.redrives.charged = 0
}

// runRedrives looks for redrives and runs a round of them. It runs between two
// batches, so never beside the handler.
func (w *worker[Tx]) runRedrives(mayRead bool) error {
	w.redrives.due = false
	defer w.releaseRedrives()
	due, _, err := w.dueRedrives()
	if err != nil {
		if w.a.Idle.Err() != nil {
			return w.a.Ended()
		}
		if !errors.Is(err, partition.ErrAskedTogether) {
			w.a.Failed(err)
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
func (w *worker[Tx]) redriveRound(due []driver.DeadLetter, mayRead bool) error {
	elapsed := w.a.Settings.Clock.Elapsed
	began := elapsed()
	pace := &w.redrives
	pace.begin(began, w.limit.long)
	length := engine.RedriveFor + pace.owed
	defer func() { pace.end(elapsed(), elapsed()-began) }()
	// A dead letter that always meets an outage must not keep the others from their turn.
	if i := slices.IndexFunc(due, func(d driver.DeadLetter) bool { return d.ID == w.redrives.lastID }); i >= 0 {
		due = slices.Concat(due[i+1:], due[:i+1])
	}
	// One that may have ended the process is first: the record of another would replace its own.
	if i := slices.IndexFunc(due, func(d driver.DeadLetter) bool { return d.ID == w.record.known.DeadLetter }); i >= 0 {
		due = slices.Concat(due[i:i+1], due[:i], due[i+1:])
	}
	more := len(due) == w.redrives.page // there may be
	for len(due) > 0 {
		if w.a.Idle.Err() != nil {
			return w.a.Ended()
		}
		if elapsed()-began >= length {
			w.redrives.due = true
			break
		}
		if !due[0].HasBody && !mayRead {
			return partition.ErrReopen
		}
		n, err := w.redriveNext(due, mayRead)
		if errors.Is(err, errReclaimed) {
			w.redrives.lastID = due[max(n, 1)-1].ID
			return nil
		}
		if err != nil {
			return err
		}
		due = due[n:]
	}
	w.redrives.lastID, w.redrives.due = 0, w.redrives.due || more
	w.returned()
	return nil
}

// redriveOne applies one dead letter and removes it, in one transaction. If the
// handler fails, it stores the new error instead. After an outage it returns
// errReclaimed: the round ends. read is the event if the log was read for it; else redriveOne
// reads that of a dead letter without a body.
func (w *worker[Tx]) redriveOne(d *driver.DeadLetter, read *driver.Event) error {
	e := d.Event
	switch {
	case read != nil:
		e = *read
	case !d.HasBody:
		found, err := w.a.Reread(d)
		switch {
		case err == nil:
			e = *found
		case w.a.Idle.Err() != nil:
			return w.a.Ended()
		case partition.NeedsOperator(err):
			return w.storeRedriveFailure(d, err)
		case errors.Is(err, driver.ErrFenced), errors.Is(err, driver.ErrStolen):
			return err
		default:
			w.a.Failed(fmt.Errorf("redrive dead letter %d: %w", d.ID, err))
			return errReclaimed
		}
	}
	began := w.a.Settings.Clock.Elapsed()
	if deaths := w.record.find(e.Sequence, d.ID).Unreturned; deaths >= deathsAllowed {
		return w.storeRedriveFailure(d, driver.Reject(fmt.Errorf("the process ended %d times while it redrove this event", deaths)))
	}
	// The attempt is recorded before it starts: a redrive that kills the process
	// must not do so for ever. It does not replace the record of another event:
	// then only a command runs redrives, and its death can be seen.
	if !w.attemptsOnRecord() {
		if err := w.recordStart(e.Sequence, d.ID); err != nil {
			return err
		}
	}
	given, err := w.handled([]*driver.Event{&e})
	if err != nil {
		return err
	}
	b := w.redrivenBatch([]driver.DeadLetter{*d}, given)
	err = w.commit(driver.Step{Lease: w.a.Lease, From: w.pos, To: w.pos, Redriven: []int64{d.ID}}, b)
	var failed *driver.HandlerError
	switch {
	case err == nil:
		w.clearRedrive(d)
		w.redriven++
		w.a.Observe(driver.Observation{Kind: driver.KindRedriven, To: e.Position(), Event: &e, Events: 1, Duration: w.a.Settings.Clock.Elapsed() - began})
		return nil
	case errors.As(err, &failed):
		failure := failed.Err
		var each *driver.EventError
		if errors.As(failure, &each) {
			failure = each.Err
		}
		own := engine.FaultOf(failure).Counts()
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

// isOwn reports whether a redrive has failed by its event's own fault, though the database refused
// a statement for a reason that may be every event's: an event that waits runs that statement.
func (w *worker[Tx]) isOwn(e *driver.Event, failure *driver.HandlerError) (bool, error) {
	t := &trial{event: e}
	t.fail(failure, 1)
	found, _, err := w.findWitness(t)
	return found, err
}

// postpone has a dead letter redriven later, because what its handler needs is not
// available. If that is nothing of this event's own, the round ends.
func (w *worker[Tx]) postpone(d *driver.DeadLetter, failure error) error {
	wait := cmp.Or(engine.StatedWait(failure), w.a.Settings.RetryMax)
	w.a.Failed(fmt.Errorf("redrive of event %d is postponed by %v: %w", d.Event.Sequence, wait, failure))
	d.Status, d.Error = driver.StatusRetry, partition.ErrorText(failure)
	if err := w.commit(driver.Step{Lease: w.a.Lease, From: w.pos, To: w.pos, FailedRedrives: []driver.DeadLetter{*d}, PostponeFor: wait}, driver.Batch{}); err != nil {
		return err
	}
	w.clearRedrive(d)
	w.returned()
	if engine.FaultOf(failure) != engine.FaultRetry {
		return errReclaimed
	}
	return nil
}

// storeRedriveFailure stores a dead letter whose redrive has failed.
func (w *worker[Tx]) storeRedriveFailure(d *driver.DeadLetter, failure error) error {
	w.a.RedriveFailed(d, failure)
	err := w.commit(driver.Step{Lease: w.a.Lease, From: w.pos, To: w.pos, FailedRedrives: []driver.DeadLetter{*d}}, driver.Batch{})
	if err != nil {
		return err
	}
	w.clearRedrive(d)
	w.redriveFailures++
	w.a.Observe(driver.Observation{Kind: driver.KindRedriveFailed, To: d.Event.Position(), Event: &d.Event, Attempt: d.Attempts, RetriedIn: w.a.RetriedIn(d), Err: failure})
	return nil
}

// clearRedrive forgets the attempts at a dead letter whose redrive has ended.
func (w *worker[Tx]) clearRedrive(d *driver.DeadLetter) {
	if w.record.known.DeadLetter == d.ID {
		w.record.known = driver.AttemptRecord{}
	}
}

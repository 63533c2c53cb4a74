package batch

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine/partition"
)

const (
	// claimsTrusted is how many claims in a row may see no progress before the largest possible
	// batch is suspected of killing the process although no attempt at it is on record: an event
	// that was tried out of turn may have done it.
	claimsTrusted = 3
	// suspectsAlone is how many suspected events are tried one at a time. More are tried in groups.
	suspectsAlone = 100
	// deathsAllowed is how many attempts at a suspected event may start and never
	// return before it becomes a dead letter.
	deathsAllowed = 3
)

// attemptLog is what is known of the attempts at the event after the checkpoint, or
// at the dead letter that is being redriven, and what the store has of it. The two
// differ after an attempt that was recorded before it began, and that has returned: it
// did not end the process, so it does not count.
type attemptLog struct {
	known, stored driver.AttemptRecord
	loaded        bool // a claim has read it
	unsure        bool // a write may have changed stored, or not
}

// load takes over what a claim has read. What this worker has recorded since its
// first claim has returned.
func (l *attemptLog) load(cp driver.Checkpoint, moved bool) {
	l.stored, l.unsure = cp.Attempt, false
	if !l.loaded || moved {
		l.known = cp.Attempt
	}
	if l.loaded && moved {
		l.known.Unreturned = 0
	}
	l.loaded = true
}

// clear forgets everything: the step that moves the checkpoint clears the record.
func (l *attemptLog) clear() { *l = attemptLog{loaded: true} }

// has reports whether this record is the one that is stored.
func (l *attemptLog) has(record driver.AttemptRecord) bool { return !l.unsure && l.stored == record }

// find returns what is known of an event, or of the redrive of a dead letter.
func (l *attemptLog) find(sequence, deadLetter int64) driver.AttemptRecord {
	if l.known.Sequence == sequence && l.known.DeadLetter == deadLetter {
		return l.known
	}
	return driver.AttemptRecord{Sequence: sequence, DeadLetter: deadLetter}
}

// attempts returns how many attempts at an event have failed.
func (w *worker[Tx]) attempts(e *driver.Event) int { return w.record.find(e.Sequence, 0).Attempts }

// deaths returns how many attempts at an event have never returned.
func (w *worker[Tx]) deaths(e *driver.Event) int { return w.record.find(e.Sequence, 0).Unreturned }

// attemptsOnRecord reports whether attempts at the event after the checkpoint are on
// record. The attempt of a redrive would overwrite them.
func (w *worker[Tx]) attemptsOnRecord() bool {
	known := &w.record.known
	return known.DeadLetter == 0 && known.Attempts+known.Unreturned > 0 && known.Sequence > w.pos.Sequence
}

// suspect notes, after a claim, which events are suspected of killing the process: those that a
// recorded attempt had in progress. Without a record it can be any of the largest possible batch.
func (w *worker[Tx]) suspect(cp driver.Checkpoint) {
	last := driver.Unset.Sequence
	switch {
	case w.attemptsOnRecord() && w.record.known.Unreturned > 0:
		last = w.record.known.Sequence
	case cp.Claims > claimsTrusted && w.a.Topic.Sparse: // the batch may span any numbers
		if w.suspectUpTo <= cp.Position.Sequence {
			w.suspects = w.a.Settings.MaxBatch
		}
	case cp.Claims > claimsTrusted:
		last = cp.Position.Sequence + int64(w.a.Settings.MaxBatch)
	}
	if last > w.suspectUpTo {
		w.suspectUpTo, w.suspected = last, last-cp.Position.Sequence
	}
	w.claims = cp.Claims
}

// meet notes the numbers of events that are suspected.
func (w *worker[Tx]) meet(events []*driver.Event) {
	if n := min(w.suspects, len(events)); n > 0 {
		w.suspects -= n
		w.suspectUpTo = max(w.suspectUpTo, events[n-1].Sequence)
	}
}

// suspicious reports whether a claim has counted against the events after the
// checkpoint.
func (w *worker[Tx]) suspicious() bool {
	return w.claims > 1 || w.suspectUpTo > w.pos.Sequence
}

// watched reports whether an attempt that begins with an event is recorded before it starts: it is
// suspected, or an owner has ended without a trace and nothing was done since.
func (w *worker[Tx]) watched(e *driver.Event) bool {
	return e.Sequence <= w.suspectUpTo || w.claims > 1
}

// batchLimit returns how many of some events the next transaction may take. Suspected events go in
// groups of the square root of their number: if a group ends the process, its events are few enough
// to be tried one at a time. So an event is found by two deaths more than its own, and events that
// are not to blame take few transactions. The attempts of an event that are on record must not be
// replaced by those at a batch.
func (w *worker[Tx]) batchLimit(events []*driver.Event) int {
	if w.attemptsOnRecord() && w.record.known.Sequence == events[0].Sequence {
		return 1
	}
	at := 0 // so many are suspected
	for at < len(events) && events[at].Sequence <= w.suspectUpTo {
		at++
	}
	if at == 0 {
		return w.limit.now
	}
	all := w.suspected
	if w.a.Topic.Sparse { // that is how many numbers there are
		all = int64(at)
	}
	if all <= suspectsAlone {
		return 1
	}
	group := int(math.Ceil(math.Sqrt(float64(all))))
	return max(1, min(group, at/2, w.limit.now)) // fewer than there were, also if most numbers are duplicates
}

// clearSuspicion ends the suspicion if there are no events after the checkpoint: those that
// are still to come have not ended a process. Claims count from 1 again.
func (w *worker[Tx]) clearSuspicion() {
	var bounds driver.Bounds
	err := w.a.Request(w.a.Idle, "ask for the log's end", func(ctx context.Context) (err error) {
		bounds, err = w.a.Host.Source.Bounds(ctx, w.a.Lease.Partition)
		return err
	})
	if err == nil && (bounds.Lag(w.pos) > 0 || w.attemptsOnRecord()) {
		return
	}
	if err == nil {
		err = w.a.Request(w.a.Idle, "leave checkpoint", func(ctx context.Context) error { return w.store.Leave(ctx, w.a.Lease) })
	}
	if err != nil {
		if w.a.Idle.Err() == nil {
			w.a.Failed(err)
		}
		return
	}
	w.claims, w.suspectUpTo, w.suspects = 0, driver.Unset.Sequence, 0
}

// killer returns the failure of an event whose attempts have ended the process as
// often as is allowed, nil for another event.
func (w *worker[Tx]) killer(e *driver.Event) error {
	deaths := w.deaths(e)
	if deaths < deathsAllowed {
		return nil
	}
	w.suspectUpTo, w.suspects = e.Sequence, 0 // it is found: the others are not suspected any more
	return driver.Reject(fmt.Errorf("the process ended %d times while it handled this event", deaths))
}

// try applies one event in a transaction of its own. If the event is suspected of
// killing the process, only one such attempt runs in this process, so that its death
// shows which event it was.
func (w *worker[Tx]) try(e *driver.Event) error {
	if e.Sequence <= w.suspectUpTo {
		release, err := w.acquireToken()
		if err != nil {
			return err
		}
		defer release()
	}
	return w.tryBatch([]*driver.Event{e})
}

// tryBatch applies events in one transaction. An attempt at several of them is recorded as one at
// the last.
func (w *worker[Tx]) tryBatch(events []*driver.Event) error {
	if w.watched(events[0]) {
		if err := w.recordStart(events[len(events)-1].Sequence, 0); err != nil {
			return err
		}
	}
	return w.transact(events, nil)
}

// acquireToken waits for the process's token for suspected events. The token is released
// after LeaseFor at the latest, so that one handler that hangs does not hold up the
// suspected events of all partitions. If the process ends while two attempts are in
// progress, the count of both events rises, and for both it is true that the process
// ended while it handled them. An event that is not the cause becomes a dead letter only
// if that happens three times, each time beside an attempt that hangs for longer than a
// lease.
func (w *worker[Tx]) acquireToken() (release func(), err error) {
	defer w.a.Delivery.Doing(partition.ActivitySuspect, 0, 0).Done()
	token := w.a.Host.Suspects
	select {
	case token <- struct{}{}:
	case <-w.a.Idle.Done():
		return nil, w.a.Ended()
	}
	ctx, cancel := context.WithCancel(context.Background())
	var holding sync.WaitGroup
	holding.Go(func() {
		_ = w.a.Settings.Clock.Sleep(ctx, w.a.Settings.LeaseFor)
		<-token
	})
	return func() { cancel(); holding.Wait() }, nil
}

// recordStart records an attempt before it begins, as one that has not returned: if it
// ends the process, the next claim finds it so.
func (w *worker[Tx]) recordStart(sequence, deadLetter int64) error {
	started := w.record.find(sequence, deadLetter)
	if started.Attempts+started.Unreturned == 0 {
		w.record.known = driver.AttemptRecord{} // it was of another event, or of a batch
	}
	started.Unreturned++
	return w.recordAttempt(started)
}

// recordFailure records that so many attempts at an event have failed.
func (w *worker[Tx]) recordFailure(e *driver.Event, attempts int, failure error) error {
	failed := w.record.find(e.Sequence, 0)
	failed.Attempts, failed.Error = attempts, partition.ErrorText(failure)
	err := w.recordAttempt(failed)
	if err == nil {
		w.record.known = failed
	}
	return err
}

// recordAttempt stores an attempt record, unless it is stored. Like commit it returns
// errReclaimed after a failure.
func (w *worker[Tx]) recordAttempt(attempt driver.AttemptRecord) error {
	if w.record.has(attempt) {
		return nil
	}
	err := w.storeAttempt(attempt)
	switch {
	case err == nil:
		return nil
	case w.a.Work.Err() != nil:
		return w.a.Ended()
	}
	w.a.Failed(err)
	if err := w.a.Pause(w.outage.Next()); err != nil {
		return err
	}
	if err := w.reclaim(); err != nil {
		return err
	}
	return errReclaimed
}

func (w *worker[Tx]) storeAttempt(attempt driver.AttemptRecord) error {
	err := w.a.Request(w.a.Work, "record attempt", func(ctx context.Context) error {
		return w.store.RecordAttempt(ctx, w.a.Lease, w.pos, attempt)
	})
	if w.record.unsure = err != nil; !w.record.unsure {
		w.record.stored = attempt
	}
	return err
}

// returned takes an attempt that has returned back from the record, if the store allows
// it, before the partition waits: what ends the process meanwhile is not this event.
func (w *worker[Tx]) returned() {
	if !w.record.has(w.record.known) {
		_ = w.storeAttempt(w.record.known) // the caller has reported the outage, if there is one
	}
}

// takeBack removes an attempt that has returned from the record, before the partition
// is released: it has not ended the process. Where that is impossible, because the
// lease is lost or the store fails, the attempt stays on record.
func (w *worker[Tx]) takeBack() {
	if w.record.has(w.record.known) {
		return
	}
	ctx, cancel := w.a.ShutdownCtx()
	defer cancel()
	err := w.store.RecordAttempt(ctx, w.a.Lease, w.pos, w.record.known)
	if err != nil && !errors.Is(err, driver.ErrFenced) {
		w.a.Failed(fmt.Errorf("take back the record of an attempt that has returned: %w", err))
	}
}

package sluice

import (
	"context"

	"github.com/sluice-go/sluice/driver"
)

const (
	// claimsTrusted is how many claims in a row may see no progress before the
	// events after the checkpoint are suspected of killing the process and are
	// tried one at a time.
	claimsTrusted = 3
	// deathsAllowed is how many attempts at a suspected event may start and never
	// return before it becomes a dead letter.
	deathsAllowed = 3
)

// suspect notes, after a claim, which events are suspected of killing the process.
func (w *transactionalWorker[Tx]) suspect(cp Checkpoint) {
	died := cp.Attempt.Attempts > 0 && cp.Attempt.Error == "" && cp.Attempt.Sequence > cp.Position.Sequence
	if cp.Claims > claimsTrusted || died {
		w.suspectUpTo = max(w.suspectUpTo, cp.Position.Sequence+int64(w.a.c.cfg.MaxBatch))
	}
}

// try applies one event in a transaction of its own. If the event is suspected of
// killing the process, the attempt is recorded before it starts, and only one such
// attempt runs in this process, so that its death shows which event it was.
func (w *transactionalWorker[Tx]) try(e *Event) error {
	if e.Sequence <= w.suspectUpTo {
		select {
		case w.a.c.suspectToken <- struct{}{}:
			defer func() { <-w.a.c.suspectToken }()
		case <-w.a.work.Done():
			return w.a.ended()
		}
		if err := w.recordAttempt(driver.AttemptRecord{Sequence: e.Sequence, Attempts: w.attempts(e) + 1}); err != nil {
			return err
		}
	}
	return w.transact([]*Event{e}, nil)
}

// recordAttempt stores an attempt record. Like commit it returns errReclaimed
// after a failure.
func (w *transactionalWorker[Tx]) recordAttempt(attempt driver.AttemptRecord) error {
	err := w.a.request(w.a.work, "record attempt", func(ctx context.Context) error {
		return w.store.RecordAttempt(ctx, w.a.lease, w.pos, attempt)
	})
	switch {
	case err == nil:
		w.attempt = attempt
		return nil
	case w.a.work.Err() != nil:
		return w.a.ended()
	}
	w.a.failed(err)
	if err := w.a.pause(w.outage.Next()); err != nil {
		return err
	}
	if err := w.reclaim(); err != nil {
		return err
	}
	return errReclaimed
}

// attempts returns how many attempts at an event are on record.
func (w *transactionalWorker[Tx]) attempts(e *Event) int {
	if w.attempt.Sequence != e.Sequence {
		return 0
	}
	return w.attempt.Attempts
}

// attemptsOnRecord reports whether failed attempts at the event after the
// checkpoint are on record. The attempt of a redrive would overwrite them.
func (w *transactionalWorker[Tx]) attemptsOnRecord() bool {
	return w.attempt.Attempts > 0 && w.attempt.Sequence > w.pos.Sequence
}

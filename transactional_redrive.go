package sluice

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice/driver"
)

// redrivePage is how many retries are looked up at a time.
const redrivePage = 100

// redriveBell rings when it is time to look for retries.
type redriveBell struct{ struck atomic.Bool }

// ring strikes the bell every so often until ctx ends.
func (b *redriveBell) ring(ctx context.Context, clock Clock, every time.Duration, news chan struct{}) {
	for clock.Sleep(ctx, every) == nil {
		b.struck.Store(true)
		wake(news)
	}
}

func (b *redriveBell) rang() bool { return b.struck.Swap(false) }

func (d *transactional[Tx]) due(ctx context.Context, group Group, partition string) (bool, error) {
	letters, err := d.store.Due(ctx, group, partition, 1)
	return len(letters) > 0, err
}

func (d *transactional[Tx]) redrive(t *tenure) (applied, failed int, err error) {
	s := d.applier(t)
	defer s.leave()
	err = errReopen
	for t.idle.Err() == nil {
		if errors.Is(err, errReopen) {
			err = s.claim()
		} else {
			var more bool
			if more, err = d.due(t.idle, t.topic.Group, t.lease.Partition); err == nil && !more {
				return s.applied, s.failedAgain, nil
			}
			before := s.applied + s.failedAgain
			if err == nil {
				err = s.redriveDue(true)
			}
			if err == nil && s.applied+s.failedAgain == before {
				err = t.pause(t.c.cfg.RetryMin)
			}
		}
		if err != nil && !errors.Is(err, errReopen) {
			return s.applied, s.failedAgain, err
		}
	}
	return s.applied, s.failedAgain, t.ended()
}

// redriveDue runs the retries that are due, between two batches and so never
// beside the handler. Letters without a body need the log: unless it may be
// read now, they make the session reopen.
func (s *applier[Tx]) redriveDue(mayRead bool) error {
	letters, err := s.store.Due(s.idle, s.topic.Group, s.lease.Partition, redrivePage)
	if err != nil {
		if s.idle.Err() != nil {
			return s.ended()
		}
		s.failed(fmt.Errorf("look for retries: %w", err))
		return nil
	}
	for i := range letters {
		if s.idle.Err() != nil {
			return s.ended()
		}
		if !letters[i].HasBody && !mayRead {
			return errReopen
		}
		err := s.redriveOne(&letters[i])
		if err != nil && !errors.Is(err, errAgain) {
			return err
		}
	}
	return nil
}

// redriveOne applies one dead letter and removes it, in one transaction; or
// puts it back with its new error.
func (s *applier[Tx]) redriveOne(d *DeadLetter) error {
	e := d.Event
	if !d.HasBody {
		found, err := s.reread(d)
		if err != nil {
			if s.idle.Err() != nil {
				return s.ended()
			}
			if errors.Is(err, ErrRetention) || errors.Is(err, ErrPastEnd) || errors.Is(err, ErrRecreated) {
				return s.putBack(d, err)
			}
			return err
		}
		e = *found
	}
	began := s.c.cfg.Clock.Elapsed()
	attempt := s.attempts(&e)
	if attempt >= deathsAllowed {
		return s.putBack(d, fmt.Errorf("the process ended %d times while it retried this event", attempt))
	}
	// On record before it begins: a retry that kills the process must not do
	// so for ever. But not in the place of an event whose attempts are counted;
	// only a command gets here then, and it can be seen to die.
	if !s.trying() {
		if err := s.record(driver.AttemptRecord{Sequence: e.Sequence, Attempts: attempt + 1}); err != nil {
			return err
		}
	}
	b := Batch{Group: s.topic.Group, Partition: s.lease.Partition, Epoch: s.lease.Epoch, Redriven: true, Events: []*Event{&e}}
	err := s.commit(driver.Step{Lease: s.lease, From: s.pos, To: s.pos, Redriven: []int64{d.ID}}, s.handle(b))
	var failed *driver.HandlerError
	switch {
	case err == nil:
		s.forget(e.Sequence)
		s.applied++
		s.observe(Observation{Kind: KindRedriven, To: e.Position(), Events: 1, Duration: s.c.cfg.Clock.Elapsed() - began})
		return nil
	case errors.As(err, &failed):
		var each *EventError
		if errors.As(failed.Err, &each) {
			return s.putBack(d, each.Err)
		}
		return s.putBack(d, failed.Err)
	}
	return err
}

// putBack stores a dead letter whose retry has failed.
func (s *applier[Tx]) putBack(d *DeadLetter, failure error) error {
	d.Status, d.NextAttempt = StatusDead, time.Time{}
	d.Attempts++
	d.Error, d.FailedAt = describe(failure), s.c.cfg.Clock.Wall().UTC()
	err := s.commit(driver.Step{Lease: s.lease, From: s.pos, To: s.pos, FailedRedrives: []DeadLetter{*d}}, nil)
	if err != nil {
		return err
	}
	s.forget(d.Event.Sequence)
	s.failedAgain++
	s.observe(Observation{Kind: KindRedriveFailed, To: d.Event.Position(), Attempt: d.Attempts, Err: failure})
	return nil
}

// forget ends the trial of a retry.
func (s *applier[Tx]) forget(sequence int64) {
	if s.trial.Sequence == sequence {
		s.trial = driver.AttemptRecord{}
	}
}

package sluice

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/sluice-go/sluice/driver"
)

// Delivery is how events take effect; its constructor's name is the guarantee:
// [Transactional], [AtLeastOnce] or [Replay].
type Delivery interface {
	// check tells what is wrong with its configuration.
	check() error
	// deliver runs a partition until its tenure ends or is to stop, and
	// returns why.
	deliver(t *tenure) error
	// redrive runs the retries that are due on a partition, and nothing else.
	redrive(t *tenure) (applied, failed int, err error)
	// due tells whether there are any.
	due(ctx context.Context, group Group, partition string) (bool, error)
}

// Transactional delivers each event's effect exactly once: the handler's
// writes, the checkpoint and the dead letters commit in one transaction of
// store, fenced by the lease's epoch and owner and by the position they start
// from.
//
// Where the events are messages of an [AtLeastOnce] stage before it that carry
// a [Stamp], the exactly-once holds from that stage's events on: messages that
// were sent more than once are handled once. So are several messages that share
// a stamp because an event's properties were copied to each: see [Stamp].
func Transactional[Tx any](store driver.TxStore[Tx], handler Handler[Tx]) Delivery {
	return &transactional[Tx]{store: store, handler: handler}
}

type transactional[Tx any] struct {
	store   driver.TxStore[Tx]
	handler Handler[Tx]
}

func (d *transactional[Tx]) check() error { return nil }

// applier delivers one partition's events during one tenure, batch by batch,
// on one goroutine: apply.go brings them to their end, redrive.go those that
// are tried again.
type applier[Tx any] struct {
	*transactional[Tx]
	*session

	trial   driver.AttemptRecord // of the event behind pos, or of a dead letter on retry
	suspect int64                // up to this sequence number an event is suspected of killing the process; Unset's if none
	outage  *backoff             // between tries while the database fails
	repeats repeats
	unread  bool // it was told of a stamp that can't be read

	applied, failedAgain int // retries of dead letters
}

func (d *transactional[Tx]) applier(t *tenure) *applier[Tx] {
	s := &applier[Tx]{transactional: d, suspect: driver.Unset.Sequence, outage: t.c.backoff(t.rand)}
	s.session = &session{tenure: t, course: s, checkpoints: d.store}
	return s
}

func (d *transactional[Tx]) deliver(t *tenure) error {
	s := d.applier(t)
	defer s.leave()
	return s.run()
}

// accept takes over what a claim returned.
func (s *applier[Tx]) accept(p Checkpoint) {
	if p.Position.Sequence < s.pos.Sequence {
		// The database has lost what came behind, the ids too.
		s.repeats = repeats{most: s.repeats.most}
	}
	s.pos, s.trial = p.Position, p.Attempt
	died := p.Attempt.Attempts > 0 && p.Attempt.Error == "" && p.Attempt.Sequence > p.Position.Sequence
	if p.Claims > claimsTrusted || died {
		s.suspect = max(s.suspect, p.Position.Sequence+int64(s.c.cfg.MaxBatch))
	}
	s.observe(Observation{Kind: KindClaimed, To: p.Position, Attempt: p.Claims})
}

func (s *applier[Tx]) begin(start Position) error {
	err := s.commit(driver.Step{Lease: s.lease, From: driver.Unset, To: start}, nil)
	if errors.Is(err, errAgain) {
		return errReopen
	}
	return err
}

// beforeOpen redrives: dead letters without a stored body are read from the
// log, for which the broker wants no other reader of ours.
func (s *applier[Tx]) beforeOpen() error { return s.redriveDue(true) }

func (s *applier[Tx]) from() Position { return s.pos }

// drain applies what the inbox holds, as it comes.
func (s *applier[Tx]) drain(box *inbox) error {
	var look redriveBell
	var ringing sync.WaitGroup
	ctx, cancel := context.WithCancel(s.idle)
	ringing.Go(func() { look.ring(ctx, s.c.cfg.Clock, s.c.cfg.RedriveEvery, box.news) })
	defer ringing.Wait()
	defer cancel()
	for {
		if s.idle.Err() != nil {
			return s.ended()
		}
		if look.rang() && !s.trying() {
			if err := s.redriveDue(false); err != nil {
				return err
			}
		}
		limit := s.c.cfg.MaxBatch
		if s.pos.Sequence < s.suspect {
			limit = 1
		}
		events, err := box.take(limit)
		if err != nil {
			return fmt.Errorf("read log: %w", err)
		}
		if len(events) > 0 {
			if err := s.take(events); err != nil {
				return err
			}
			continue
		}
		select {
		case <-box.news:
		case <-s.idle.Done():
		}
	}
}

// take applies events, and passes over those that repeat earlier ones.
func (s *applier[Tx]) take(events []*Event) error {
	if !slices.ContainsFunc(events, carriesStamp) {
		return s.apply(events)
	}
	if !s.repeats.loaded {
		// Nobody else adds to it in this epoch.
		rows, err := s.store.ReadDedup(s.work, s.topic.Group, s.lease.Partition)
		if err == nil {
			err = s.repeats.load(rows, s.pos.Sequence)
		}
		if err != nil {
			return fmt.Errorf("read the chain ids seen: %w", err)
		}
	}
	kept := s.repeats.weed(events, s.pos.Sequence)
	if s.repeats.crowded != "" {
		s.failed(fmt.Errorf("the oldest chain ids of %s are forgotten, for there are too many above its watermark: see that its emitter can store its checkpoint", s.repeats.crowded))
		s.repeats.crowded = ""
	}
	if err := s.repeats.unread; err != nil && !s.unread {
		s.unread = true
		s.failed(fmt.Errorf("%w: repeats can't be told by such stamps, see who sets the properties named sluice-*", err))
	}
	if len(kept) == 0 {
		return s.pass(events[len(events)-1].Position())
	}
	return s.apply(kept)
}

// trying tells whether the event behind the checkpoint has failed attempts
// on record, which a retry of a dead letter would overwrite.
func (s *applier[Tx]) trying() bool {
	return s.trial.Attempts > 0 && s.trial.Sequence > s.pos.Sequence
}

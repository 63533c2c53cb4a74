package sluice

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Delivery is how events take effect; its constructor's name is the guarantee.
// [Transactional] is the one there is.
type Delivery interface {
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
func Transactional[Tx any](store TxStore[Tx], handler Handler[Tx]) Delivery {
	return &transactional[Tx]{store: store, handler: handler}
}

type transactional[Tx any] struct {
	store   TxStore[Tx]
	handler Handler[Tx]
}

// session is the delivery of one partition during one tenure: claim the
// checkpoint, open the log behind it, and apply what comes, batch by batch,
// on one goroutine. The rest of it is in apply.go and redrive.go.
type session[Tx any] struct {
	*transactional[Tx]
	*tenure

	incarnation string   // the topic's, at the last claim
	pos         Position // the checkpoint, as far as is known
	trial       Trial    // of the event behind pos, or of a dead letter on retry
	suspect     int64    // up to this sequence number an event is suspected of killing the process; Unset's if none
	assigned    bool     // the hook was called
	outage      *backoff // between tries while the database fails

	applied, failedAgain int // retries of dead letters
}

func (d *transactional[Tx]) session(t *tenure) *session[Tx] {
	return &session[Tx]{transactional: d, tenure: t, suspect: Unset.Sequence, outage: t.c.backoff(t.rand)}
}

// errReopen ends a reading of the log so that the next one begins anew.
var errReopen = errors.New("reopen")

// stoppedEvery is how often a partition that waits for a person looks whether
// one has acted.
const stoppedEvery = 10 * time.Second

func (d *transactional[Tx]) deliver(t *tenure) error {
	s := d.session(t)
	defer s.leave()
	wait := t.c.backoff(t.rand)
	var told string // the state that was last told to need a person
	for {
		began := t.c.cfg.Clock.Elapsed()
		err := s.read()
		if t.c.cfg.Clock.Elapsed()-began > t.c.cfg.RetryMax {
			wait.reset()
		}
		var pause time.Duration
		switch {
		case t.idle.Err() != nil:
			return t.ended()
		case errors.Is(err, errReopen):
			continue
		case errors.Is(err, ErrFenced), errors.Is(err, ErrStolen):
			return err
		case errors.Is(err, ErrRetention), errors.Is(err, ErrRecreated), errors.Is(err, ErrPastEnd):
			if told != err.Error() {
				told = err.Error()
				t.observe(Observation{Kind: KindStopped, From: s.pos, To: s.pos, Err: err})
			}
			pause = stoppedEvery
		default:
			t.failed(err)
			pause = wait.next()
		}
		if err := t.pause(pause); err != nil {
			return err
		}
	}
}

// leave tells the store that the partition is given up in good order, so that
// this claim does not count as one that ended in a crash.
func (s *session[Tx]) leave() {
	ctx, cancel := s.parting()
	defer cancel()
	if err := s.store.Leave(ctx, s.lease); err != nil {
		s.failed(fmt.Errorf("leave checkpoint: %w", err))
	}
}

// claim makes the checkpoint this lease's and learns where it stands.
func (s *session[Tx]) claim() error {
	ctx, cancel := s.brief()
	defer cancel()
	topic, err := s.c.source.Describe(ctx)
	if err != nil {
		return fmt.Errorf("describe topic: %w", err)
	}
	s.incarnation = topic.Incarnation
	p, err := s.store.Claim(s.work, s.lease, topic.Incarnation)
	if err != nil {
		return fmt.Errorf("claim checkpoint: %w", err)
	}
	if p.Incarnation != topic.Incarnation {
		return &RecreatedError{Topic: topic.Topic, Partition: s.lease.Partition, Had: p.Incarnation, Has: topic.Incarnation}
	}
	s.accept(p)
	if s.pos == Unset {
		start, err := s.c.source.Seek(ctx, s.lease.Partition, s.c.cfg.Start, s.lease.Epoch)
		if err != nil {
			return fmt.Errorf("seek %s: %w", s.c.cfg.Start, err)
		}
		// Stored before the first event is read: a restart must not choose
		// another "latest" and skip what came in between.
		err = s.commit(Step{Lease: s.lease, From: Unset, To: start}, nil)
		switch {
		case errors.Is(err, errAgain):
			return errReopen
		case err != nil:
			return fmt.Errorf("store start: %w", err)
		}
	}
	if hook := s.c.cfg.Hooks.Assigned; hook != nil && !s.assigned {
		s.hook("assigned", func() error { return hook(s.work, s.lease, p) })
	}
	s.assigned = true
	return nil
}

// accept takes over what a claim returned.
func (s *session[Tx]) accept(p Progress) {
	s.pos, s.trial = p.Position, p.Trial
	died := p.Trial.Attempts > 0 && p.Trial.Error == "" && p.Trial.Sequence > p.Position.Sequence
	if p.Claims > claimsTrusted || died {
		s.suspect = max(s.suspect, p.Position.Sequence+int64(s.c.cfg.MaxBatch))
	}
	s.observe(Observation{Kind: KindClaimed, To: p.Position, Attempt: p.Claims})
}

// read claims the checkpoint, opens the log behind it and delivers until
// something ends that.
func (s *session[Tx]) read() (err error) {
	if err := s.claim(); err != nil {
		return err
	}
	// Dead letters without a stored body are read from the log, for which the
	// broker wants no other reader of ours.
	if err := s.redriveDue(true); err != nil {
		return err
	}
	opening, opened := s.brief()
	reader, err := s.c.source.Open(opening, s.lease.Partition, s.pos, s.lease.Epoch)
	opened()
	if err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	defer func() {
		closing, done := s.parting()
		defer done()
		if cerr := reader.Close(closing); cerr != nil && err == nil {
			err = fmt.Errorf("close reader: %w", cerr)
		}
	}()
	if err := s.sameTopic(); err != nil {
		return err
	}
	s.observe(Observation{Kind: KindOpened, To: s.pos})

	box := newInbox(s.c.cfg.MaxBatch)
	ctx, cancel := context.WithCancel(s.idle)
	var helpers sync.WaitGroup
	helpers.Go(func() {
		box.fetch(ctx, reader, func(events []*Event) {
			last, bytes := events[len(events)-1].Position(), 0
			for _, e := range events {
				bytes += len(e.Body)
			}
			s.observe(Observation{Kind: KindFetched, To: last, Events: len(events), Bytes: bytes, Lag: s.behind(last)})
		})
	})
	var look redriveBell
	helpers.Go(func() { look.ring(ctx, s.c.cfg.Clock, s.c.cfg.RedriveEvery, box.news) })

	defer helpers.Wait()
	defer cancel()
	return s.drain(box, &look)
}

// sameTopic looks whether the log that was opened is the one whose checkpoint
// was claimed: it may have been recreated in between.
func (s *session[Tx]) sameTopic() error {
	ctx, cancel := s.brief()
	defer cancel()
	topic, err := s.c.source.Describe(ctx)
	if err != nil {
		return fmt.Errorf("describe topic: %w", err)
	}
	if topic.Incarnation != s.incarnation {
		return errReopen
	}
	return nil
}

// drain applies what the inbox holds, as it comes.
func (s *session[Tx]) drain(box *inbox, look *redriveBell) error {
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
			if err := s.apply(events); err != nil {
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

// trying tells whether the event behind the checkpoint has failed attempts
// on record, which a retry of a dead letter would overwrite.
func (s *session[Tx]) trying() bool {
	return s.trial.Attempts > 0 && s.trial.Sequence > s.pos.Sequence
}

package sluice

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/sluice-go/sluice/driver"

	"github.com/sluice-go/sluice/internal/property"
)

// session is one partition during one tenure: claim the checkpoint, open the
// log behind it, hand what comes to the delivery's course, and begin anew
// when that breaks off. It runs on one goroutine.
type session struct {
	*tenure
	course      course
	checkpoints claims

	incarnation string   // the topic's, at the last claim
	pos         Position // the checkpoint, as far as is known
	assigned    bool     // the hook was called
}

// course is what deliveries do differently.
type course interface {
	// accept takes over what a claim returned.
	accept(p Checkpoint)
	// begin stores where a partition without a checkpoint begins.
	begin(start Position) error
	// beforeOpen does what must be done while nobody reads the log.
	beforeOpen() error
	// from is the position behind which to read.
	from() Position
	// drain delivers what comes into the box, until something ends that.
	drain(box *inbox) error
}

// claims is what stores of checkpoints have in common.
type claims interface {
	Claim(ctx context.Context, lease Lease, incarnation string) (Checkpoint, error)
	Leave(ctx context.Context, lease Lease) error
}

// errReopen ends a reading of the log so that the next one begins anew.
var errReopen = errors.New("reopen")

// stoppedEvery is how often a partition that waits for a person looks whether
// one has acted.
const stoppedEvery = 10 * time.Second

// run delivers until the tenure ends or is to stop, and returns why.
func (s *session) run() error {
	wait := s.c.backoff(s.rand)
	var told string // the state that was last told to need a person
	for {
		began := s.c.cfg.Clock.Elapsed()
		err := s.read()
		if s.c.cfg.Clock.Elapsed()-began > s.c.cfg.RetryMax {
			wait.reset()
		}
		var pause time.Duration
		switch {
		case s.idle.Err() != nil:
			return s.ended()
		case errors.Is(err, errReopen):
			continue
		case errors.Is(err, ErrFenced), errors.Is(err, ErrStolen):
			return err
		case errors.Is(err, ErrRetention), errors.Is(err, ErrRecreated), errors.Is(err, ErrPastEnd):
			if told != err.Error() {
				told = err.Error()
				s.observe(Observation{Kind: KindStopped, From: s.pos, To: s.pos, Err: err})
			}
			pause = stoppedEvery
		default:
			s.failed(err)
			pause = wait.next()
		}
		if err := s.pause(pause); err != nil {
			return err
		}
	}
}

// leave tells the store that the partition is given up in good order, so that
// this claim does not count as one that ended in a crash.
func (s *session) leave() {
	ctx, cancel := s.parting()
	defer cancel()
	if err := s.checkpoints.Leave(ctx, s.lease); err != nil {
		s.failed(fmt.Errorf("leave checkpoint: %w", err))
	}
}

// claim makes the checkpoint this lease's and learns where it stands.
func (s *session) claim() error {
	ctx, cancel := s.brief()
	defer cancel()
	topic, err := s.c.source.Describe(ctx)
	if err != nil {
		return fmt.Errorf("describe topic: %w", err)
	}
	s.incarnation = topic.Incarnation
	p, err := s.checkpoints.Claim(s.work, s.lease, topic.Incarnation)
	if err != nil {
		return fmt.Errorf("claim checkpoint: %w", err)
	}
	if p.Incarnation != topic.Incarnation {
		return &RecreatedError{Topic: topic.Topic, Partition: s.lease.Partition, Had: p.Incarnation, Has: topic.Incarnation}
	}
	s.course.accept(p)
	if s.pos == driver.Unset {
		start, err := s.c.source.Seek(ctx, s.lease.Partition, s.c.cfg.Start, s.lease.Epoch)
		if err != nil {
			return fmt.Errorf("seek %s: %w", s.c.cfg.Start, err)
		}
		// Stored before the first event is read: a restart must not choose
		// another "latest" and skip what came in between.
		if err := s.course.begin(start); err != nil {
			return fmt.Errorf("store start: %w", err)
		}
	}
	if hook := s.c.cfg.Hooks.Assigned; hook != nil && !s.assigned {
		s.hook("assigned", func() error { return hook(s.work, s.lease, p) })
	}
	s.assigned = true
	return nil
}

// read claims the checkpoint, opens the log behind it and delivers until
// something ends that.
func (s *session) read() (err error) {
	if err := s.claim(); err != nil {
		return err
	}
	if err := s.course.beforeOpen(); err != nil {
		return err
	}
	opening, opened := s.brief()
	reader, err := s.c.source.Open(opening, s.lease.Partition, s.course.from(), s.lease.Epoch)
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
	s.observe(Observation{Kind: KindOpened, To: s.course.from()})

	box := newInbox(s.c.cfg.MaxBatch)
	ctx, cancel := context.WithCancel(s.idle)
	var fetching sync.WaitGroup
	fetching.Go(func() {
		box.fetch(ctx, reader, func(events []*Event) {
			newest, bytes := events[len(events)-1], 0
			for _, e := range events {
				bytes += len(e.Body)
			}
			last := newest.Position()
			s.observe(Observation{Kind: KindFetched, To: last, Events: len(events), Bytes: bytes, Enqueued: newest.Enqueued, Lag: s.fetched(last.Sequence)})
		})
	})
	defer fetching.Wait()
	defer cancel()
	return s.course.drain(box)
}

// sameTopic looks whether the log that was opened is the one whose checkpoint
// was claimed: it may have been recreated in between.
func (s *session) sameTopic() error {
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

func (s *session) final(err error, attempt int) bool {
	return errors.Is(err, ErrRejected) || attempt >= s.c.cfg.Attempts
}

// letter makes a dead letter of an event.
func (s *session) letter(e *Event, failure error, attempts int) DeadLetter {
	d := DeadLetter{
		Group: s.topic.Group, Incarnation: s.incarnation, FailedAt: s.c.cfg.Clock.Wall().UTC(),
		Error: describe(failure), Attempts: attempts, Status: StatusDead, Event: *e, HasBody: true,
	}
	properties, err := property.Encode(e.Properties)
	if limit := s.c.cfg.BodyLimit; err != nil || limit < 0 || len(e.Body)+len(properties) > limit {
		d.HasBody, d.Event.Body, d.Event.Properties = false, nil, nil
	}
	return d
}

// describe gives an error's text, bounded and never empty: an attempt without
// a text on record is one that did not come to an end.
func describe(err error) string {
	const most = 8 << 10
	text := cmp.Or(err.Error(), "error without a text")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + " …"
	}
	return text
}

// reread fetches a dead letter's event from the log.
func (s *session) reread(d *DeadLetter) (*Event, error) {
	if d.Incarnation != s.incarnation {
		return nil, &RecreatedError{Topic: s.topic.Topic, Partition: s.lease.Partition, Had: d.Incarnation, Has: s.incarnation}
	}
	before := Position{Sequence: d.Event.Sequence - 1}
	opening, opened := s.brief()
	defer opened()
	r, err := s.c.source.Open(opening, s.lease.Partition, before, s.lease.Epoch)
	if err != nil {
		return nil, fmt.Errorf("open event %d: %w", d.Event.Sequence, err)
	}
	events, err := r.Read(opening, 1)
	ctx, cancel := s.parting()
	defer cancel()
	if cerr := r.Close(ctx); err == nil && cerr != nil {
		err = cerr
	}
	if err != nil {
		return nil, fmt.Errorf("read event %d: %w", d.Event.Sequence, err)
	}
	if events[0].Sequence != d.Event.Sequence {
		return nil, &RetentionError{Partition: s.lease.Partition, After: before.Sequence, First: events[0].Sequence}
	}
	return events[0], s.sameTopic()
}

package sluice

import (
	"context"
	"errors"
	"fmt"

	"github.com/sluice-go/sluice/driver"
)

// Replayer is what [Replay] delivers to: memory that can be built anew from
// the log. Its functions are called one at a time for each partition.
type Replayer struct {
	// Apply takes a batch into memory, in the log's order; each event comes
	// once between an assignment and Released. After an error or a panic
	// nobody knows how much of the batch was taken: the partition is released
	// and read again from the start.
	Apply func(ctx context.Context, b Batch) error
	// CaughtUp, if set, is called once after each assignment, when all events
	// have been applied that the partition held at its beginning. What
	// follows comes as it is sent. An error counts as one of Apply.
	CaughtUp func(ctx context.Context, lease Lease) error
	// Released, if set, is told to drop what is in memory of the partition,
	// and why; nil for a stop in good order.
	Released func(lease Lease, cause error)
}

// Replay delivers into memory: without checkpoints and dead letters. On every
// assignment a partition is read from [Config.Start] on, for example [Ago] 24
// hours, and goes on as events come. It needs the log alone, and leases, which
// keep every partition with one process while that lives: so not with [Balanced]
// partitions. A connection that breaks repeats nothing.
func Replay(r Replayer) Delivery { return &replay{r} }

type replay struct{ Replayer }

func (d *replay) check() error {
	if d.Apply == nil {
		return errors.New("replay: Apply is missing")
	}
	return nil
}

func (d *replay) due(context.Context, Group, string) (bool, error) { return false, nil }

func (d *replay) redrive(*tenure) (applied, failed int, err error) {
	return 0, 0, errors.New("replay: there are no dead letters to retry")
}

// forgetful is a store of checkpoints that keeps none.
type forgetful struct{}

func (forgetful) Claim(_ context.Context, lease Lease, incarnation string) (Checkpoint, error) {
	return Checkpoint{Group: lease.Group, Partition: lease.Partition, Incarnation: incarnation, Position: driver.Unset, Owner: lease.Owner, Epoch: lease.Epoch}, nil
}

func (forgetful) Leave(context.Context, Lease) error { return nil }

// rerun is the replay of one partition during one tenure.
type rerun struct {
	*replay
	*session

	of     string // the incarnation that is in memory; empty if none is
	end    int64  // the newest event when reading began
	caught bool   // CaughtUp was called
}

// errReplay is a failure of the Replayer's functions.
var errReplay = errors.New("replay")

func (d *replay) deliver(t *tenure) error {
	s := &rerun{replay: d}
	s.session = &session{tenure: t, course: s, checkpoints: forgetful{}, pos: driver.Unset}
	wait := t.c.backoff(t.rand)
	for {
		began := t.c.cfg.Clock.Elapsed()
		err := s.read()
		if t.c.cfg.Clock.Elapsed()-began > t.c.cfg.RetryMax {
			wait.reset()
		}
		switch {
		case t.idle.Err() != nil:
			err = t.ended()
			s.drop(err)
			return err
		case errors.Is(err, errReopen):
			continue
		case errors.Is(err, ErrFenced), errors.Is(err, ErrStolen):
			s.drop(err)
			return err
		case errors.Is(err, errReplay), errors.Is(err, ErrRetention), errors.Is(err, ErrPastEnd), errors.Is(err, ErrRecreated):
			s.drop(err) // what is in memory is not what the log says
		}
		t.failed(err)
		if err := t.pause(wait.next()); err != nil {
			s.drop(err)
			return err
		}
	}
}

// drop has the memory dropped, so that the next reading begins anew.
func (s *rerun) drop(cause error) {
	held := s.of != ""
	s.of, s.pos, s.caught = "", driver.Unset, false
	if errors.Is(cause, ErrStopped) {
		cause = nil
	}
	if held && s.Released != nil {
		s.hook("released", func() error { s.Released(s.lease, cause); return nil })
	}
}

func (s *rerun) accept(Checkpoint) {}

func (s *rerun) begin(start Position) error {
	s.pos = start
	return nil
}

func (s *rerun) beforeOpen() error {
	if s.of != "" && s.of != s.incarnation {
		return &RecreatedError{Topic: s.topic.Topic, Partition: s.lease.Partition, Had: s.of, Has: s.incarnation}
	}
	if s.of != "" {
		return nil
	}
	ctx, cancel := s.brief()
	defer cancel()
	b, err := s.c.source.Bounds(ctx, s.lease.Partition)
	if err != nil {
		return fmt.Errorf("ask for the end: %w", err)
	}
	s.of, s.end = s.incarnation, b.Last.Sequence
	return nil
}

func (s *rerun) from() Position { return s.pos }

func (s *rerun) drain(box *inbox) error {
	for {
		if s.idle.Err() != nil {
			return s.ended()
		}
		if err := s.lookUp(); err != nil {
			return err
		}
		events, err := box.take(s.c.cfg.MaxBatch)
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

// apply takes events into memory. What is older than the end comes in batches
// of its own, so that CaughtUp is told between the two.
func (s *rerun) apply(events []*Event) error {
	for len(events) > 0 {
		n := len(events)
		for i, e := range events {
			if !s.caught && e.Sequence >= s.end {
				n = i + 1
				break
			}
		}
		b := Batch{Group: s.topic.Group, Partition: s.lease.Partition, Epoch: s.lease.Epoch, Events: events[:n]}
		began := s.c.cfg.Clock.Elapsed()
		if err := s.call("apply", func() error { return s.Apply(s.work, b) }); err != nil {
			return err
		}
		to := events[n-1].Position()
		s.observe(Observation{Kind: KindCommitted, From: s.pos, To: to, Events: n, Duration: s.c.cfg.Clock.Elapsed() - began, Lag: s.behind(to)})
		s.pos = to
		events = events[n:]
		if err := s.lookUp(); err != nil {
			return err
		}
	}
	return nil
}

// lookUp tells, once, when the partition has caught up.
func (s *rerun) lookUp() error {
	if s.caught || s.pos.Sequence < s.end {
		return nil
	}
	s.caught = true
	if s.CaughtUp == nil {
		return nil
	}
	return s.call("caught up", func() error { return s.CaughtUp(s.work, s.lease) })
}

// call calls a function of the Replayer's.
func (s *rerun) call(name string, fn func() error) error {
	if err := guard(fn); err != nil {
		return fmt.Errorf("%w: %s: %w", errReplay, name, err)
	}
	return nil
}

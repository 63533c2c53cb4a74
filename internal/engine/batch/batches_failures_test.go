package batch_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/sluicetest"
)

// downFor is a handler's API that fails without a mark, like most handlers report it.
func downFor(u *uploads) *atomic.Bool {
	var down atomic.Bool
	u.says = func(ctx context.Context, b sluice.Batch) error {
		if down.Load() {
			return errors.New("connection refused")
		}
		return verdict(ctx, b)
	}
	return &down
}

// Where every event fails and the handler does not mark that as an outage, the event that
// succeeded last fails too: no event becomes a dead letter, however long it lasts.
func TestBatchesHold(t *testing.T) {
	stage(t, 1, func(s *scene) {
		u := s.uploads()
		down := downFor(u)
		s.Send("0", "good", "good")
		_, stop := s.upload(u, nil, sluice.Config{})
		time.Sleep(time.Minute)
		down.Store(true)
		s.Send("0", slices.Repeat([]string{"good"}, 100)...)
		time.Sleep(3 * time.Hour)
		s.wantDead()
		s.wantPosition(1)
		if !slices.ContainsFunc(s.Errors(driver.KindFailed), func(text string) bool { return strings.Contains(text, "partition is held") }) {
			s.T.Error("the hold was not reported")
		}
		down.Store(false)
		if !s.movesWithin(time.Minute, 101) {
			s.T.Errorf("the checkpoint is at %d", s.Position("0"))
		}
		stop()
		s.wantDead()
		u.wantDone(102, 2) // the event that succeeded last, and another one's half
	})
}

// Nothing has succeeded yet: an event gets ten attempts more. So an outage at the start costs few
// dead letters, and events that are all bad do not hold the partition for ever.
func TestBatchesHoldAtTheStart(t *testing.T) {
	t.Run("outage", func(t *testing.T) {
		stage(t, 1, func(s *scene) {
			u := s.uploads()
			down := downFor(u)
			down.Store(true)
			s.Send("0", slices.Repeat([]string{"good"}, 100)...)
			_, stop := s.upload(u, nil, sluice.Config{})
			time.Sleep(30 * time.Second)
			s.wantDead()
			time.Sleep(10 * time.Minute)
			down.Store(false)
			if !s.movesWithin(time.Minute, 99) {
				s.T.Errorf("the checkpoint is at %d", s.Position("0"))
			}
			stop()
			if n := len(s.Letters()); n > 20 {
				s.T.Errorf("%d dead letters", n)
			}
		})
	})
	t.Run("bad events", func(t *testing.T) {
		stage(t, 1, func(s *scene) {
			s.Send("0", append(slices.Repeat([]string{"bad"}, 30), "good")...)
			u := s.uploads()
			_, stop := s.upload(u, nil, sluice.Config{})
			if !s.movesWithin(time.Hour, 30) {
				s.T.Errorf("the checkpoint is at %d", s.Position("0"))
			}
			stop()
			if n := len(s.Letters()); n != 30 {
				s.T.Errorf("%d dead letters", n)
			}
		})
	})
}

// A handler that rejects what it had done before shows nothing about its environment.
func TestBatchesHandlerThatRejectsRepeats(t *testing.T) {
	stage(t, 1, func(s *scene) {
		u := s.uploads()
		u.says = func(ctx context.Context, b sluice.Batch) error {
			u.mu.Lock()
			defer u.mu.Unlock()
			for i, e := range b.Events {
				if u.done[e.Sequence] > 0 {
					return &driver.EventError{Index: i, Err: driver.Reject(errors.New("409: exists"))}
				}
			}
			return verdict(ctx, b)
		}
		s.Send("0", "good", "bad", "good")
		_, stop := s.upload(u, nil, sluice.Config{})
		time.Sleep(5 * time.Minute)
		stop()
		s.wantDead(1)
		u.wantDone(3, 0, 1)
	})
}

// mortalQueue is a store whose process may end.
type mortalQueue struct {
	mortal
}

func (m *mortalQueue) Advance(ctx context.Context, l sluice.Lease, incarnation string, to sluice.Position, done []driver.SequenceRange) error {
	if err := m.gone(); err != nil {
		return err
	}
	return m.Store.Advance(ctx, l, incarnation, to, done)
}

func (m *mortalQueue) Park(ctx context.Context, list []sluice.DeadLetter) error {
	if err := m.gone(); err != nil {
		return err
	}
	return m.Store.Park(ctx, list)
}

// batchLife runs a process until its handler is at what is deadly, which ends it, or for two
// minutes. It reports whether the process has ended so.
func (s *scene) batchLife(owner string, u *uploads, cfg *sluice.BatchesConfig, deadly func(sluice.Batch) bool) bool {
	dead := make(chan struct{})
	h := func(ctx context.Context, b sluice.Batch) error {
		if deadly(b) {
			s.Leases.CutOff(owner)
			close(dead)
			<-ctx.Done()
			return ctx.Err()
		}
		return u.handle(ctx, b)
	}
	delivery := sluice.Batches(&mortalQueue{mortal{Store: s.Store, dead: dead}}, h, cfg)
	return s.diesIn(delivery, sluice.Config{Owner: owner, MaxBatch: 10}, dead)
}

// An event that ends the process is found, and becomes a dead letter.
func TestBatchesKiller(t *testing.T) {
	for name, cfg := range map[string]*sluice.BatchesConfig{"each batch": nil, "interval": {CheckpointEvery: time.Minute}} {
		t.Run(name, func(t *testing.T) {
			stage(t, 1, func(s *scene) {
				bodies := slices.Repeat([]string{"good"}, 30)
				bodies[17] = "kills"
				s.Send("0", bodies...)
				u := s.uploads()
				deaths := 0
				for s.batchLife(fmt.Sprint("life", deaths), u, cfg, func(b sluice.Batch) bool {
					return slices.ContainsFunc(b.Events, func(e *sluice.Event) bool { return string(e.Body) == "kills" })
				}) {
					if deaths++; deaths > 10 {
						s.T.Fatal("the event is not found")
					}
				}
				s.wantDead(17)
				if l := s.Letters(); len(l) > 0 && !strings.Contains(l[0].Error, "process ended 3 times") {
					s.T.Errorf("dead letter: %s", l[0].Error)
				}
				s.wantPosition(29)
				u.wantDone(30, 10*deaths, 17)
			})
		})
	}
}

// A redrive that ends the process is stopped too.
func TestBatchesKillerOnRedrive(t *testing.T) {
	stage(t, 1, func(s *scene) {
		s.Send("0", "reject", "good")
		u := s.uploads()
		_, stop := s.upload(u, nil, sluice.Config{Owner: "before"})
		time.Sleep(time.Minute)
		stop()
		s.RedriveAll()
		deaths := 0
		for s.batchLife(fmt.Sprint("life", deaths), u, nil, func(b sluice.Batch) bool { return b.Redriven }) {
			if deaths++; deaths > 10 {
				s.T.Fatal("the redrive is repeated for ever")
			}
		}
		if l := s.Letters(sluice.StatusDead); deaths != 3 || len(l) != 1 || !strings.Contains(l[0].Error, "process ended") {
			s.T.Errorf("%d deaths, dead letters %+v", deaths, l)
		}
	})
}

// A handler that hangs is reported, and holds up its partition alone.
func TestBatchesHang(t *testing.T) {
	stage(t, 2, func(s *scene) {
		u := s.uploads()
		free := make(chan struct{})
		u.says = func(_ context.Context, b sluice.Batch) error {
			if b.Partition == "0" {
				<-free
			}
			return nil
		}
		s.Send("0", "hangs")
		s.Send("1", "good")
		_, stop := s.upload(u, nil, sluice.Config{})
		time.Sleep(5 * time.Minute)
		if at := s.Position("1"); at != 0 {
			s.T.Errorf("the other partition is at %d", at)
		}
		if texts := s.Stalls(); !slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(text, "handler") }) {
			s.T.Errorf("reported stalls: %q", texts)
		}
		close(free)
		time.Sleep(time.Second)
		s.wantPosition(0)
		stop()
	})
}

// Dead letters that are not stored hold the checkpoint, and are stored later.
func TestBatchesDeadLetterNotStored(t *testing.T) {
	stage(t, 1, func(s *scene) {
		var down atomic.Bool
		down.Store(true)
		s.Store.Faults = &writes{func(op sluicetest.Op, apply func() error) error {
			if op == sluicetest.OpPark && down.Load() {
				return errors.New("connection lost")
			}
			return apply()
		}}
		s.Send("0", "reject", "good")
		u := s.uploads()
		_, stop := s.upload(u, nil, sluice.Config{})
		time.Sleep(5 * time.Minute)
		s.wantPosition(driver.Origin.Sequence)
		down.Store(false)
		time.Sleep(time.Minute)
		stop()
		s.wantDead(0)
		s.wantPosition(1)
		u.wantDone(2, 0, 0)
	})
}

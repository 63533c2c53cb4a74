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
	"github.com/sluice-go/sluice/internal/engine/enginetest"
	"github.com/sluice-go/sluice/sluicetest"
)

// uncleanEnds is the claims of processes that ended without a trace.
func (s *scene) uncleanEnds(partition string, n int) {
	s.T.Helper()
	topic := enginetest.Must(s.Hub.Describe(s.T.Context()))
	for i := range n {
		owner := fmt.Sprint("ended", i)
		lease := enginetest.Must(s.Leases.Acquire(s.T.Context(), enginetest.Group, partition, owner, time.Minute, 0))
		enginetest.Must(s.Store.Claim(s.T.Context(), lease, topic.Incarnation))
		if err := s.Leases.Release(s.T.Context(), lease); err != nil {
			s.T.Fatal(err)
		}
	}
}

func (s *scene) attempt(partition string) driver.AttemptRecord {
	for _, p := range enginetest.Must(s.Store.Read(s.T.Context(), enginetest.Group)) {
		if p.Partition == partition {
			return p.Attempt
		}
	}
	return driver.AttemptRecord{}
}

// refused makes the commits fail that it is asked to.
type refused struct {
	fails func(step driver.Step) error
}

func (r *refused) Before(sluicetest.Op, sluice.Lease) error { return nil }

func (r *refused) Commit(step driver.Step, apply func() error) error {
	if err := r.fails(step); err != nil {
		return err
	}
	return apply()
}

// An attempt at a suspected event that returned, because the database failed or the
// consumer was stopped, has not ended the process.
func TestReturnedAttemptIsNoDeath(t *testing.T) {
	for name, stopped := range map[string]bool{"outage": false, "stop": true} {
		t.Run(name, func(t *testing.T) {
			stage(t, 1, func(s *scene) {
				s.Send("0", "good")
				_, end := s.Consume("first", enginetest.InsertBatch, sluice.Config{})
				time.Sleep(time.Minute)
				end()
				s.uncleanEnds("0", 4)
				s.Send("0", "good")
				var hard atomic.Bool
				hard.Store(true)
				s.Store.Faults = &refused{func(step driver.Step) error {
					if !stopped && hard.Load() && step.To.Sequence == 1 {
						return errors.New("connection lost")
					}
					return nil
				}}
				h := func(ctx context.Context, tx *sluicetest.Tx, b sluice.Batch) error {
					if stopped && hard.Load() {
						<-ctx.Done()
						return ctx.Err()
					}
					return enginetest.InsertBatch(ctx, tx, b)
				}
				for n := range 5 {
					s.uncleanEnds("0", 3) // the suspicion stays
					_, end := s.Consume(fmt.Sprint("a", n), h, sluice.Config{})
					time.Sleep(time.Minute)
					if got := s.attempt("0").Unreturned; got > 1 {
						s.T.Errorf("%d attempts in progress are on record, want one at most", got)
					}
					end()
					if got := s.attempt("0"); got != (driver.AttemptRecord{}) {
						s.T.Errorf("after a clean release %+v is on record, want nothing", got)
					}
				}
				hard.Store(false)
				_, end = s.Consume("last", h, sluice.Config{})
				time.Sleep(time.Minute)
				end()
				if letters := s.Letters(); len(letters) != 0 || len(s.Rows()) != 2 {
					s.T.Errorf("%d rows, dead letters %+v", len(s.Rows()), letters)
				}
			})
		})
	}
}

// A process that ends while a partition is held has not ended by the event that is tried.
func TestHoldIsNoDeath(t *testing.T) {
	stage(t, 1, func(s *scene) {
		s.Send("0", slices.Repeat([]string{"good"}, 200)...)
		s.uncleanEnds("0", 4)
		var broken atomic.Bool
		broken.Store(true)
		for n := range 5 {
			s.idleLife(fmt.Sprint("waits", n), needs(&broken))
			if got := s.attempt("0"); got.Sequence == 0 || got.Unreturned != 0 {
				s.T.Errorf("on record is %+v", got)
			}
		}
		for _, l := range s.Letters() {
			if strings.Contains(l.Error, "process ended") {
				s.T.Errorf("dead letter of event %d: %s", l.Event.Sequence, l.Error)
			}
		}
	})
}

// A process that ends while it waits, after the handler has reported an outage or the commit
// has failed, has not ended by the event.
func TestWaitingIsNoDeath(t *testing.T) {
	for _, what := range []string{"handler", "commit"} {
		t.Run(what, func(t *testing.T) {
			stage(t, 1, func(s *scene) {
				s.Send("0", "good")
				s.life(0, func(sluice.Batch) bool { return false })
				s.Send("0", "good")
				s.uncleanEnds("0", 4)
				h := enginetest.InsertBatch
				if what == "handler" {
					h = func(context.Context, *sluicetest.Tx, sluice.Batch) error {
						return driver.Outage(errors.New("service is down"))
					}
				} else {
					s.Store.Faults = &refused{func(driver.Step) error { return errors.New("table is missing") }}
				}
				for n := range 5 {
					s.idleLife(fmt.Sprint("waits", n), h)
					if got := s.attempt("0"); got.Unreturned != 0 {
						s.T.Errorf("on record is %+v", got)
					}
				}
				s.Store.Faults = nil
				s.life(1, func(sluice.Batch) bool { return false })
				if len(s.Rows()) != 2 || len(s.Letters()) != 0 {
					s.T.Errorf("%d rows, dead letters %+v", len(s.Rows()), s.Letters())
				}
			})
		})
	}
}

// idleLife runs a process for a minute, and ends it without a trace.
func (s *scene) idleLife(owner string, h sluice.Handler[*sluicetest.Tx]) {
	dead := make(chan struct{})
	c := enginetest.Must(sluice.New(s.Hub, s.Leases, sluice.Transactional(&mortal{Store: s.Store, dead: dead}, h), &sluice.Config{Owner: owner, Observer: s}))
	ctx, cancel := context.WithCancel(s.T.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = c.Run(ctx) }()
	time.Sleep(time.Minute)
	s.Leases.CutOff(owner)
	close(dead)
	cancel()
	<-done
	time.Sleep(time.Minute)
}

// A redrive that returned has not ended the process either.
func TestReturnedRedriveIsNoDeath(t *testing.T) {
	stage(t, 1, func(s *scene) {
		s.LeaveDeadLetters(sluice.Config{})
		s.RedriveAll()
		var hard atomic.Bool
		hard.Store(true)
		s.Store.Faults = &refused{func(step driver.Step) error {
			if len(step.Redriven) > 0 && hard.Load() {
				return errors.New("connection lost")
			}
			return nil
		}}
		for n := range 5 {
			_, end := s.Consume(fmt.Sprint("a", n), enginetest.InsertRedriven, sluice.Config{})
			time.Sleep(time.Minute)
			end()
			if got := s.attempt("0"); got != (driver.AttemptRecord{}) {
				s.T.Errorf("after a clean release %+v is on record, want nothing", got)
			}
		}
		hard.Store(false)
		_, end := s.Consume("last", enginetest.InsertRedriven, sluice.Config{})
		time.Sleep(time.Minute)
		end()
		if letters := s.Letters(); len(letters) != 0 {
			s.T.Errorf("dead letters %+v", letters)
		}
		s.exactly(30)
	})
}

// life runs a process until its handler is at what is deadly, which ends it, or for a minute.
// It reports whether the process has ended so.
func (s *scene) life(n int, deadly func(b sluice.Batch) bool) bool {
	return s.lifeWith(n, enginetest.InsertRedriven, deadly)
}

func (s *scene) lifeWith(n int, handler sluice.Handler[*sluicetest.Tx], deadly func(b sluice.Batch) bool) bool {
	owner, dead := fmt.Sprint("life", n), make(chan struct{})
	h := func(ctx context.Context, tx *sluicetest.Tx, b sluice.Batch) error {
		if deadly(b) {
			s.Leases.CutOff(owner)
			close(dead)
			<-ctx.Done()
			return ctx.Err()
		}
		return handler(ctx, tx, b)
	}
	return s.diesIn(sluice.Transactional(&mortal{Store: s.Store, dead: dead}, h), sluice.Config{Partitions: 1, Owner: owner}, dead)
}

// diesIn runs a process until it is dead, or for two minutes. It reports whether it has died.
func (s *scene) diesIn(delivery sluice.Delivery, cfg sluice.Config, dead chan struct{}) bool {
	cfg.Observer = s
	c := enginetest.Must(sluice.New(s.Hub, s.Leases, delivery, &cfg))
	ctx, cancel := context.WithCancel(s.T.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = c.Run(ctx) }()
	defer func() { cancel(); <-done }()
	select {
	case <-dead:
		return true
	case <-time.After(2 * time.Minute):
		return false
	}
}

// A redrive that ends the process leaves its count to no event of the same number.
func TestRedriveLeavesItsCountToNoEvent(t *testing.T) {
	stage(t, 1, func(s *scene) {
		s.Send("0", "reject")
		_, end := s.Consume("before", enginetest.InsertRedriven, sluice.Config{})
		time.Sleep(time.Minute)
		end()
		s.Hub.Recreate()
		topic := enginetest.Must(s.Hub.Describe(s.T.Context()))
		enginetest.Must(s.Store.Reset(s.T.Context(), enginetest.Group, "0", topic.Incarnation, driver.Origin, "set"))
		s.RedriveAll()
		for n := range 2 {
			if !s.life(n, func(b sluice.Batch) bool { return b.Redriven }) {
				s.T.Fatal("nothing was redriven")
			}
		}
		enginetest.Must(s.Store.Discard(s.T.Context(), enginetest.Group, sluice.DeadLetterFilter{}))
		s.Send("0", "good")
		s.life(2, func(b sluice.Batch) bool { return !b.Redriven })
		s.life(3, func(b sluice.Batch) bool { return !b.Redriven })
		s.life(4, func(sluice.Batch) bool { return false })
		if rows := s.Rows(); !slices.Equal(rows, []int64{0}) || len(s.Letters()) != 1 {
			s.T.Errorf("rows %v, dead letters %+v; want the event handled", rows, s.Letters())
		}
	})
}

// Failed attempts are no deaths.
func TestFailedAttemptsAreNoDeaths(t *testing.T) {
	stage(t, 1, func(s *scene) {
		s.Send("0", "good")
		s.life(0, func(sluice.Batch) bool { return false })
		s.Send("0", "bad")
		_, end := s.Consume("a", enginetest.InsertRedriven, sluice.Config{RetryMin: time.Hour, RetryMax: time.Hour})
		time.Sleep(time.Minute)
		end()
		s.uncleanEnds("0", 4)
		deaths := 0
		for n := range 10 {
			if s.life(n+1, func(b sluice.Batch) bool { return true }) {
				deaths++
			}
		}
		if letters := s.Letters(); deaths != 3 || len(letters) != 1 || !strings.Contains(letters[0].Error, "process ended 3 times") || letters[0].Attempts != 4 {
			s.T.Errorf("%d deaths, dead letters %+v", deaths, letters)
		}
	})
}

// A suspected event whose handler hangs does not hold up those of other partitions.
func TestSuspectThatHangs(t *testing.T) {
	stage(t, 3, func(s *scene) {
		for p := range 3 {
			s.Send(fmt.Sprint(p), "good")
		}
		_, end := s.Consume("first", enginetest.InsertBatch, sluice.Config{})
		time.Sleep(time.Minute)
		end()
		for p := range 3 {
			s.uncleanEnds(fmt.Sprint(p), 4)
			s.Send(fmt.Sprint(p), "good", "good")
		}
		_, end = s.Consume("a", func(ctx context.Context, tx *sluicetest.Tx, b sluice.Batch) error {
			if b.Partition == "0" {
				<-ctx.Done()
				return ctx.Err()
			}
			return enginetest.InsertBatch(ctx, tx, b)
		}, sluice.Config{})
		time.Sleep(2 * time.Minute)
		if s.Position("1") != 2 || s.Position("2") != 2 {
			s.T.Errorf("partitions are at %d and %d, want 2", s.Position("1"), s.Position("2"))
		}
		end()
	})
}

// TestSuspectThatWaits: the third of three partitions whose suspects hang waits for two leases, and
// is reported.
func TestSuspectThatWaits(t *testing.T) {
	stage(t, 3, func(s *scene) {
		for p := range 3 {
			s.uncleanEnds(fmt.Sprint(p), 4)
			s.Send(fmt.Sprint(p), "good")
		}
		_, end := s.Consume("a", func(ctx context.Context, _ *sluicetest.Tx, _ sluice.Batch) error {
			<-ctx.Done()
			return ctx.Err()
		}, sluice.Config{})
		time.Sleep(50 * time.Second)
		waits := 0
		for _, o := range s.Observations(driver.KindStalled) {
			if strings.Contains(o.Err.Error(), "an event that may have ended the process has waited for 30s") {
				waits++
			}
		}
		if waits != 1 {
			s.T.Errorf("reported %d times, want once: %q", waits, s.Stalls())
		}
		end()
	})
}

// How often an idle process ends says nothing about the events that come later.
func TestIdleEndsRaiseNoSuspicion(t *testing.T) {
	for name, before := range map[string]func(s *scene){
		"lived for a while": func(s *scene) {
			for n := range 8 {
				s.idleLife(fmt.Sprint("idle", n), enginetest.InsertBatch)
			}
		},
		"ended at once": func(s *scene) { s.uncleanEnds("0", 10) },
	} {
		t.Run(name, func(t *testing.T) {
			stage(t, 1, func(s *scene) {
				s.Send("0", "good")
				_, end := s.Consume("first", enginetest.InsertBatch, sluice.Config{})
				time.Sleep(time.Minute)
				end()
				before(s)
				batches := 0
				_, end = s.Consume("a", func(ctx context.Context, tx *sluicetest.Tx, b sluice.Batch) error {
					batches++
					return enginetest.InsertBatch(ctx, tx, b)
				}, sluice.Config{})
				time.Sleep(time.Minute)
				s.Send("0", slices.Repeat([]string{"good"}, 1000)...)
				time.Sleep(time.Minute)
				end()
				if len(s.Rows()) != 1001 || batches > 10 {
					s.T.Errorf("%d rows in %d batches, want few", len(s.Rows()), batches)
				}
			})
		})
	}
}

// Once the event is found that ends the process, the others go in batches again.
func TestSuspicionEndsWithTheConviction(t *testing.T) {
	stage(t, 1, func(s *scene) {
		s.Send("0", "good")
		s.life(0, func(sluice.Batch) bool { return false })
		s.Send("0", slices.Repeat([]string{"good"}, 200)...)
		deaths, batches := 0, 0
		for n := range 20 {
			batches = 0
			if !s.life(n+1, func(b sluice.Batch) bool {
				batches++
				return slices.ContainsFunc(b.Events, func(e *sluice.Event) bool { return e.Sequence == 5 })
			}) {
				break
			}
			deaths++
		}
		if deaths != 6 || len(s.Letters()) != 1 || len(s.Rows()) != 200 || batches > 10 {
			s.T.Errorf("%d deaths, %d dead letters, %d rows; %d batches in the last life, want few", deaths, len(s.Letters()), len(s.Rows()), batches)
		}
	})
}

package batch_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine/enginetest"
	"github.com/sluice-go/sluice/sluicetest"
)

// notOther leaves out the events whose body begins with "other", whatever else would happen to
// them.
func notOther(e *sluice.Event) bool { return !strings.HasPrefix(string(e.Body), "other") }

// filtered is how many events the observations of a kind say were left out.
func (s *scene) filtered(kind driver.ObservationKind) (n int) {
	for _, o := range s.Observations(kind) {
		n += o.Filtered
	}
	return n
}

// mixed sends 400 events, of which every fourth is to be handled, and ends with one that is not.
// It returns the numbers of those that are neither left out nor rejected.
func (s *scene) mixed() (good []int64) {
	bodies := slices.Repeat([]string{"other: reject"}, 400)
	for i := 2; i < len(bodies); i += 4 {
		bodies[i] = "good"
		switch i {
		case 50, 54, 202:
			bodies[i] = fmt.Sprintf("reject %d", i)
		default:
			good = append(good, int64(i))
		}
	}
	s.Send("0", bodies...)
	return good
}

// TestFilter: no delivery hands on what the filter leaves out; the checkpoint passes it.
func TestFilter(t *testing.T) {
	for name, start := range map[string]func(s *scene, cfg sluice.Config) (stop func(), done func() []int64, counted driver.ObservationKind){
		"transactional": func(s *scene, cfg sluice.Config) (func(), func() []int64, driver.ObservationKind) {
			_, end := s.Consume("a", sluice.Each(enginetest.Insert), cfg)
			return end, s.Rows, driver.KindCommitted
		},
		"the handler blames no event": func(s *scene, cfg sluice.Config) (func(), func() []int64, driver.ObservationKind) {
			_, end := s.Consume("a", enginetest.InsertBatch, cfg)
			return end, s.Rows, driver.KindCommitted
		},
		"batches": func(s *scene, cfg sluice.Config) (func(), func() []int64, driver.ObservationKind) {
			var done []int64
			handler := func(ctx context.Context, b sluice.Batch) error {
				if err := verdict(ctx, b); err != nil {
					return err
				}
				for _, e := range b.Events {
					done = append(done, e.Sequence)
				}
				return nil
			}
			c := enginetest.Must(sluice.New(s.Hub, s.Leases, sluice.Batches(s.Store, handler, nil), &cfg))
			return runs(s.T, c), func() []int64 { return done }, driver.KindCommitted
		},
		"at least once": func(s *scene, cfg sluice.Config) (func(), func() []int64, driver.ObservationKind) {
			w := enginetest.NewWarehouse(s.T)
			w.Says = func(e *sluice.Event, _ int) error {
				if strings.HasPrefix(string(e.Body), "reject") {
					return driver.Reject(errors.New(string(e.Body)))
				}
				return nil
			}
			c := enginetest.Must(sluice.New(s.Hub, s.Leases, sluice.AtLeastOnce(s.Store, sluice.EventAsRecord, w, nil), &cfg))
			return runs(s.T, c), func() []int64 { return enginetest.Sorted(w.Rows()) }, driver.KindWritten
		},
	} {
		t.Run(name, func(t *testing.T) {
			stage(t, 1, func(s *scene) {
				want := s.mixed()
				stop, done, counted := start(s, sluice.Config{Filter: notOther, Observer: s, MaxBatch: 70})
				time.Sleep(time.Minute)
				stop()
				if got := done(); !slices.Equal(got, want) {
					s.T.Errorf("%d events done: %v, want %d", len(got), got, len(want))
				}
				var dead []int64
				for _, d := range s.Letters(sluice.StatusDead) {
					dead = append(dead, d.Event.Sequence)
				}
				if !slices.Equal(enginetest.Sorted(dead), []int64{50, 54, 202}) {
					s.T.Errorf("dead letters %v", dead)
				}
				if p := s.Position("0"); p != 399 {
					s.T.Errorf("checkpoint at %d", p)
				}
				if n := s.filtered(counted); n != 300 {
					s.T.Errorf("%d events counted as left out, want 300", n)
				}
			})
		})
	}
}

// runs runs a consumer; the function that it returns stops it.
func runs(t *testing.T, c *sluice.Consumer) func() {
	ran := make(chan error, 1)
	go func() { ran <- c.Run(t.Context()) }()
	return func() {
		if err := errors.Join(c.Stop(t.Context()), <-ran); err != nil {
			t.Error(err)
		}
	}
}

// TestFilterInReplay: events that are left out move the position all the same.
func TestFilterInReplay(t *testing.T) {
	stage(t, 1, func(s *scene) {
		s.mixed()
		var mu sync.Mutex
		var bodies []string
		caught := make(chan bool, 1)
		c := enginetest.Must(sluice.New(s.Hub, s.Leases, sluice.Replay(sluice.Replayer{
			Apply: func(_ context.Context, b sluice.Batch) error {
				mu.Lock()
				defer mu.Unlock()
				for _, e := range b.Events {
					bodies = append(bodies, string(e.Body))
				}
				return nil
			},
			CaughtUp: func(context.Context, sluice.Lease) error { caught <- true; return nil },
		}), &sluice.Config{Filter: notOther, Observer: s, MaxBatch: 1}))
		stop := runs(s.T, c)
		time.Sleep(time.Minute)
		stop()
		if len(bodies) != 100 || slices.ContainsFunc(bodies, func(b string) bool { return strings.HasPrefix(b, "other") }) || len(caught) != 1 {
			s.T.Errorf("%d events in memory, caught up: %d", len(bodies), len(caught))
		}
		if n := s.filtered(driver.KindCommitted); n != 300 {
			s.T.Errorf("%d events counted as left out, want 300", n)
		}
	})
}

// TestFilteredEventIsNoWitness: while every event fails that is handled, those that are not do not
// show that handling works, so none becomes a dead letter.
func TestFilteredEventIsNoWitness(t *testing.T) {
	stage(t, 1, func(s *scene) {
		bodies := slices.Repeat([]string{"other"}, 400)
		for i := 0; i < len(bodies); i += 10 {
			bodies[i] = "good"
		}
		s.Send("0", bodies...)
		_, end := s.Consume("a", sluice.Each(func(_ context.Context, _ *sluicetest.Tx, e *sluice.Event) error {
			if !notOther(e) {
				return nil // it has nothing to do
			}
			return errors.New("a trigger raises")
		}), sluice.Config{Filter: notOther, MaxBatch: 300})
		time.Sleep(10 * time.Minute)
		end()
		if n := len(s.Letters()); n != 0 {
			s.T.Errorf("%d dead letters", n)
		}
	})
}

// TestRedriveOfFilteredEvents: a dead letter that the filter leaves out now is removed by its
// redrive, without the handler.
func TestRedriveOfFilteredEvents(t *testing.T) {
	for name, redrive := range map[string]func(s *scene, cfg sluice.Config){
		"transactional": func(s *scene, cfg sluice.Config) {
			_, end := s.Consume("b", sluice.Each(enginetest.Insert), cfg)
			time.Sleep(time.Minute)
			end()
		},
		"at least once": func(s *scene, cfg sluice.Config) {
			w := enginetest.NewWarehouse(s.T)
			w.Says = func(*sluice.Event, int) error { return driver.Reject(errors.New("still")) }
			_, stop := s.Pour(w, nil, cfg)
			time.Sleep(time.Minute)
			if err := stop(); err != nil {
				s.T.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			stage(t, 1, func(s *scene) {
				s.LeaveDeadLetters(sluice.Config{})
				s.RedriveAll()
				redrive(s, sluice.Config{Filter: func(e *sluice.Event) bool { return e.Sequence != 3 }})
				dead := s.Letters(sluice.StatusDead)
				if len(dead) != 9 || slices.ContainsFunc(dead, func(d sluice.DeadLetter) bool { return d.Event.Sequence == 3 }) || len(s.Rows()) != 20 {
					s.T.Errorf("%d dead letters, %d rows", len(dead), len(s.Rows()))
				}
			})
		})
	}
}

// TestFilterThatPanics: the event is handled.
func TestFilterThatPanics(t *testing.T) {
	stage(t, 1, func(s *scene) {
		s.Send("0", "good", "other")
		_, end := s.Consume("a", sluice.Each(enginetest.Insert), sluice.Config{Filter: func(e *sluice.Event) bool { panic("no") }})
		time.Sleep(time.Minute)
		end()
		if got := s.Rows(); !slices.Equal(got, []int64{0, 1}) {
			s.T.Errorf("rows %v", got)
		}
	})
}

// TestFilterThatChangesItsMind: an error of the handler is about the events that the handler got,
// also if the filter decides otherwise when it is asked again.
func TestFilterThatChangesItsMind(t *testing.T) {
	stage(t, 1, func(s *scene) {
		s.Send("0", "other", "good", "reject", "good")
		asked := false
		_, end := s.Consume("a", sluice.Each(enginetest.Insert), sluice.Config{Filter: func(e *sluice.Event) bool {
			if e.Sequence > 0 {
				return true
			}
			defer func() { asked = true }()
			return asked
		}})
		time.Sleep(time.Minute)
		end()
		dead := s.Letters()
		if len(dead) != 1 || dead[0].Event.Sequence != 2 || !slices.Equal(s.Rows(), []int64{0, 1, 3}) {
			s.T.Errorf("dead letters %+v, rows %v", dead, s.Rows())
		}
	})
}

// TestFilterThatHangs: it is reported, and a stop waits for one call of it at most.
func TestFilterThatHangs(t *testing.T) {
	stage(t, 1, func(s *scene) {
		s.Send("0", slices.Repeat([]string{"good"}, 500)...)
		_, end := s.Consume("a", sluice.Each(enginetest.Insert), sluice.Config{Filter: func(*sluice.Event) bool {
			time.Sleep(10 * time.Second)
			return true
		}})
		time.Sleep(2 * time.Minute)
		if s.Count(driver.KindStalled) == 0 {
			s.T.Error("the filter is not reported")
		}
		began := time.Now()
		end()
		if took := time.Since(began); took > 11*time.Second {
			s.T.Errorf("the stop took %v", took)
		}
	})
}

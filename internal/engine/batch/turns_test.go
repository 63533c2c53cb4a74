package batch_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine/enginetest"
	"github.com/sluice-go/sluice/sluicetest"
)

// manyParked leaves 100 dead letters.
func (s *scene) manyParked() {
	s.Send("0", slices.Repeat([]string{"reject"}, 100)...)
	_, end := s.Consume("before", enginetest.InsertRedriven, sluice.Config{})
	time.Sleep(time.Minute)
	end()
	if n := len(s.Letters()); n != 100 {
		s.T.Fatalf("%d dead letters", n)
	}
	s.RedriveAll()
}

// Redrives that time out, and redrives that take long, leave the events after the
// checkpoint their share of the time.
func TestRedrivesAndEventsTakeTurns(t *testing.T) {
	t.Run("time-outs", func(t *testing.T) {
		stage(t, 1, func(s *scene) {
			s.manyParked()
			s.Store.Faults = &refused{func(step driver.Step) error {
				if len(step.Redriven) > 0 {
					time.Sleep(10 * time.Second)
					return errors.New("no answer")
				}
				return nil
			}}
			if worst := s.lateness(5*time.Minute, sluice.Config{}, enginetest.InsertRedriven); worst > 25*time.Second {
				s.T.Errorf("an event waited for %v", worst)
			}
		})
	})
	t.Run("slow", func(t *testing.T) {
		stage(t, 1, func(s *scene) {
			s.manyParked()
			worst := s.lateness(5*time.Minute, sluice.Config{}, func(ctx context.Context, tx *sluicetest.Tx, b sluice.Batch) error {
				if b.Redriven {
					time.Sleep(time.Duration(len(b.Events)) * 400 * time.Millisecond)
				}
				return enginetest.InsertRedriven(ctx, tx, b)
			})
			if worst > 3*time.Second {
				s.T.Errorf("an event waited for %v", worst)
			}
			if n := len(s.Letters()); n != 0 {
				s.T.Errorf("%d dead letters are left", n)
			}
			s.exactly(400)
		})
	})
	t.Run("backlog", func(t *testing.T) {
		stage(t, 1, func(s *scene) {
			s.manyParked()
			s.Send("0", slices.Repeat([]string{"good"}, 1000)...)
			var redriving, since time.Duration // of the handler's calls, and how much events had of it
			_, end := s.Consume("a", func(ctx context.Context, tx *sluicetest.Tx, b sluice.Batch) error {
				time.Sleep(100 * time.Millisecond)
				if b.Redriven {
					redriving += 100 * time.Millisecond
				} else if redriving > 0 && redriving < 10*time.Second {
					since += 100 * time.Millisecond
				}
				return enginetest.InsertRedriven(ctx, tx, b)
			}, sluice.Config{MaxBatch: 1, RedriveEvery: time.Second})
			time.Sleep(5 * time.Minute)
			end()
			if redriving != 10*time.Second || since < 8*time.Second || since > 12*time.Second {
				s.T.Errorf("while there were redrives, they had %v and the events behind the checkpoint %v", redriving, since)
			}
			s.exactly(1100)
		})
	})
	t.Run("long batches", func(t *testing.T) {
		stage(t, 1, func(s *scene) {
			s.manyParked()
			s.Send("0", slices.Repeat([]string{"good"}, 1000)...)
			var redriving, since time.Duration
			_, end := s.Consume("a", func(ctx context.Context, tx *sluicetest.Tx, b sluice.Batch) error {
				takes := 4 * time.Second
				if b.Redriven {
					takes = time.Duration(len(b.Events)) * 200 * time.Millisecond
					redriving += takes
				} else if redriving > 0 && redriving < 20*time.Second {
					since += takes
				}
				time.Sleep(takes)
				return enginetest.InsertRedriven(ctx, tx, b)
			}, sluice.Config{MaxBatch: 10, RedriveEvery: time.Second})
			time.Sleep(10 * time.Minute)
			end()
			if redriving != 20*time.Second || since < 10*time.Second || since > 30*time.Second {
				s.T.Errorf("while there were redrives, they had %v and the events behind the checkpoint %v", redriving, since)
			}
		})
	})
}

// Dead letters without bodies are read from the log, for which the reader of the events is closed.
// The events have their turn all the same.
func TestRedrivesWithoutBodiesAndEventsTakeTurns(t *testing.T) {
	stage(t, 1, func(s *scene) {
		cfg := sluice.Config{BodyLimit: -1}
		const letters, events = 400, 240
		s.Send("0", slices.Repeat([]string{"reject"}, letters)...)
		_, end := s.Consume("before", enginetest.InsertRedriven, cfg)
		time.Sleep(time.Minute)
		end()
		s.RedriveAll()
		sent := map[int64]time.Time{}
		var late []time.Duration
		var mu sync.Mutex
		_, stop := s.Run(enginetest.SlowLog{Hub: s.Hub, Takes: 300 * time.Millisecond}, sluice.Transactional(s.Store, func(ctx context.Context, tx *sluicetest.Tx, b sluice.Batch) error {
			mu.Lock()
			for _, e := range b.Events {
				if at, ok := sent[e.Sequence]; ok && !b.Redriven {
					late = append(late, time.Since(at))
				}
			}
			mu.Unlock()
			return enginetest.InsertRedriven(ctx, tx, b)
		}), cfg)
		for n := range int64(events) {
			mu.Lock()
			sent[letters+n] = time.Now()
			mu.Unlock()
			s.Send("0", "good")
			time.Sleep(time.Second)
		}
		if n := s.Count(driver.KindRedriven); n < letters/4 {
			s.T.Errorf("%d of %d dead letters were redriven beside the events", n, letters)
		}
		time.Sleep(10 * time.Minute)
		stop()
		slices.Sort(late)
		if len(late) != events || late[events*99/100] > 4*time.Second {
			s.T.Errorf("%d of %d events, late by up to %v, want 4s at most", len(late), events, late[len(late)*99/100])
		}
		s.T.Logf("events late by %v (median), %v (99 %%)", late[len(late)/2], late[len(late)*99/100])
		s.exactly(letters + events)
	})
}

package batch_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine/enginetest"
	"github.com/sluice-go/sluice/sluicetest"
)

// rejectAll leaves a dead letter for each of n events, marked for redrive.
func (s *scene) rejectAll(n int, cfg sluice.Config) {
	s.Send("0", slices.Repeat([]string{"reject"}, n)...)
	_, end := s.Consume("before", enginetest.InsertRedriven, cfg)
	time.Sleep(time.Minute)
	end()
	if got := len(s.Letters()); got != n {
		s.T.Fatalf("%d dead letters, want %d", got, n)
	}
	s.RedriveAll()
}

// Many dead letters are redriven in few steps, and their events are read from the log in few runs.
// Those that fail again are found, and each is stored with its own error.
func TestRedriveRuns(t *testing.T) {
	for name, limit := range map[string]int{"stored body": 0, "body read from the log": -1} {
		for kind, says := range map[string]func(i int) error{
			"named":     func(i int) error { return &driver.EventError{Index: i, Err: errors.New("no better")} },
			"not named": func(int) error { return errors.New("no better") },
		} {
			t.Run(name+", "+kind, func(t *testing.T) {
				stage(t, 1, func(s *scene) {
					const letters = 2000
					cfg := sluice.Config{BodyLimit: limit, Attempts: 1}
					s.rejectAll(letters, cfg)
					bad := []int64{0, 700, 701, 1999}
					steps := 0
					s.Store.Faults = &refused{func(step driver.Step) error {
						if len(step.Redriven) > 0 {
							steps++
						}
						return nil
					}}
					hub := &enginetest.CountsOpens{Hub: s.Hub}
					began := time.Now()
					var last time.Duration
					_, end := s.Run(hub, sluice.Transactional(s.Store, func(ctx context.Context, tx *sluicetest.Tx, b sluice.Batch) error {
						for i, e := range b.Events {
							if slices.Contains(bad, e.Sequence) {
								return says(i)
							}
						}
						last = time.Since(began)
						return enginetest.InsertRedriven(ctx, tx, b)
					}), cfg)
					time.Sleep(10 * time.Minute)
					end()
					var left []int64
					for _, l := range s.Letters() {
						left = append(left, l.Event.Sequence)
						if l.Error != "no better" || l.Attempts != 2 || l.Status != sluice.StatusDead {
							s.T.Errorf("dead letter %+v", l)
						}
					}
					slices.Sort(left)
					if !slices.Equal(left, bad) {
						s.T.Errorf("dead letters of events %v are left, want %v", left, bad)
					}
					rows := s.Rows()
					slices.Sort(rows)
					if len(rows) != letters-len(bad) || len(slices.Compact(rows)) != len(rows) {
						s.T.Errorf("%d rows, want %d", len(rows), letters-len(bad))
					}
					s.T.Logf("%d steps, %d opens, the last success after %v", steps, hub.N.Load(), last)
					if steps > letters/10 || hub.N.Load() > letters/10 || last > 2*time.Minute {
						s.T.Errorf("%d dead letters took %d steps, %d opens and %v", letters, steps, hub.N.Load(), last)
					}
				})
			})
		}
	}
}

// Dead letters that are far apart in the log are read one by one, each once.
func TestRedriveOfScatteredEvents(t *testing.T) {
	stage(t, 1, func(s *scene) {
		const letters, apart = 40, 150
		cfg := sluice.Config{BodyLimit: -1}
		for range letters {
			s.Send("0", append([]string{"reject"}, slices.Repeat([]string{"good"}, apart-1)...)...)
		}
		_, end := s.Consume("before", enginetest.InsertRedriven, cfg)
		time.Sleep(time.Minute)
		end()
		s.RedriveAll()
		hub := &enginetest.CountsOpens{Hub: s.Hub}
		_, end = s.Run(hub, sluice.Transactional(s.Store, enginetest.InsertRedriven), cfg)
		time.Sleep(10 * time.Minute)
		end()
		if n := hub.N.Load(); len(s.Letters()) != 0 || n > letters+10 {
			s.T.Errorf("%d of %d dead letters are left after %d opens, want one for each", len(s.Letters()), letters, n)
		}
		s.exactly(letters * apart)
	})
}

// An event that ends the process is found also if it is redriven in a run with others, and the
// others are redriven once.
func TestKillerInARun(t *testing.T) {
	for _, killer := range []int64{0, 1, 64, 100, 177, 255, 299} {
		stage(t, 1, func(s *scene) {
			const letters = 300
			s.rejectAll(letters, sluice.Config{})
			deaths := 0
			for s.life(deaths, func(b sluice.Batch) bool { return b.Redriven && enginetest.Has(b, killer) }) {
				if deaths++; deaths > 10 {
					s.T.Fatal("the redrive is repeated for ever")
				}
			}
			l := s.Letters()
			if deaths > 4 || len(l) != 1 || l[0].Event.Sequence != killer || l[0].Status != sluice.StatusDead {
				s.T.Errorf("%d deaths, %d dead letters; want at most 4, and that of event %d", deaths, len(l), killer)
			}
			if rows := s.Rows(); len(rows) != letters-1 || slices.Contains(rows, killer) {
				s.T.Errorf("%d rows, want %d", len(rows), letters-1)
			}
		})
	}
}

// While what the handler needs is down, a run is not tried again and again in parts.
func TestRunMeetsOutage(t *testing.T) {
	stage(t, 1, func(s *scene) {
		s.rejectAll(500, sluice.Config{})
		var calls, down atomic.Int64
		_, end := s.Consume("a", func(ctx context.Context, tx *sluicetest.Tx, b sluice.Batch) error {
			if b.Redriven && down.Load() == 0 && len(b.Events) >= 8 {
				down.Store(1)
			}
			if down.Load() == 1 {
				calls.Add(1)
				return driver.Outage(fmt.Errorf("API is down"))
			}
			return enginetest.InsertRedriven(ctx, tx, b)
		}, sluice.Config{})
		time.Sleep(time.Second)
		if n := calls.Load(); n == 0 || n > 3 {
			s.T.Errorf("%d calls in the first second of the outage, want 1 to 3", n)
		}
		down.Store(2)
		time.Sleep(2 * time.Minute)
		end()
		if n := len(s.Letters()); n != 0 {
			s.T.Errorf("%d dead letters are left", n)
		}
		s.exactly(500)
	})
}

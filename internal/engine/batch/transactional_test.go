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

func TestFailuresAreTakenOut(t *testing.T) {
	for name, h := range map[string]sluice.Handler[*sluicetest.Tx]{"each": sluice.Each(enginetest.Insert), "whole": enginetest.InsertBatch} {
		t.Run(name, func(t *testing.T) {
			stage(t, 1, func(s *scene) {
				var bodies, failing []string
				for n := range 100 {
					body := "good"
					switch n {
					case 0, 31, 32, 99:
						body = fmt.Sprintf("reject %d", n)
					case 50, 77:
						body = fmt.Sprintf("bad %d", n)
					case 60:
						body = "panic"
					}
					bodies = append(bodies, body)
					if body != "good" {
						failing = append(failing, body)
					}
				}
				s.Send("0", bodies...)
				_, end := s.Consume("a", h, sluice.Config{})
				time.Sleep(time.Minute)
				end()
				if rows := s.Rows(); len(rows) != 93 || !slices.IsSorted(rows) {
					s.T.Errorf("%d rows: %v", len(rows), rows)
				}
				var parked []string
				for _, l := range s.Letters(sluice.StatusDead) {
					full := enginetest.Must(s.Store.Get(s.T.Context(), enginetest.Group, l.ID))
					if string(full.Event.Body) != bodies[l.Event.Sequence] {
						s.T.Errorf("dead letter %d has body %q", l.Event.Sequence, full.Event.Body)
					}
					want := 3
					if strings.HasPrefix(bodies[l.Event.Sequence], "reject") {
						want = 1
					}
					if l.Attempts != want || !strings.Contains(l.Error, bodies[l.Event.Sequence]) {
						s.T.Errorf("event %d: %d attempts, error %q", l.Event.Sequence, l.Attempts, l.Error)
					}
					parked = append(parked, bodies[l.Event.Sequence])
				}
				if !slices.Equal(parked, failing) {
					s.T.Errorf("parked %v", parked)
				}
				if p := s.Position("0"); p != 99 {
					s.T.Errorf("checkpoint at %d", p)
				}
			})
		})
	}
}

func TestAttemptsSurviveRestarts(t *testing.T) {
	stage(t, 1, func(s *scene) {
		s.Send("0", "bad")
		tries := 0
		h := sluice.Each(func(ctx context.Context, tx *sluicetest.Tx, e *sluice.Event) error {
			tries++
			return enginetest.Insert(ctx, tx, e)
		})
		for n := range 3 {
			_, end := s.Consume(fmt.Sprint("a", n), h, sluice.Config{RetryMin: time.Hour, RetryMax: time.Hour})
			time.Sleep(time.Minute)
			end()
		}
		if tries != 3 || len(s.Letters()) != 1 {
			s.T.Errorf("%d tries, %d dead letters", tries, len(s.Letters()))
		}
	})
}

// outages makes the store fail as long as it is down.
type outages struct {
	mu      sync.Mutex
	failing bool
}

func (o *outages) set(down bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.failing = down
}

func (o *outages) Before(sluicetest.Op, sluice.Lease) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.failing {
		return errors.New("the database is down")
	}
	return nil
}

func (o *outages) Commit(_ driver.Step, apply func() error) error {
	if err := o.Before("", sluice.Lease{}); err != nil {
		return err
	}
	return apply()
}

func TestOutageIsNobodysFault(t *testing.T) {
	stage(t, 2, func(s *scene) {
		faults := &outages{}
		s.Store.Faults = faults
		_, end := s.Consume("a", sluice.Each(enginetest.Insert), sluice.Config{})
		for n := range 300 {
			s.Send(fmt.Sprint(n%2), "good")
			if n == 100 {
				faults.set(true)
			}
			if n == 160 {
				faults.set(false)
			}
			time.Sleep(time.Second)
		}
		time.Sleep(time.Minute)
		if len(s.Rows()) != 300 || len(s.Store.Rows("dead")) != 0 || len(s.Letters()) != 0 {
			s.T.Errorf("%d rows, %d dead letters", len(s.Rows()), len(s.Letters()))
		}
		if s.Count(driver.KindFailed) == 0 {
			s.T.Error("no failure was observed")
		}
		end()
	})
}

// An event that kills the process is found and parked, its neighbours are not.
func TestKillerIsFound(t *testing.T) {
	stage(t, 2, func(s *scene) {
		for n := range 40 {
			body := "good"
			if n == 17 {
				body = "killer"
			}
			s.Send("0", body)
			s.Send("1", "good")
		}
		deaths := 0
		for life := range 20 {
			dead := make(chan struct{})
			owner := fmt.Sprint("life", life)
			h := sluice.Each(func(ctx context.Context, tx *sluicetest.Tx, e *sluice.Event) error {
				if string(e.Body) == "killer" {
					// The process is gone: from here on nothing it does arrives.
					s.Leases.CutOff(owner)
					close(dead)
					<-ctx.Done()
					return ctx.Err()
				}
				return enginetest.Insert(ctx, tx, e)
			})
			store := &mortal{Store: s.Store, dead: dead}
			c := enginetest.Must(sluice.New(s.Hub, s.Leases, sluice.Transactional(store, h), &sluice.Config{Owner: owner, Observer: s}))
			ctx, cancel := context.WithCancel(s.T.Context())
			done := make(chan struct{})
			go func() { defer close(done); _ = c.Run(ctx) }()
			select {
			case <-dead:
				deaths++
			case <-time.After(2 * time.Minute):
			}
			cancel()
			<-done
			if s.Position("0") == 39 && s.Position("1") == 39 {
				break
			}
		}
		letters := s.Letters()
		if len(letters) != 1 || letters[0].Event.Sequence != 17 || !strings.Contains(letters[0].Error, "process ended 3 times") {
			s.T.Errorf("dead letters: %+v", letters)
		}
		if n := len(s.Rows()); n != 79 {
			s.T.Errorf("%d rows", n)
		}
		if deaths != 5 {
			s.T.Errorf("it took %d deaths, want 2 and 3 more", deaths)
		}
	})
}

// mortal is a store as a process sees it that can die.
type mortal struct {
	*sluicetest.Store
	dead chan struct{}
}

func (m *mortal) gone() error {
	select {
	case <-m.dead:
		return enginetest.ErrCut
	default:
		return nil
	}
}

func (m *mortal) Leave(ctx context.Context, l sluice.Lease) error {
	if err := m.gone(); err != nil {
		return err
	}
	return m.Store.Leave(ctx, l)
}

func (m *mortal) Commit(ctx context.Context, step driver.Step, fn func(context.Context, *sluicetest.Tx) error) error {
	if err := m.gone(); err != nil {
		return err
	}
	return m.Store.Commit(ctx, step, func(ctx context.Context, tx *sluicetest.Tx) error {
		if fn != nil {
			if err := fn(ctx, tx); err != nil {
				return err
			}
		}
		return m.gone()
	})
}

func (m *mortal) RecordAttempt(ctx context.Context, l sluice.Lease, at sluice.Position, trial driver.AttemptRecord) error {
	if err := m.gone(); err != nil {
		return err
	}
	return m.Store.RecordAttempt(ctx, l, at, trial)
}

func TestStartPositions(t *testing.T) {
	for _, c := range []struct {
		start sluice.Start
		want  int
	}{
		{sluice.Earliest(), 11}, {sluice.Latest(), 1}, {sluice.FromSequence(7), 4}, {sluice.Ago(3*time.Hour + time.Minute), 4},
	} {
		t.Run(c.start.String(), func(t *testing.T) {
			stage(t, 1, func(s *scene) {
				for range 10 {
					s.Send("0", "good")
					time.Sleep(time.Hour)
				}
				_, end := s.Consume("a", sluice.Each(enginetest.Insert), sluice.Config{Start: c.start})
				time.Sleep(time.Minute)
				end() // the start was chosen once: what comes in between is not skipped
				s.Send("0", "good")
				time.Sleep(5 * time.Hour)
				_, end = s.Consume("b", sluice.Each(enginetest.Insert), sluice.Config{Start: c.start})
				time.Sleep(time.Minute)
				if n := len(s.Rows()); n != c.want {
					s.T.Errorf("%d rows, want %d: %v", n, c.want, s.Rows())
				}
				end()
			})
		})
	}
}

func TestStopsWhereAPersonMustAct(t *testing.T) {
	for _, c := range []struct {
		name string
		harm func(s *scene)
		want error
	}{
		{"retention", func(s *scene) { s.Send("0", "lost"); s.Hub.Trim("0", 2) }, sluice.ErrRetention},
		{"recreated", func(s *scene) { s.Hub.Recreate(); s.Send("0", "new", "new") }, sluice.ErrRecreated},
	} {
		t.Run(c.name, func(t *testing.T) {
			stage(t, 1, func(s *scene) {
				s.Send("0", "good")
				_, end := s.Consume("a", sluice.Each(enginetest.Insert), sluice.Config{})
				time.Sleep(time.Minute)
				end()
				c.harm(s)
				s.Send("0", "good")
				_, end = s.Consume("b", sluice.Each(enginetest.Insert), sluice.Config{})
				time.Sleep(5 * time.Minute)
				if n := len(s.Rows()); n != 1 {
					s.T.Fatalf("%d rows: something was skipped silently", n)
				}
				if n := s.Count(driver.KindHalted); n != 1 {
					s.T.Errorf("%d halts observed, want 1", n)
				}
				for _, o := range s.Observations(driver.KindHalted) {
					if !errors.Is(o.Err, c.want) || !strings.Contains(o.Err.Error(), "checkpoints set") {
						s.T.Errorf("told %v", o.Err)
					}
				}
				// A person acts, and the partition goes on by itself.
				topic := enginetest.Must(s.Hub.Describe(s.T.Context()))
				bounds := enginetest.Must(s.Hub.Bounds(s.T.Context(), "0"))
				enginetest.Must(s.Store.Reset(s.T.Context(), enginetest.Group, "0", topic.Incarnation, sluice.Position{Sequence: bounds.First - 1}, "set"))
				time.Sleep(time.Minute)
				if p := s.Position("0"); p != bounds.Last.Sequence || len(s.Rows()) != 1+int(bounds.Last.Sequence-bounds.First+1) {
					s.T.Errorf("went on to %d, %d rows", p, len(s.Rows()))
				}
				end()
			})
		})
	}
}

// A commit whose answer is lost is looked up, not repeated.
func TestUnknownCommit(t *testing.T) {
	for _, applied := range []bool{true, false} {
		t.Run(fmt.Sprintf("applied=%v", applied), func(t *testing.T) {
			stage(t, 1, func(s *scene) {
				s.Store.Faults = &unknown{applied: applied}
				s.Send("0", "a", "b", "c")
				_, end := s.Consume("a", sluice.Each(enginetest.Insert), sluice.Config{MaxBatch: 2})
				time.Sleep(time.Minute)
				if rows := s.Rows(); !slices.Equal(rows, []int64{0, 1, 2}) {
					s.T.Errorf("rows %v", rows)
				}
				if s.Count(driver.KindUnknown) == 0 {
					s.T.Error("no commit was unknown")
				}
				end()
			})
		})
	}
}

// unknown loses the answer of every other commit, or the commit with it.
type unknown struct {
	applied bool
	mu      sync.Mutex
	n       int
}

func (u *unknown) Before(sluicetest.Op, sluice.Lease) error { return nil }

func (u *unknown) Commit(_ driver.Step, apply func() error) error {
	u.mu.Lock()
	u.n++
	lose := u.n%2 == 1
	u.mu.Unlock()
	if !lose {
		return apply()
	}
	if u.applied {
		if err := apply(); err != nil {
			return err
		}
	}
	return sluice.ErrUnknown
}

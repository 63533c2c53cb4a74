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

// api is a service that a handler calls, and that is down at times.
type api struct {
	failing atomic.Bool
	says    atomic.Pointer[func(error) error] // what the handler makes of it
}

func newAPI(says func(error) error) *api {
	a := &api{}
	a.says.Store(&says)
	return a
}

func (a *api) call() error {
	if a.failing.Load() {
		return (*a.says.Load())(errors.New("503 from the API"))
	}
	return nil
}

func (a *api) handle(ctx context.Context, tx *sluicetest.Tx, e *sluice.Event) error {
	if err := a.call(); err != nil {
		return err
	}
	return enginetest.Insert(ctx, tx, e)
}

// movesWithin reports whether partition 0 gets to the event in time.
func (s *scene) movesWithin(d time.Duration, to int64) bool {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if s.Position("0") >= to {
			return true
		}
	}
	return s.Position("0") >= to
}

// A handler says that something it needs is down: nothing is counted, and the partition
// moves soon after it is up.
func TestHandlerOutage(t *testing.T) {
	retry := func(err error) error { return driver.RetryAfter(err, 3*time.Second) }
	for name, c := range map[string]struct {
		handler func(a *api) sluice.Handler[*sluicetest.Tx]
		says    func(error) error
	}{
		"outage":      {func(a *api) sluice.Handler[*sluicetest.Tx] { return sluice.Each(a.handle) }, driver.Outage},
		"retry after": {func(a *api) sluice.Handler[*sluicetest.Tx] { return sluice.Each(a.handle) }, retry},
		"wrapped": {func(a *api) sluice.Handler[*sluicetest.Tx] {
			return func(ctx context.Context, tx *sluicetest.Tx, b sluice.Batch) error {
				var errs []error
				for i, e := range b.Events {
					if err := a.handle(ctx, tx, e); err != nil {
						errs = append(errs, &driver.EventError{Index: i, Err: fmt.Errorf("call: %w", err)})
					}
				}
				return fmt.Errorf("batch: %w", errors.Join(errs...))
			}
		}, driver.Outage},
		"decoder": {func(a *api) sluice.Handler[*sluicetest.Tx] {
			return sluice.TypedBy(func(e *sluice.Event) (*sluice.Event, error) {
				return e, a.call()
			}, func(ctx context.Context, tx *sluicetest.Tx, e, _ *sluice.Event) error {
				return enginetest.Insert(ctx, tx, e)
			})
		}, driver.Outage},
	} {
		t.Run(name, func(t *testing.T) {
			stage(t, 1, func(s *scene) {
				a := newAPI(c.says)
				h := c.handler(a)
				if name == "wrapped" {
					whole := h
					h = func(ctx context.Context, tx *sluicetest.Tx, b sluice.Batch) error {
						if !a.failing.Load() {
							return sluice.Each(a.handle)(ctx, tx, b)
						}
						return whole(ctx, tx, b)
					}
				}
				_, end := s.Consume("a", h, sluice.Config{})
				defer end()
				s.Send("0", slices.Repeat([]string{"good"}, 500)...)
				time.Sleep(time.Minute)
				a.failing.Store(true)
				s.Send("0", slices.Repeat([]string{"good"}, 1000)...)
				time.Sleep(2 * time.Second)
				if n := len(s.Observations(driver.KindFailed)); n == 0 {
					t.Error("nothing was reported within 2 s")
				}
				time.Sleep(10 * time.Minute)
				a.failing.Store(false)
				if !s.movesWithin(10*time.Second, 500) {
					t.Error("the partition does not move within 10 s of the end")
				}
				time.Sleep(time.Minute)
				if n := len(s.Rows()); n != 1500 || len(s.Letters()) != 0 || s.Count(driver.KindRetried) != 0 {
					t.Errorf("%d rows, %d dead letters, %d attempts counted", n, len(s.Letters()), s.Count(driver.KindRetried))
				}
				for _, o := range s.Observations(driver.KindFailed) {
					if !strings.Contains(o.Err.Error(), "503 from the API") || !strings.Contains(o.Err.Error(), "event") || o.Events == 1 != strings.HasPrefix(o.Err.Error(), fmt.Sprintf("event %d: ", o.To.Sequence)) {
						t.Errorf("reported %d events to %v: %v", o.Events, o.To, o.Err)
					}
				}
			})
		})
	}
}

// The wait that a handler asks for is the wait that it gets.
func TestHandlerRetryAfter(t *testing.T) {
	stage(t, 1, func(s *scene) {
		var calls []time.Time
		h := sluice.Each(func(ctx context.Context, tx *sluicetest.Tx, e *sluice.Event) error {
			if calls = append(calls, time.Now()); len(calls) < 4 {
				return driver.RetryAfter(errors.New("busy"), time.Minute)
			}
			return enginetest.Insert(ctx, tx, e)
		})
		s.Send("0", "good")
		_, end := s.Consume("a", h, sluice.Config{})
		time.Sleep(10 * time.Minute)
		end()
		if len(calls) != 4 || len(s.Rows()) != 1 {
			t.Fatalf("%d calls, %d rows", len(calls), len(s.Rows()))
		}
		for i := range 3 {
			if d := calls[i+1].Sub(calls[i]); d != time.Minute {
				t.Errorf("wait %d took %v", i, d)
			}
		}
	})
}

// A redrive that meets an outage stays due, and nothing is counted.
func TestRedriveOutage(t *testing.T) {
	stage(t, 1, func(s *scene) {
		a := newAPI(driver.Reject)
		a.failing.Store(true)
		_, end := s.Consume("a", sluice.Each(a.handle), sluice.Config{})
		defer end()
		s.Send("0", "good")
		time.Sleep(time.Minute)
		before := s.Letters()[0]
		outage := driver.Outage
		a.says.Store(&outage)
		enginetest.Must(s.Store.Redrive(s.T.Context(), enginetest.Group, sluice.DeadLetterFilter{}, time.Time{}))
		time.Sleep(10 * time.Minute)
		if l := s.Letters()[0]; l.Status != sluice.StatusRetry || l.Attempts != before.Attempts || len(s.Observations(driver.KindFailed)) == 0 {
			t.Errorf("after ten minutes: %s, %d attempts, %d failures reported", l.Status, l.Attempts, len(s.Observations(driver.KindFailed)))
		}
		a.failing.Store(false)
		time.Sleep(12 * time.Second)
		if len(s.Letters()) != 0 || len(s.Rows()) != 1 {
			t.Errorf("%d dead letters, %d rows", len(s.Letters()), len(s.Rows()))
		}
	})
}

// needs makes a handler that fails with an ordinary error while what it needs is broken.
func needs(broken *atomic.Bool) sluice.Handler[*sluicetest.Tx] {
	return sluice.Each(func(ctx context.Context, tx *sluicetest.Tx, e *sluice.Event) error {
		if broken.Load() {
			return errors.New("a trigger raises")
		}
		return enginetest.Insert(ctx, tx, e)
	})
}

// What fails for every event makes no dead letters.
func TestBrake(t *testing.T) {
	for _, waiting := range []int{20, 1000, 5000} {
		t.Run(fmt.Sprint(waiting), func(t *testing.T) {
			stage(t, 1, func(s *scene) {
				var broken atomic.Bool
				broken.Store(true)
				s.Send("0", slices.Repeat([]string{"good"}, waiting)...)
				_, end := s.Consume("a", needs(&broken), sluice.Config{})
				defer end()
				time.Sleep(3 * time.Second)
				if !slices.ContainsFunc(s.Observations(driver.KindFailed), func(o driver.Observation) bool {
					return strings.Contains(o.Err.Error(), "partition is held: 20 events in a row failed")
				}) {
					t.Errorf("not reported within 3 s: %v", s.Observations(driver.KindFailed))
				}
				time.Sleep(10 * time.Minute)
				broken.Store(false)
				if !s.movesWithin(10*time.Second, 0) {
					t.Error("the partition does not move within 10 s of the end")
				}
				time.Sleep(time.Minute)
				if n := len(s.Rows()); n != waiting || len(s.Letters()) != 0 {
					t.Errorf("%d rows, %d dead letters", n, len(s.Letters()))
				}
				if s.Count(driver.KindStalled) == 0 || s.Count(driver.KindResumed) == 0 {
					t.Errorf("%d stalls, %d ends of them", s.Count(driver.KindStalled), s.Count(driver.KindResumed))
				}
			})
		})
	}
}

// A bad event among good ones is a dead letter soon, also behind one that is bad too,
// and after the cause of a hold has gone.
func TestBrakeConvicts(t *testing.T) {
	stage(t, 1, func(s *scene) {
		var broken atomic.Bool
		broken.Store(true)
		bodies := slices.Repeat([]string{"good"}, 100)
		for _, n := range []int{0, 1, 2, 50, 99} {
			bodies[n] = "bad"
		}
		s.Send("0", bodies...)
		// While it is held, events are drawn at random: by chance all of a round may be bad ones.
		_, end := s.Consume("a", needs(&broken), sluice.Config{Seed: 1})
		defer end()
		time.Sleep(time.Minute)
		broken.Store(false)
		time.Sleep(15 * time.Second)
		if len(s.Rows()) != 95 || len(s.Letters()) != 5 {
			t.Errorf("%d rows, %d dead letters", len(s.Rows()), len(s.Letters()))
		}
		for _, l := range s.Letters() {
			if l.Attempts != 3 {
				t.Errorf("event %d has %d attempts", l.Event.Sequence, l.Attempts)
			}
		}
	})
}

// A round of a held partition tries three events besides the first, or one where it takes long.
func TestHeldPartitionTriesOthers(t *testing.T) {
	for _, c := range []struct {
		takes       time.Duration // an attempt
		least, most int           // attempts within ten minutes
	}{{0, 220, 330}, {2 * time.Second, 80, 110}} {
		t.Run(c.takes.String(), func(t *testing.T) {
			stage(t, 1, func(s *scene) {
				var attempts atomic.Int64
				s.Send("0", slices.Repeat([]string{"good"}, 100)...)
				_, end := s.Consume("a", func(context.Context, *sluicetest.Tx, sluice.Batch) error {
					attempts.Add(1)
					time.Sleep(c.takes)
					return errors.New("a trigger raises")
				}, sluice.Config{})
				defer end()
				time.Sleep(10 * time.Minute) // until it is held
				before := attempts.Load()
				time.Sleep(10 * time.Minute)
				if n := int(attempts.Load() - before); n < c.least || n > c.most {
					t.Errorf("%d attempts within 10 minutes, want %d to %d", n, c.least, c.most)
				}
			})
		})
	}
}

// Bad events in a row, more than the brake allows: those behind them are found to be
// good, and then each bad one is a dead letter.
func TestBrakeFindsWitness(t *testing.T) {
	stage(t, 1, func(s *scene) {
		s.Send("0", slices.Concat(slices.Repeat([]string{"bad"}, 60), slices.Repeat([]string{"good"}, 300))...)
		_, end := s.Consume("a", sluice.Each(enginetest.Insert), sluice.Config{})
		defer end()
		time.Sleep(3 * time.Minute)
		if len(s.Rows()) != 300 || len(s.Letters()) != 60 {
			t.Errorf("%d rows, %d dead letters", len(s.Rows()), len(s.Letters()))
		}
	})
}

// A stop does not wait for the search of a witness.
func TestStopDuringSearchOfWitness(t *testing.T) {
	stage(t, 1, func(s *scene) {
		s.Send("0", slices.Repeat([]string{"good"}, 100)...)
		c, end := s.Consume("a", sluice.Each(func(context.Context, *sluicetest.Tx, *sluice.Event) error {
			time.Sleep(10 * time.Second)
			return errors.New("a trigger raises")
		}), sluice.Config{Attempts: 1})
		defer end()
		time.Sleep(25 * time.Second)
		began := time.Now()
		if err := c.Stop(s.T.Context()); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("the stop took %v", took)
		}
		if len(s.Letters()) != 0 {
			t.Errorf("%d dead letters", len(s.Letters()))
		}
	})
}

// A time limit that passes in a step without a handler is an outage with back-off.
func TestTimeLimitWithoutHandler(t *testing.T) {
	stage(t, 1, func(s *scene) {
		s.Send("0", "reject")
		steps := 0
		s.Store.Faults = &refused{func(step driver.Step) error {
			if steps++; len(step.DeadLetters) > 0 && steps < 1000 {
				return driver.ErrTimeLimit
			}
			return nil
		}}
		_, end := s.Consume("a", sluice.Each(enginetest.Insert), sluice.Config{})
		time.Sleep(time.Minute)
		end()
		if steps > 100 {
			t.Errorf("%d steps in a minute", steps)
		}
	})
}

// Events that fail one after the other, while no other is at hand: at most 19 are dead
// letters, the next one waits.
func TestBrakeLoneEvents(t *testing.T) {
	stage(t, 1, func(s *scene) {
		var broken atomic.Bool
		broken.Store(true)
		_, end := s.Consume("a", needs(&broken), sluice.Config{})
		defer end()
		for range 100 {
			s.Send("0", "good")
			time.Sleep(10 * time.Second)
		}
		if n := len(s.Letters()); n != 19 {
			t.Errorf("%d dead letters", n)
		}
		broken.Store(false)
		time.Sleep(10 * time.Second)
		if len(s.Rows()) != 81 {
			t.Errorf("%d rows", len(s.Rows()))
		}
	})
}

// slowStore fails steps with too many events, or with one that is slow.
type slowStore struct {
	*sluicetest.Store
	most    int   // events that a transaction may have
	slow    int64 // the event that is always too slow
	failure error // what a step fails with
}

func (f *slowStore) Commit(ctx context.Context, step driver.Step, fn func(context.Context, *sluicetest.Tx) error) error {
	events := int(step.To.Sequence - step.From.Sequence)
	if fn != nil && (events > f.most || step.From.Sequence < f.slow && f.slow <= step.To.Sequence) {
		return f.failure
	}
	return f.Store.Commit(ctx, step, fn)
}

// After an outage the next transaction is smaller: what is too much for one passes, and
// the event that no transaction gets past is named.
func TestBatchShrinks(t *testing.T) {
	limit := fmt.Errorf("statement took too long: %w", driver.ErrTimeLimit)
	for _, c := range []struct {
		name    string
		store   slowStore
		rows    int
		letters int
	}{
		{"too much", slowStore{most: 3, slow: -1, failure: errors.New("out of memory")}, 2000, 0},
		{"slow event, an outage", slowStore{most: 1000, slow: 777, failure: errors.New("connection lost")}, 777, 0},
		{"slow event, a time limit", slowStore{most: 1000, slow: 777, failure: limit}, 1999, 1},
		{"too much, a time limit", slowStore{most: 3, slow: -1, failure: limit}, 2000, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			stage(t, 1, func(s *scene) {
				c.store.Store = s.Store
				s.Send("0", slices.Repeat([]string{"good"}, 2000)...)
				con := enginetest.Must(sluice.New(s.Hub, s.Leases, sluice.Transactional(&c.store, sluice.Each(enginetest.Insert)), &sluice.Config{Owner: "a", Observer: s, RetryMax: 100 * time.Millisecond, RetryLater: []time.Duration{}}))
				ctx, cancel := context.WithCancel(s.T.Context())
				done := make(chan error)
				go func() { done <- con.Run(ctx) }()
				time.Sleep(5 * time.Minute)
				if len(s.Rows()) != c.rows || len(s.Letters()) != c.letters {
					t.Errorf("%d rows, %d dead letters", len(s.Rows()), len(s.Letters()))
				}
				for _, l := range s.Letters() {
					if l.Event.Sequence != c.store.slow || l.Attempts != 3 || !strings.Contains(l.Error, "took too long") {
						t.Errorf("dead letter of event %d after %d attempts: %s", l.Event.Sequence, l.Attempts, l.Error)
					}
				}
				if last := s.Observations(driver.KindFailed)[len(s.Observations(driver.KindFailed))-1]; c.rows == 777 && (last.Events != 1 || last.To.Sequence != 777 || !strings.HasPrefix(last.Err.Error(), "event 777: ")) {
					t.Errorf("last report is about %d events to %v: %v", last.Events, last.To, last.Err)
				}
				cancel()
				<-done
			})
		})
	}
}

// Transactions of a backlog grow while they are short, and become smaller again when they take
// long.
func TestBatchGrows(t *testing.T) {
	each := func(d time.Duration) func(int) time.Duration {
		return func(int) time.Duration { return d }
	}
	for _, c := range []struct {
		name  string
		max   int
		each  func(handled int) time.Duration // how long an event takes
		sizes []int
	}{
		{"short", 0, each(0), []int{1000, 2000, 4000, 4000, 4000, 4000, 1000}},
		{"long", 0, each(2 * time.Millisecond), slices.Repeat([]int{1000}, 20)},
		{"neither", 0, each(time.Millisecond), []int{1000, 2000, 2000, 2000, 2000, 2000, 2000, 2000, 2000, 2000, 1000}},
		{"long after a time", 0, func(handled int) time.Duration {
			return time.Duration(handled/7000) * 2 * time.Millisecond
		}, []int{1000, 2000, 4000, 4000, 2000, 2000, 2000, 1000, 1000, 1000}},
		{"few at a time", 600, each(0), append(slices.Repeat([]int{600}, 33), 200)},
		{"many at a time", 9000, each(0), []int{1000, 2000, 4000, 8000, 5000}},
	} {
		t.Run(c.name, func(t *testing.T) {
			stage(t, 1, func(s *scene) {
				s.Send("0", slices.Repeat([]string{"good"}, 20_000)...)
				var sizes []int
				handled := 0
				handler := func(_ context.Context, _ *sluicetest.Tx, b sluice.Batch) error {
					time.Sleep(1 + time.Duration(len(b.Events))*c.each(handled)) // meanwhile the next events are read
					handled += len(b.Events)
					sizes = append(sizes, len(b.Events))
					return nil
				}
				con := enginetest.Must(sluice.New(s.Hub, s.Leases, sluice.Transactional(s.Store, handler), &sluice.Config{Owner: "a", Observer: s, MaxBatch: c.max}))
				ctx, cancel := context.WithCancel(s.T.Context())
				done := make(chan error)
				go func() { done <- con.Run(ctx) }()
				time.Sleep(5 * time.Minute)
				cancel()
				<-done
				if !slices.Equal(sizes, c.sizes) {
					t.Errorf("transactions of %v events, want %v", sizes, c.sizes)
				}
			})
		})
	}
}

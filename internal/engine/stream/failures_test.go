package stream_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine/enginetest"
)

// Where every call fails, no event is at fault: the partition is held, and says so.
func TestWorkersThatAllTimeOut(t *testing.T) {
	stage(t, 1, func(s *scene) {
		t := s.T
		s.SendKeyed("0", 500, func(i int) string { return fmt.Sprint("k", i%50) })
		var down atomic.Bool
		down.Store(true)
		var calls atomic.Int64
		var mu sync.Mutex
		var order []int64
		w := enginetest.Must(sluice.Workers(8, func(_ context.Context, e *sluice.Event) error {
			calls.Add(1)
			time.Sleep(20 * time.Millisecond)
			if down.Load() || e.Sequence == 77 {
				return context.DeadlineExceeded
			}
			mu.Lock()
			defer mu.Unlock()
			if e.Sequence%50 == 3 {
				order = append(order, e.Sequence)
			}
			return nil
		}))
		_, stop := s.Pour(w, nil, sluice.Config{})
		time.Sleep(10 * time.Minute)
		if got := s.Letters(); len(got) != 0 {
			t.Errorf("%d dead letters, the first: %s", len(got), got[0].Error)
		}
		if n := calls.Load(); n > 300 {
			t.Errorf("%d calls in 10 minutes: the partition is not held", n)
		}
		if got := s.Errors(driver.KindFailed); !slices.ContainsFunc(got, func(text string) bool {
			return strings.Contains(text, "partition is held: 20 events in a row failed") && strings.Contains(text, "context deadline exceeded")
		}) {
			t.Errorf("the hold was not reported: %q", got)
		}
		if got := s.Errors(driver.KindStalled); !slices.ContainsFunc(got, func(text string) bool { return strings.Contains(text, "no event succeeds") }) {
			t.Errorf("no stall was reported: %q", got)
		}
		down.Store(false)
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if got := s.Letters(); len(got) != 1 || got[0].Event.Sequence != 77 {
			t.Errorf("dead letters %+v, want event 77", got)
		}
		if s.Position("0") != 499 {
			t.Errorf("checkpoint at %d", s.Position("0"))
		}
		if len(order) != 10 || !slices.IsSorted(order) {
			t.Errorf("a key was written as %v", order)
		}
	})
}

// A bad event among good ones, and bad ones alone, become dead letters after their
// attempts. Where events come one by one and none succeeds, the twentieth holds the
// partition.
func TestStreamConvicts(t *testing.T) {
	stage(t, 1, func(s *scene) {
		t := s.T
		s.SendKeyed("0", 100, enginetest.NoKey)
		w := enginetest.NewWarehouse(t)
		w.Says = func(e *sluice.Event, _ int) error {
			if e.Sequence == 50 || e.Sequence >= 100 {
				return errors.New("bad")
			}
			return nil
		}
		_, stop := s.Pour(w, nil, sluice.Config{})
		time.Sleep(10 * time.Second)
		if got := s.Letters(); len(got) != 1 || w.Tries(50) != 3 {
			t.Errorf("dead letters %+v after %d attempts", got, w.Tries(50))
		}
		for range 30 {
			s.SendKeyed("0", 1, enginetest.NoKey)
			time.Sleep(time.Minute)
		}
		if got := len(s.Letters()); got != 19 {
			t.Errorf("%d dead letters, want those of 19 failures in a row, from event 50 on", got)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	})
}

// An event of several records counts as one, in whatever order they are written.
func TestStreamHoldsEventsOfSeveralRecords(t *testing.T) {
	for _, order := range []sluice.Ordering{sluice.OrderKey, sluice.OrderNone} {
		t.Run(fmt.Sprint(order), func(t *testing.T) {
			stage(t, 1, func(s *scene) {
				t := s.T
				s.SendKeyed("0", 30, func(i int) string { return fmt.Sprint("k", i) })
				var down atomic.Bool
				down.Store(true)
				sink := submitFunc(func(_ context.Context, e *sluice.Event, done func(driver.WriteResult)) {
					var err error
					if down.Load() {
						err = errors.New("refused")
					}
					time.AfterFunc(10*time.Millisecond, func() { done(driver.WriteResult{Err: err}) })
				})
				three := func(_ context.Context, e *sluice.Event) ([]*sluice.Event, error) {
					return []*sluice.Event{e, e, e}, nil
				}
				c := enginetest.Must(sluice.New(s.Hub, s.Leases, sluice.AtLeastOnce(s.Store, three, sink, &sluice.AtLeastOnceConfig{Order: order}), &sluice.Config{Observer: s}))
				ran := make(chan error, 1)
				go func() { ran <- c.Run(t.Context()) }()
				time.Sleep(10 * time.Minute)
				down.Store(false)
				time.Sleep(time.Minute)
				if err := c.Stop(t.Context()); err != nil {
					t.Error(err)
				}
				<-ran
				if got := s.Letters(); len(got) != 0 {
					t.Errorf("%d dead letters, the first: %+v", len(got), got[0])
				}
				if at := s.Position("0"); at != 29 {
					t.Errorf("checkpoint at %d", at)
				}
			})
		})
	}
}

// In the order of the partition nothing can be tried before a bad event is out of the
// way. It becomes a dead letter also after many that failed in a row.
func TestStreamConvictsInOrder(t *testing.T) {
	stage(t, 1, func(s *scene) {
		t := s.T
		s.SendKeyed("0", 100, enginetest.NoKey)
		w := enginetest.NewWarehouse(t)
		w.Says = func(e *sluice.Event, _ int) error {
			if e.Sequence < 21 {
				return errors.New("bad")
			}
			return nil
		}
		_, stop := s.Pour(w, &sluice.AtLeastOnceConfig{Order: sluice.OrderPartition}, sluice.Config{})
		time.Sleep(30 * time.Second)
		if got := len(s.Letters()); got != 19 {
			t.Errorf("%d dead letters, want those of 19 failures in a row", got)
		}
		time.Sleep(5 * time.Minute)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if got := len(s.Letters()); got != 21 || s.Position("0") != 99 {
			t.Errorf("%d dead letters, want 21; checkpoint at %d", got, s.Position("0"))
		}
	})
}

// Events whose records can't be made yet are not overtaken.
func TestStreamKeepsTheOrderOfUnmadeRecords(t *testing.T) {
	for name, fail := range map[string]func(error) error{
		"outage": driver.Outage,
		"retry":  func(err error) error { return driver.RetryAfter(err, 3*time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			stage(t, 1, func(s *scene) {
				t := s.T
				s.SendKeyed("0", 2000, func(int) string { return "k" })
				w := enginetest.NewWarehouse(t)
				failed := map[int64]bool{}
				records := func(_ context.Context, e *sluice.Event) ([]*sluice.Event, error) {
					if e.Sequence%100 == 10 && !failed[e.Sequence] {
						failed[e.Sequence] = true
						return nil, fail(errors.New("no schema"))
					}
					return []*sluice.Event{e}, nil
				}
				c := enginetest.Must(sluice.New(s.Hub, s.Leases, sluice.AtLeastOnce(s.Store, records, w, nil), &sluice.Config{Observer: s}))
				ran := make(chan error, 1)
				go func() { ran <- c.Run(t.Context()) }()
				time.Sleep(5 * time.Minute)
				if err := errors.Join(c.Stop(t.Context()), <-ran); err != nil {
					t.Fatal(err)
				}
				if rows := w.Rows(); len(rows) != 2000 || !slices.IsSorted(rows) {
					t.Errorf("%d rows, in order: %v", len(rows), slices.IsSorted(rows))
				}
			})
		})
	}
}

// While the first dead letter of a held key fails again, the later ones stay.
func TestStreamRedrivesInOrder(t *testing.T) {
	stage(t, 1, func(s *scene) {
		t := s.T
		s.SendKeyed("0", 10, func(int) string { return "k" })
		w := enginetest.NewWarehouse(t)
		var broken atomic.Bool
		broken.Store(true)
		w.Says = func(e *sluice.Event, _ int) error {
			if broken.Load() && e.Sequence == 4 {
				return driver.Reject(errors.New("no"))
			}
			return nil
		}
		_, stop := s.Pour(w, &sluice.AtLeastOnceConfig{OnDeadLetter: sluice.KeyHold}, sluice.Config{})
		time.Sleep(10 * time.Second)
		redrive := func() {
			enginetest.Must(s.Store.Redrive(t.Context(), enginetest.Group, sluice.DeadLetterFilter{}, time.Time{}))
			time.Sleep(10 * time.Second)
		}
		redrive()
		if got := w.Rows(); !slices.Equal(got, enginetest.UpTo(4)) {
			t.Errorf("%v were written, want 0 to 3", got)
		}
		letters := s.Letters(sluice.StatusDead)
		if len(letters) != 6 || !strings.Contains(letters[5].Error, "event 4, which is earlier and has the same key") {
			t.Errorf("dead letters: %+v", letters)
		}
		broken.Store(false)
		redrive()
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if got := w.Rows(); !slices.Equal(got, enginetest.UpTo(10)) || len(s.Letters()) != 0 {
			t.Errorf("%v were written, %d dead letters are left", got, len(s.Letters()))
		}
	})
}

// submitFunc is a sink that is a function.
type submitFunc func(context.Context, *sluice.Event, func(driver.WriteResult))

func (f submitFunc) Submit(ctx context.Context, e *sluice.Event, done func(driver.WriteResult)) {
	f(ctx, e, done)
}

// What panics, ends its goroutine or reports twice ends neither the process nor the
// partition.
func TestStreamOfBrokenSinks(t *testing.T) {
	var down atomic.Bool
	workers := enginetest.Must(sluice.Workers(2, func(_ context.Context, e *sluice.Event) error {
		if e.Sequence%10 == 0 {
			runtime.Goexit()
		}
		return nil
	}))
	good := submitFunc(func(_ context.Context, _ *sluice.Event, done func(driver.WriteResult)) { done(driver.WriteResult{}) })
	for _, c := range []struct {
		name    string
		sink    driver.Sink[*sluice.Event]
		letters int
		kind    driver.ObservationKind
		text    string
	}{
		{"key panics", sluice.Keyed(good, func(e *sluice.Event) string { return string(e.Body[e.Sequence%2*100:]) }), 50, driver.KindParked, "panic: runtime error"},
		{"Submit panics", submitFunc(func(_ context.Context, _ *sluice.Event, done func(driver.WriteResult)) {
			if down.Load() {
				panic("not connected")
			}
			done(driver.WriteResult{})
		}), 0, driver.KindFailed, "submit to sink: panic: not connected"},
		{"Goexit", workers, 10, driver.KindParked, "runtime.Goexit"},
		{"twice", submitFunc(func(_ context.Context, _ *sluice.Event, done func(driver.WriteResult)) {
			done(driver.WriteResult{})
			done(driver.WriteResult{Err: errors.New("again")})
		}), 0, driver.KindFailed, "more than once"},
	} {
		t.Run(c.name, func(t *testing.T) {
			stage(t, 1, func(s *scene) {
				t := s.T
				down.Store(true)
				s.SendKeyed("0", 100, enginetest.NoKey)
				_, stop := s.Pour(c.sink, nil, sluice.Config{})
				time.Sleep(time.Minute)
				down.Store(false)
				time.Sleep(time.Minute)
				if err := stop(); err != nil {
					t.Fatal(err)
				}
				if got := len(s.Letters()); got != c.letters || s.Position("0") != 99 {
					t.Errorf("%d dead letters, want %d; checkpoint at %d", got, c.letters, s.Position("0"))
				}
				if got := s.Errors(c.kind); !slices.ContainsFunc(got, func(text string) bool { return strings.Contains(text, c.text) }) {
					t.Errorf("%q was not reported: %q", c.text, got)
				}
			})
		})
	}
}

// A records function that ends its goroutine fails its event.
func TestStreamOfRecordsThatExit(t *testing.T) {
	stage(t, 1, func(s *scene) {
		t := s.T
		s.SendKeyed("0", 100, enginetest.NoKey)
		records := func(_ context.Context, e *sluice.Event) ([]*sluice.Event, error) {
			if e.Sequence%10 == 0 {
				runtime.Goexit()
			}
			return []*sluice.Event{e}, nil
		}
		c := enginetest.Must(sluice.New(s.Hub, s.Leases, sluice.AtLeastOnce(s.Store, records, enginetest.NewWarehouse(t), nil), &sluice.Config{Observer: s}))
		ran := make(chan error, 1)
		go func() { ran <- c.Run(t.Context()) }()
		time.Sleep(time.Minute)
		if err := errors.Join(c.Stop(t.Context()), <-ran); err != nil {
			t.Fatal(err)
		}
		if got := len(s.Letters()); got != 10 || s.Position("0") != 99 {
			t.Errorf("%d dead letters, checkpoint at %d", got, s.Position("0"))
		}
	})
}

// A sink that loses records is reported, and a stop with a deadline ends.
func TestStreamOfASinkThatLosesRecords(t *testing.T) {
	stage(t, 1, func(s *scene) {
		t := s.T
		s.SendKeyed("0", 100, enginetest.NoKey)
		c, _ := s.Pour(submitFunc(func(_ context.Context, e *sluice.Event, done func(driver.WriteResult)) {}), nil, sluice.Config{})
		time.Sleep(time.Minute)
		if got := s.Errors(driver.KindStalled); len(got) == 0 || !strings.Contains(got[0], "sink has completed no record") {
			t.Errorf("stalls: %q", got)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		began := time.Now()
		if err := c.Stop(ctx); err == nil || time.Since(began) > 20*time.Second {
			t.Errorf("stop: %v after %v", err, time.Since(began))
		}
	})
}

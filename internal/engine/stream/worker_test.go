package stream_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/clock"
	"github.com/sluice-go/sluice/internal/engine/enginetest"
	"github.com/sluice-go/sluice/sluicetest"
)

func TestStreamWritesAllOutOfOrder(t *testing.T) {
	stage(t, 1, func(s *scene) {
		t := s.T
		s.SendKeyed("0", 1000, enginetest.NoKey)
		w := enginetest.NewWarehouse(t)
		w.Takes = func(e *sluice.Event) time.Duration { return time.Duration(1+e.Sequence*7919%997) * time.Millisecond }
		_, stop := s.Pour(w, nil, sluice.Config{})
		time.Sleep(10 * time.Second)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		rows := w.Rows()
		if slices.IsSorted(rows) {
			t.Error("completed in order: the test shows nothing")
		}
		if got := enginetest.Sorted(rows); !slices.Equal(got, enginetest.UpTo(1000)) {
			t.Errorf("%d rows written, want each of 1000 once", len(got))
		}
		if got := s.Position("0"); got != 999 {
			t.Errorf("checkpoint at %d, want 999", got)
		}
		if n := s.Count(driver.KindWritten); n == 0 {
			t.Error("progress was not told")
		}
	})
}

func TestStreamOrders(t *testing.T) {
	for _, c := range []struct {
		order        sluice.Ordering
		perKey, most int // without an order: at least
	}{{sluice.OrderKey, 1, 10}, {sluice.OrderPartition, 1, 1}, {sluice.OrderNone, 2, 20}} {
		t.Run(fmt.Sprint(c.order), func(t *testing.T) {
			stage(t, 1, func(s *scene) {
				t := s.T
				s.SendKeyed("0", 100, func(i int) string { return fmt.Sprint("k", i%10) })
				w := enginetest.NewWarehouse(t)
				w.Takes = func(e *sluice.Event) time.Duration { return time.Duration(50-e.Sequence/2) * time.Millisecond }
				failed := map[int64]bool{}
				w.Says = func(e *sluice.Event, attempt int) error {
					w.Mu.Lock()
					defer w.Mu.Unlock()
					if e.Sequence%3 == 0 && !failed[e.Sequence] {
						failed[e.Sequence] = true
						return driver.RetryAfter(errors.New("busy"), 30*time.Millisecond)
					}
					return nil
				}
				_, stop := s.Pour(w, &sluice.AtLeastOnceConfig{Order: c.order}, sluice.Config{})
				time.Sleep(30 * time.Second)
				if err := stop(); err != nil {
					t.Fatal(err)
				}
				rows := w.Rows()
				if len(rows) != 100 {
					t.Fatalf("%d rows, want 100", len(rows))
				}
				if got := slices.Max(slices.Collect(maps.Values(w.Most))); got != c.perKey && (got < c.perKey || c.order != sluice.OrderNone) {
					t.Errorf("%d of a key in flight together, want %d", got, c.perKey)
				}
				if w.AllMost != c.most && (w.AllMost < c.most || c.order != sluice.OrderNone) {
					t.Errorf("%d in flight together, want %d", w.AllMost, c.most)
				}
				if c.order == sluice.OrderNone {
					return
				}
				last := map[int64]int64{}
				for _, n := range rows {
					if before, ok := last[n%10]; ok && before > n {
						t.Errorf("event %d written before %d of the same key", before, n)
					}
					last[n%10] = n
				}
			})
		})
	}
}

// A crash repeats what was in flight or done since the last checkpoint, and
// nothing else.
func TestStreamRestart(t *testing.T) {
	stage(t, 1, func(s *scene) {
		t := s.T
		s.SendKeyed("0", 100, enginetest.NoKey)
		w := enginetest.NewWarehouse(t)
		w.Takes = func(e *sluice.Event) time.Duration {
			if e.Sequence == 3 || e.Sequence == 50 {
				return time.Hour
			}
			return time.Millisecond
		}
		ctx, crash := context.WithCancel(t.Context())
		c := enginetest.Must(sluice.New(s.Hub, s.Leases, sluice.AtLeastOnce(s.Store, sluice.EventAsRecord, w, nil), &sluice.Config{Owner: "first"}))
		s.Leases.CutOff("none")
		ran := make(chan error, 1)
		go func() { ran <- c.Run(ctx) }()
		time.Sleep(10 * time.Second)
		if got := s.Position("0"); got != 2 {
			t.Errorf("checkpoint at %d before event 3 is done, want 2", got)
		}
		crash()
		<-ran

		again := enginetest.NewWarehouse(t)
		_, stop := s.Pour(again, nil, sluice.Config{Owner: "second"})
		time.Sleep(40 * time.Second)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if got := enginetest.Sorted(again.Rows()); !slices.Equal(got, []int64{3, 50}) {
			t.Errorf("written again: %v, want 3 and 50", got)
		}
		if got := s.Position("0"); got != 99 {
			t.Errorf("checkpoint at %d, want 99", got)
		}
	})
}

// What an earlier tenure has done is not forgotten by a later one that has not
// come so far yet.
func TestStreamRestartsTwice(t *testing.T) {
	stage(t, 1, func(s *scene) {
		t := s.T
		s.SendKeyed("0", 3000, enginetest.NoKey)
		stuck := map[int64]bool{3: true, 2500: true}
		run := func(limit int) []int64 {
			w := enginetest.NewWarehouse(t)
			w.Takes = func(e *sluice.Event) time.Duration {
				if stuck[e.Sequence] {
					return time.Hour
				}
				return time.Millisecond
			}
			ctx, crash := context.WithCancel(t.Context())
			c := enginetest.Must(sluice.New(s.Hub, s.Leases, sluice.AtLeastOnce(s.Store, sluice.EventAsRecord, w, &sluice.AtLeastOnceConfig{MaxEvents: limit}), nil))
			ran := make(chan error, 1)
			go func() { ran <- c.Run(ctx) }()
			time.Sleep(20 * time.Second)
			crash()
			<-ran
			return enginetest.Sorted(w.Rows())
		}
		if got := run(10_000); len(got) != 2998 {
			t.Errorf("%d written at first, want 2998", len(got))
		}
		// The second comes only as far as its limit allows.
		if got := run(100); len(got) != 0 {
			t.Errorf("written again: %v", got)
		}
		delete(stuck, 3)
		if got := run(10_000); !slices.Equal(got, []int64{3}) {
			t.Errorf("written again: %v, want 3", got)
		}
		stuck = nil
		if got := run(10_000); !slices.Equal(got, []int64{2500}) {
			t.Errorf("written again: %v, want 2500", got)
		}
		if got := s.Position("0"); got != 2999 {
			t.Errorf("checkpoint at %d, want 2999", got)
		}
	})
}

// A connection that breaks repeats nothing of what is in flight.
func TestStreamReadsOnAfterACut(t *testing.T) {
	stage(t, 1, func(s *scene) {
		t := s.T
		s.SendKeyed("0", 500, enginetest.NoKey)
		w := enginetest.NewWarehouse(t)
		w.Takes = func(e *sluice.Event) time.Duration { return 20 * time.Second }
		c := enginetest.Must(sluice.New(&enginetest.FlakyLog{Hub: s.Hub, Every: 3 * time.Second}, s.Leases, sluice.AtLeastOnce(s.Store, sluice.EventAsRecord, w, nil), &sluice.Config{Partitions: 1, Observer: s}))
		ran := make(chan error, 1)
		go func() { ran <- c.Run(t.Context()) }()
		time.Sleep(5 * time.Second)
		s.SendKeyed("0", 500, enginetest.NoKey)
		time.Sleep(8 * time.Minute)
		if err := c.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-ran
		if got := s.Count(driver.KindOpened); got < 10 {
			t.Errorf("opened %d times: it was not cut", got)
		}
		if got := enginetest.Sorted(w.Rows()); !slices.Equal(got, enginetest.UpTo(1000)) {
			t.Errorf("%d rows, want each of 1000 once", len(got))
		}
	})
}

func TestWorkers(t *testing.T) {
	stage(t, 2, func(s *scene) {
		t := s.T
		s.SendKeyed("0", 300, enginetest.NoKey)
		s.SendKeyed("1", 300, enginetest.NoKey)
		var mu sync.Mutex
		var now, most, calls int
		sink := enginetest.Must(sluice.Workers(16, func(ctx context.Context, e *sluice.Event) error {
			mu.Lock()
			calls++
			now++
			most = max(most, now)
			mu.Unlock()
			time.Sleep(10 * time.Millisecond)
			mu.Lock()
			now--
			mu.Unlock()
			if e.Sequence == 100 {
				panic("no")
			}
			return nil
		}))
		_, stop := s.Pour(sink, nil, sluice.Config{})
		time.Sleep(10 * time.Second)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if most != 16 || calls != 600+2*2 {
			t.Errorf("%d at once and %d calls, want 16 and 604", most, calls)
		}
		if got := s.Letters(); len(got) != 2 || got[0].Error != "panic: no" {
			t.Errorf("dead letters %+v", got)
		}
	})
	if _, err := sluice.Workers(0, func(context.Context, *sluice.Event) error { return nil }); err == nil {
		t.Error("no workers are allowed")
	}
	if _, err := sluice.Workers(1, nil); err == nil {
		t.Error("workers without a function are allowed")
	}
}

// A cancelled consumer lets go at once, and checkpoints what was done.
func TestStreamCancel(t *testing.T) {
	stage(t, 1, func(s *scene) {
		t := s.T
		s.SendKeyed("0", 100, enginetest.NoKey)
		w := enginetest.NewWarehouse(t)
		w.Takes = func(e *sluice.Event) time.Duration {
			if e.Sequence >= 50 {
				return time.Hour
			}
			return time.Millisecond
		}
		c := enginetest.Must(sluice.New(s.Hub, s.Leases, sluice.AtLeastOnce(s.Store, sluice.EventAsRecord, w, nil), &sluice.Config{Partitions: 1}))
		ctx, cancel := context.WithCancel(t.Context())
		ran := make(chan error, 1)
		go func() { ran <- c.Run(ctx) }()
		time.Sleep(2 * time.Second)
		began := time.Now()
		cancel()
		if err := <-ran; !errors.Is(err, context.Canceled) || time.Since(began) > time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		if got := s.Position("0"); got != 49 {
			t.Errorf("checkpoint at %d, want 49", got)
		}
	})
}

// ticking tells of each sleep of a millisecond.
type ticking struct {
	driver.Clock
	ticks chan struct{}
}

func (c ticking) Sleep(ctx context.Context, d time.Duration) error {
	if d == time.Millisecond {
		select {
		case c.ticks <- struct{}{}:
		default:
		}
	}
	return c.Clock.Sleep(ctx, d)
}

// slowly opens the log after some ticks.
type slowly struct {
	driver.Source
	ticks chan struct{}
}

func (s slowly) Open(ctx context.Context, partition string, from sluice.Position, epoch int64) (driver.Reader, error) {
	for range 5 {
		<-s.ticks
	}
	return s.Source.Open(ctx, partition, from, epoch)
}

// The clerk is at work before the log is open: what the stream tells it then is
// guarded, which the race detector sees. In real time, for a bubble puts into an
// order what happens.
func TestStreamClerkBeginsEarly(t *testing.T) {
	hub, store, ticks := sluicetest.NewHub(enginetest.Group, 1), &sluicetest.Store{}, make(chan struct{}, 64)
	hub.Append("0", sluicetest.Bodies("a", "b", "c")...)
	done := make(chan struct{})
	observer := driver.ObserverFunc(func(o driver.Observation) {
		if o.Kind == driver.KindCommitted && o.To.Sequence == 2 {
			close(done)
		}
	})
	sink := enginetest.Must(sluice.Workers(1, func(context.Context, *sluice.Event) error { return nil }))
	cfg := &sluice.AtLeastOnceConfig{CheckpointEvery: time.Millisecond}
	c := enginetest.Must(sluice.New(slowly{hub, ticks}, enginetest.NewLedger(), sluice.AtLeastOnce(store, sluice.EventAsRecord, sink, cfg), &sluice.Config{Partitions: 1, Observer: observer, Clock: ticking{clock.New(), ticks}}))
	ran := make(chan error, 1)
	go func() { ran <- c.Run(t.Context()) }()
	<-done
	if err := errors.Join(c.Stop(t.Context()), <-ran); err != nil {
		t.Error(err)
	}
}

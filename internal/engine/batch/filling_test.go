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

// filled are the batches that a handler got.
type filled struct {
	mu    sync.Mutex
	list  []int           // their events
	times []time.Duration // when, since the beginning
}

func (f *filled) handle(began time.Time) func(context.Context, sluice.Batch) error {
	return func(_ context.Context, b sluice.Batch) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.list = append(f.list, len(b.Events))
		f.times = append(f.times, time.Since(began))
		return nil
	}
}

// batches returns how many events each batch had, and when it came.
func (f *filled) batches() ([]int, []time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.list), slices.Clone(f.times)
}

func (f *filled) events() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, events := range f.list {
		n += events
	}
	return n
}

// forBoth runs a test with both deliveries of batches.
func forBoth(t *testing.T, test func(s *scene, make func(handler func(context.Context, sluice.Batch) error) sluice.Delivery)) {
	t.Run("Transactional", func(t *testing.T) {
		stage(t, 1, func(s *scene) {
			test(s, func(handler func(context.Context, sluice.Batch) error) sluice.Delivery {
				return sluice.Transactional(s.Store, func(ctx context.Context, _ *sluicetest.Tx, b sluice.Batch) error { return handler(ctx, b) })
			})
		})
	})
	t.Run("Batches", func(t *testing.T) {
		stage(t, 1, func(s *scene) {
			test(s, func(handler func(context.Context, sluice.Batch) error) sluice.Delivery {
				return sluice.Batches(s.Store, handler, nil)
			})
		})
	})
}

// At a low rate a batch waits for as long as it may, at a high one until it is full. Nothing is
// reported as a stall, and each event is handled once.
func TestFillBatches(t *testing.T) {
	forBoth(t, func(s *scene, make func(func(context.Context, sluice.Batch) error) sluice.Delivery) {
		f := &filled{}
		_, stop := s.Run(s.Hub, make(f.handle(time.Now())), sluice.Config{FillFor: 5 * time.Minute, FillTo: 50_000, MaxBatch: 100_000})
		for range 20 * 60 { // an event of 100 bytes a second for 20 minutes
			s.Send("0", strings.Repeat("x", 100))
			time.Sleep(time.Second)
		}
		list, at := f.batches()
		if len(list) < 3 || len(list) > 5 {
			t.Fatalf("batches of %v events at %v, want one in 5 minutes", list, at)
		}
		for i, n := range list {
			if n < 295 || n > 310 {
				t.Errorf("batch %d has %d events, want those of 5 minutes", i, n)
			}
		}
		slow := len(list)
		for range 60 { // 500 a second
			s.Send("0", manyOf(500, strings.Repeat("x", 100))...)
			time.Sleep(time.Second)
		}
		list, _ = f.batches()
		for i, n := range list[slow+1:] {
			if n < 500 || n > 1100 {
				t.Errorf("batch %d has %d events, want those of 50,000 bytes", i, n)
			}
		}
		if stalls := s.Stalls(); len(stalls) > 0 {
			t.Errorf("stalls: %v", stalls)
		}
		time.Sleep(6 * time.Minute)
		began := time.Now()
		stop()
		if took := time.Since(began); took > time.Second || f.events() != 20*60+60*500 {
			t.Errorf("%d events handled, and the stop took %v", f.events(), took)
		}
	})
}

// A stop does not wait for a batch to be filled, nor does it handle a part of one: the next
// consumer reads its events again.
func TestFillEndsWithAStop(t *testing.T) {
	forBoth(t, func(s *scene, make func(func(context.Context, sluice.Batch) error) sluice.Delivery) {
		f := &filled{}
		s.Send("0", manyOf(10, "x")...)
		for _, hour := range []int{0, 1} {
			began := time.Now()
			_, stop := s.Run(s.Hub, make(f.handle(began)), sluice.Config{FillFor: time.Hour})
			time.Sleep(time.Minute + time.Duration(hour)*time.Hour)
			asked := time.Now()
			stop()
			if took := time.Since(asked); took > time.Second || f.events() != 10*hour {
				t.Errorf("%d events handled, the stop took %v", f.events(), took)
			}
		}
	})
}

// A link that always fails before a batch is full must not keep its events from being handled.
func TestFillEndsWithTheLink(t *testing.T) {
	forBoth(t, func(s *scene, make func(func(context.Context, sluice.Batch) error) sluice.Delivery) {
		f := &filled{}
		_, stop := s.Run(&breakingSource{Source: s.Hub, delay: time.Minute}, make(f.handle(time.Now())), sluice.Config{FillFor: time.Hour})
		for range 30 {
			s.Send("0", "x")
			time.Sleep(20 * time.Second)
		}
		stop()
		if n := f.events(); n < 20 {
			t.Errorf("%d events of 30 handled", n)
		}
	})
}

// breakingSource breaks each link after a time.
type breakingSource struct {
	driver.Source
	delay time.Duration
}

func (b *breakingSource) Open(ctx context.Context, partition string, after driver.Position, epoch int64) (driver.Reader, error) {
	r, err := b.Source.Open(ctx, partition, after, epoch)
	return &breakingReader{r, time.Now().Add(b.delay)}, err
}

type breakingReader struct {
	driver.Reader
	deadline time.Time
}

func (b *breakingReader) Read(ctx context.Context, max int) ([]*driver.Event, error) {
	limited, cancel := context.WithDeadline(ctx, b.deadline)
	defer cancel()
	events, err := b.Reader.Read(limited, max)
	if err != nil && ctx.Err() == nil {
		err = errors.New("link detached")
	}
	return events, err
}

// What FillFor does not apply to, and what cannot be, is refused by name.
func TestFillRefused(t *testing.T) {
	stage(t, 1, func(s *scene) {
		sink := sluice.AtLeastOnce(s.Store, sluice.EventAsRecord, enginetest.NewWarehouse(t), nil)
		batches := sluice.Batches(s.Store, func(context.Context, sluice.Batch) error { return nil }, nil)
		for _, c := range []struct {
			delivery sluice.Delivery
			cfg      sluice.Config
			want     string
		}{
			{sink, sluice.Config{FillFor: time.Second}, "FillFor: is for Transactional and Batches; the sink of AtLeastOnce collects its records itself"},
			{batches, sluice.Config{FillFor: -1}, "fill batches for -1ns: must be positive"},
			{batches, sluice.Config{FillTo: 8 << 20}, "fill batches to 8388608 bytes: must be positive and at most PrefetchBytes, which is 4194304: raise that too"},
			{batches, sluice.Config{FillTo: 1 << 20}, "fill batches to 1048576 bytes: set FillFor too, for how long a batch may wait"},
		} {
			if _, err := sluice.New(s.Hub, s.Leases, c.delivery, &c.cfg); fmt.Sprint(err) != c.want {
				t.Errorf("got %v, want %s", err, c.want)
			}
		}
	})
}

func manyOf(n int, body string) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = body
	}
	return list
}

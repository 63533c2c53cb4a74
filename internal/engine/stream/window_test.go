package stream_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine/enginetest"
)

// modelSink completes records as a model of a sink does. It counts what it has.
type modelSink struct {
	submit func(done func())

	mu    sync.Mutex
	has   int
	most  int
	wrote int
	first map[string]time.Time // by partition: the first record that was completed
}

func newModelSink() *modelSink { return &modelSink{first: map[string]time.Time{}} }

func (m *modelSink) Submit(ctx context.Context, _ *sluice.Event, done func(driver.WriteResult)) {
	partition := driver.FencingTokenOf(ctx).Lease.Partition
	m.mu.Lock()
	m.has++
	m.most = max(m.most, m.has)
	m.mu.Unlock()
	m.submit(func() {
		m.mu.Lock()
		m.has--
		m.wrote++
		if m.first[partition].IsZero() {
			m.first[partition] = time.Now()
		}
		m.mu.Unlock()
		done(driver.WriteResult{})
	})
}

func (m *modelSink) written() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.wrote
}

// serial makes a model that completes records one after the other, at a rate.
func serial(t *testing.T, perSecond *atomic.Int64) *modelSink {
	m := newModelSink()
	queue := make(chan func(), 1<<20)
	var working sync.WaitGroup
	working.Go(func() {
		for done := range queue {
			time.Sleep(time.Second / time.Duration(perSecond.Load()))
			done()
		}
	})
	t.Cleanup(func() { close(queue); working.Wait() })
	m.submit = func(done func()) { queue <- done }
	return m
}

// flushing makes a model that completes all that it has at once, every so often.
func flushing(t *testing.T, every time.Duration) *modelSink {
	m := newModelSink()
	var mu sync.Mutex
	var waiting []func()
	flush := func() {
		mu.Lock()
		batch := waiting
		waiting = nil
		mu.Unlock()
		for _, done := range batch {
			done()
		}
	}
	ended := make(chan struct{})
	var working sync.WaitGroup
	working.Go(func() {
		for {
			select {
			case <-time.After(every):
				flush()
			case <-ended:
				flush()
				return
			}
		}
	})
	t.Cleanup(func() { close(ended); working.Wait() })
	m.submit = func(done func()) {
		mu.Lock()
		defer mu.Unlock()
		waiting = append(waiting, done)
	}
	return m
}

// slow makes a model that completes any number of records at once, each after some
// time, which varies a little.
func slow(t *testing.T, takes time.Duration) *modelSink {
	m := newModelSink()
	var n atomic.Int64
	var flying sync.WaitGroup
	t.Cleanup(flying.Wait)
	m.submit = func(done func()) {
		flying.Add(1)
		vary := time.Duration(n.Add(1)*7919%1000) * takes / 10_000
		time.AfterFunc(takes+vary, func() { defer flying.Done(); done() })
	}
	return m
}

// backlog is a consumer of an endless backlog in some partitions.
func (s *scene) backlog(m *modelSink, partitions int, cfg *sluice.AtLeastOnceConfig) (stop func() time.Duration) {
	s.T.Helper()
	c := enginetest.Must(sluice.New(&enginetest.EndlessLog{Partitions: partitions}, s.Leases, sluice.AtLeastOnce(s.Store, sluice.EventAsRecord, m, cfg), &sluice.Config{Observer: s, AssignEvery: 10 * time.Millisecond}))
	ran := make(chan error, 1)
	go func() { ran <- c.Run(s.T.Context()) }()
	return func() time.Duration {
		began := time.Now()
		if err := c.Stop(s.T.Context()); err != nil {
			s.T.Error(err)
		}
		<-ran
		return time.Since(began)
	}
}

// rate returns how many records are written a second during some time.
func (m *modelSink) rate(d time.Duration) float64 {
	before := m.written()
	time.Sleep(d)
	return float64(m.written()-before) / d.Seconds()
}

// Under a backlog a sink has about as much as it completes in a second, whatever
// its rate and its own latency, and runs at its rate. A stop takes no longer.
func TestWindowOfSinks(t *testing.T) {
	rate := func(perSecond int64) func(*testing.T) *modelSink {
		return func(t *testing.T) *modelSink {
			n := new(atomic.Int64)
			n.Store(perSecond)
			return serial(t, n)
		}
	}
	for _, c := range []struct {
		name string
		sink func(*testing.T) *modelSink
		rate float64       // to reach 90 % of
		stop time.Duration // the longest
		most int           // MaxEvents
	}{
		{"1000 a second", rate(1000), 1000, 2 * time.Second, 0},
		{"10 a second", rate(10), 10, 2 * time.Second, 0},
		{"5000 a second", rate(5000), 5000, 2 * time.Second, 0},
		{"5 s own latency", func(t *testing.T) *modelSink { return slow(t, 5*time.Second) }, 2000 / 5.25, 6 * time.Second, 2000},
		{"700 ms own latency", func(t *testing.T) *modelSink { return slow(t, 700*time.Millisecond) }, 2000 / .735, time.Second, 2000},
		{"flushes every 100 ms", func(t *testing.T) *modelSink { return flushing(t, 100*time.Millisecond) }, 5000, time.Second, 500},
		{"flushes every 2 s", func(t *testing.T) *modelSink { return flushing(t, 2*time.Second) }, 1000, 3 * time.Second, 2000},
	} {
		t.Run(c.name, func(t *testing.T) {
			stage(t, 1, func(s *scene) {
				t := s.T
				m := c.sink(t)
				stop := s.backlog(m, 4, &sluice.AtLeastOnceConfig{MaxEvents: c.most})
				time.Sleep(time.Minute)
				if got := m.rate(90 * time.Second); got < 0.9*c.rate {
					t.Errorf("%.0f records a second, want %.0f", got, c.rate)
				}
				if took := stop(); took > c.stop {
					t.Errorf("the stop took %v, want at most %v", took, c.stop)
				}
			})
		})
	}
}

// With many partitions the smallest window is one record each. A sink that is slow, and
// in which nothing queues, gets more.
func TestWindowOfManyPartitions(t *testing.T) {
	stage(t, 1, func(s *scene) {
		m := slow(s.T, 2*time.Second)
		stop := s.backlog(m, 32, &sluice.AtLeastOnceConfig{MaxEvents: 3200})
		time.Sleep(2 * time.Minute)
		if got, want := m.rate(time.Minute), 3200/2.1*0.8; got < want {
			s.T.Errorf("%.0f records a second, want %.0f", got, want)
		}
		if took := stop(); took > 3*time.Second {
			s.T.Errorf("the stop took %v", took)
		}
	})
}

// The window follows the sink's rate.
func TestWindowFollowsTheRate(t *testing.T) {
	stage(t, 1, func(s *scene) {
		t := s.T
		var perSecond atomic.Int64
		perSecond.Store(1000)
		m := serial(t, &perSecond)
		stop := s.backlog(m, 4, nil)
		time.Sleep(20 * time.Second)
		for _, rate := range []int64{100, 1000, 10_000, 500} {
			perSecond.Store(rate)
			time.Sleep(15 * time.Second)
			if got := m.rate(10 * time.Second); got < 0.97*float64(rate) {
				t.Errorf("%.0f a second, want %d", got, rate)
			}
			m.mu.Lock()
			has := m.has
			m.mu.Unlock()
			if has > int(rate)*3/2 {
				t.Errorf("the sink has %d records at %d a second", has, rate)
			}
		}
		if took := stop(); took > 2*time.Second {
			t.Errorf("the stop took %v", took)
		}
	})
}

// Partitions that have more to submit now and then don't keep the window small for one
// with a backlog.
func TestWindowBesideBursts(t *testing.T) {
	for _, takes := range []time.Duration{10 * time.Millisecond, 100 * time.Millisecond, 500 * time.Millisecond} {
		t.Run(takes.String(), func(t *testing.T) {
			stage(t, 32, func(s *scene) {
				const events = 50 // of a partition in flight
				s.SendKeyed("0", int(40*time.Second/takes)*events, enginetest.NoKey)
				_, stop := s.Pour(slow(s.T, takes), &sluice.AtLeastOnceConfig{MaxEvents: 32 * events}, sluice.Config{AssignEvery: 10 * time.Millisecond})
				for i := range 30 * 16 { // each of the others every two seconds
					time.Sleep(time.Second / 16)
					s.SendKeyed(fmt.Sprint(1+i%31), 5, enginetest.NoKey)
				}
				before := s.Position("0")
				time.Sleep(10 * time.Second)
				if got, want := s.Position("0")-before, 9*int64(time.Second/takes)*events*8/10; got < want {
					s.T.Errorf("%d events of the backlog in 10 s, want %d", got, want)
				}
				if err := stop(); err != nil {
					s.T.Error(err)
				}
			})
		})
	}
}

// A stop under a backlog takes at most two seconds whenever it comes, and every
// partition gets on from the beginning.
func TestStopUnderABacklog(t *testing.T) {
	for _, perSecond := range []int64{10, 300, 3000} {
		for _, after := range []time.Duration{500 * time.Millisecond, 2 * time.Second, 5 * time.Second, 20 * time.Second} {
			t.Run(fmt.Sprint(perSecond, "/", after), func(t *testing.T) {
				stage(t, 1, func(s *scene) {
					t := s.T
					n := new(atomic.Int64)
					n.Store(perSecond)
					m := serial(t, n)
					began := time.Now()
					stop := s.backlog(m, 4, &sluice.AtLeastOnceConfig{CheckpointEvery: time.Second})
					time.Sleep(after)
					if took := stop(); took > 2*time.Second {
						t.Errorf("the stop took %v", took)
					}
					for p := range 4 {
						name := fmt.Sprint(p)
						if at := m.first[name]; at.IsZero() || at.Sub(began) > 3*time.Second {
							t.Errorf("partition %s: first write after %v", name, at.Sub(began))
						}
						if s.Position(name) < 0 {
							t.Errorf("partition %s: checkpoint at %d", name, s.Position(name))
						}
					}
				})
			})
		}
	}
}

// What waits for a worker is dropped by a stop.
func TestWorkersStopUnderABacklog(t *testing.T) {
	stage(t, 4, func(s *scene) {
		t := s.T
		for p := range 4 {
			s.SendKeyed(fmt.Sprint(p), 15_000, enginetest.NoKey)
		}
		var calls atomic.Int64
		w := enginetest.Must(sluice.Workers(8, func(context.Context, *sluice.Event) error {
			time.Sleep(10 * time.Millisecond)
			calls.Add(1)
			return nil
		}))
		_, stop := s.Pour(w, nil, sluice.Config{})
		time.Sleep(10 * time.Second)
		handled := calls.Load()
		began := time.Now()
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > time.Second { // of a backlog of 70 s
			t.Errorf("the stop took %v and handled %d more", took, calls.Load()-handled)
		}
		if want := int64(10 * 800 * 97 / 100); handled < want {
			t.Errorf("%d handled in 10 s, want %d", handled, want)
		}
	})
}

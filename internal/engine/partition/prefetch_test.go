package partition_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine/enginetest"
	"github.com/sluice-go/sluice/sluicetest"
)

// largeEvents is a log of large events. It counts those that are still in memory. Their
// bodies share one allocation, so the test itself needs little.
type largeEvents struct {
	partitions []string
	body       []byte
	end        int64 // sequence number of the last event of each partition
	live       atomic.Int64
}

func newLargeEvents(partitions, size int, end int64) *largeEvents {
	l := &largeEvents{body: make([]byte, size), end: end}
	for p := range partitions {
		l.partitions = append(l.partitions, fmt.Sprint(p))
	}
	return l
}

func (l *largeEvents) Describe(context.Context) (sluice.Topic, error) {
	return sluice.Topic{Group: enginetest.Group, Incarnation: "1", Partitions: l.partitions}, nil
}

func (l *largeEvents) Bounds(context.Context, string) (driver.Bounds, error) {
	return driver.Bounds{Last: sluice.Position{Sequence: l.end}}, nil
}

func (l *largeEvents) Seek(context.Context, string, sluice.Start, int64) (sluice.Position, error) {
	return driver.Origin, nil
}

func (l *largeEvents) Open(_ context.Context, partition string, after sluice.Position, _ int64) (driver.Reader, error) {
	return &largeReader{log: l, partition: partition, next: after.Sequence + 1}, nil
}

type largeReader struct {
	log       *largeEvents
	partition string
	next      int64
}

func (r *largeReader) Read(ctx context.Context, max int) (events []*sluice.Event, err error) {
	if r.next > r.log.end {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	for bytes := 0; len(events) < max && r.next <= r.log.end && (bytes == 0 || bytes+len(r.log.body) <= driver.ReadBytes); bytes += len(r.log.body) {
		e := &sluice.Event{Partition: r.partition, Sequence: r.next, Body: r.log.body}
		r.log.live.Add(1)
		runtime.AddCleanup(e, func(n *atomic.Int64) { n.Add(-1) }, &r.log.live)
		events = append(events, e)
		r.next++
	}
	return events, nil
}

func (r *largeReader) Close(context.Context) error { return nil }

// settled returns how many events are in memory when nothing moves any more, or more
// than most if it stays above.
func (l *largeEvents) settled(most int64) int64 {
	synctest.Wait()
	for range 100 {
		if l.live.Load() <= most {
			break
		}
		runtime.GC()
		runtime.Gosched()
	}
	return l.live.Load()
}

// heldBack is a sink that finishes only the records that it is to.
type heldBack struct {
	finishes func(e *sluice.Event) bool
	held     chan func() // of the records that are not finished
}

func (h *heldBack) Submit(_ context.Context, e *sluice.Event, done func(driver.WriteResult)) {
	if h.finishes(e) {
		done(driver.WriteResult{})
		return
	}
	h.held <- func() { done(driver.WriteResult{}); runtime.KeepAlive(e) }
}

func (h *heldBack) release() {
	close(h.held)
	for finish := range h.held {
		finish()
	}
}

const mebibyte = 1 << 20

// TestMemoryAtLeastOnce: 32 partitions of 1 MiB events, with a sink that finishes
// nothing. In memory are at most MaxBytes and what is read ahead, and an event of each
// partition more.
func TestMemoryAtLeastOnce(t *testing.T) {
	const partitions, maxBytes, prefetch = 32, 64 * mebibyte, 4 * mebibyte
	stage(t, 1, func(s *scene) {
		log := newLargeEvents(partitions, mebibyte, math.MaxInt32)
		sink := &heldBack{finishes: func(*sluice.Event) bool { return false }, held: make(chan func(), 1<<20)}
		_, end := s.Run(log, sluice.AtLeastOnce(s.Store, sluice.EventAsRecord, sink, &sluice.AtLeastOnceConfig{MaxBytes: maxBytes}),
			sluice.Config{PrefetchBytes: prefetch, AssignEvery: time.Millisecond})
		time.Sleep(20 * time.Second)
		const most = maxBytes/mebibyte + partitions*(prefetch+driver.ReadBytes+mebibyte)/mebibyte
		if n := log.settled(most); n > most {
			t.Errorf("%d MiB are in memory, want at most %d", n, most)
		} else if n < maxBytes/mebibyte {
			t.Errorf("%d MiB are in memory: %d may be in flight", n, maxBytes/mebibyte)
		} else {
			t.Logf("%d MiB of events in memory, %d MiB may be in flight", n, maxBytes/mebibyte)
		}
		if n := len(sink.held); n > maxBytes/mebibyte+partitions {
			t.Errorf("%d MiB are in flight, %d were allowed", n, maxBytes/mebibyte)
		}
		go end()
		synctest.Wait()
		sink.release()
		end()
	})
}

// TestMemoryOfSlowEvent: an event that takes long keeps no other event in memory.
func TestMemoryOfSlowEvent(t *testing.T) {
	stage(t, 1, func(s *scene) {
		log := newLargeEvents(1, 64<<10, 999)
		sink := &heldBack{finishes: func(e *sluice.Event) bool { return e.Sequence%250 != 0 }, held: make(chan func(), 1000)}
		_, end := s.Run(log, sluice.AtLeastOnce(s.Store, sluice.EventAsRecord, sink, nil), sluice.Config{})
		time.Sleep(20 * time.Second)
		if n := log.settled(4); n > 4 {
			t.Errorf("%d events are in memory, 4 are not finished", n)
		}
		go end()
		synctest.Wait()
		sink.release()
		end()
	})
}

// TestMemoryTransactional: while a handler is at work, a partition has in memory a batch
// and as much again, each up to PrefetchBytes, and what one Read returns.
func TestMemoryTransactional(t *testing.T) {
	const prefetch = 4 * mebibyte
	stage(t, 1, func(s *scene) {
		log := newLargeEvents(1, mebibyte, 99)
		release := make(chan struct{})
		var batches, largest atomic.Int64
		_, end := s.Run(log, sluice.Transactional(s.Store, func(_ context.Context, _ *sluicetest.Tx, b sluice.Batch) error {
			<-release
			batches.Add(1)
			largest.Store(max(largest.Load(), int64(len(b.Events))))
			return nil
		}), sluice.Config{PrefetchBytes: prefetch})
		time.Sleep(10 * time.Second)
		const most = (2*prefetch + driver.ReadBytes) / mebibyte
		if n := log.settled(most); n > most {
			t.Errorf("%d MiB are in memory, want at most %d", n, most)
		}
		close(release)
		time.Sleep(10 * time.Second)
		if largest.Load() > prefetch/mebibyte || batches.Load() < 25 {
			t.Errorf("%d batches, the largest of %d MiB: want at most %d", batches.Load(), largest.Load(), prefetch/mebibyte)
		}
		end()
	})
}

// TestUndecodableEventHalts: a partition whose next event cannot be decoded is reported as
// halted, once, and not as a failure that passes.
func TestUndecodableEventHalts(t *testing.T) {
	stage(t, 1, func(s *scene) {
		undecodable := &driver.UndecodableError{Partition: "0", Sequence: 7, Reason: "a property has the AMQP type 0x94"}
		_, end := s.Run(refusingLog{newLargeEvents(1, 1, 9), undecodable}, sluice.Transactional(s.Store, func(context.Context, *sluicetest.Tx, sluice.Batch) error { return nil }), sluice.Config{})
		time.Sleep(time.Minute)
		if halted := s.Observations(driver.KindHalted); len(halted) != 1 || !errors.Is(halted[0].Err, undecodable) {
			t.Errorf("halted: %+v", halted)
		}
		if n := s.Count(driver.KindFailed); n > 0 {
			t.Errorf("%d failures reported", n)
		}
		end()
	})
}

// refusingLog is a log whose readers do not open.
type refusingLog struct {
	*largeEvents
	err error
}

func (l refusingLog) Open(context.Context, string, sluice.Position, int64) (driver.Reader, error) {
	return nil, l.err
}

// TestMemoryOfProcess: the events of 16 partitions, which each could hold 12 MiB and more, stay
// within a budget of 80 MiB that two consumers share, while nothing is done and while all is
// delivered. Their partitions hold 1 GiB.
func TestMemoryOfProcess(t *testing.T) {
	const partitions, budget, each = 8, 80, 64
	for name, delivery := range map[string]func(s *scene, done func() error) sluice.Delivery{
		"Transactional": func(s *scene, done func() error) sluice.Delivery {
			return sluice.Transactional(s.Store, func(context.Context, *sluicetest.Tx, sluice.Batch) error { return done() })
		},
		"AtLeastOnce": func(s *scene, done func() error) sluice.Delivery {
			sink := sinkFunc(func(_ context.Context, e *sluice.Event, finished func(driver.WriteResult)) {
				go func() { finished(driver.WriteResult{Err: done()}); runtime.KeepAlive(e) }()
			})
			return sluice.AtLeastOnce(s.Store, sluice.EventAsRecord, sink, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			stage(t, 1, func(s *scene) {
				log := newLargeEvents(2*partitions, mebibyte, each)
				release := make(chan struct{})
				memory := sluice.NewMemory(budget * mebibyte)
				cfg := sluice.Config{Memory: memory, Partitions: partitions, AssignEvery: time.Millisecond}
				d := delivery(s, func() error { <-release; time.Sleep(time.Millisecond); return nil })
				_, endFirst := s.Run(log, d, cfg)
				_, endSecond := s.Run(log, d, cfg)
				time.Sleep(20 * time.Second)
				if n := log.settled(budget); n > budget || n < budget/2 {
					t.Errorf("%d MiB are in memory while nothing is done, want at most %d and not much less", n, budget)
				}
				if used, limit := memory.Charged(); used > limit || limit > budget*mebibyte {
					t.Errorf("%d bytes are charged of %d", used, limit)
				}
				close(release)
				for range 200 {
					time.Sleep(10 * time.Millisecond)
					if n := log.settled(budget); n > budget {
						t.Errorf("%d MiB are in memory while events are delivered, want at most %d", n, budget)
					}
				}
				time.Sleep(time.Minute)
				if n := log.settled(2 * partitions); n > 2*partitions { // a worker keeps its last batch
					t.Errorf("%d MiB are in memory at the end", n)
				}
				endFirst()
				endSecond()
				if used, _ := memory.Charged(); used != 0 {
					t.Errorf("%d bytes are charged at the end", used)
				}
				done := map[string]int64{}
				for _, o := range s.Observations(driver.KindCommitted, driver.KindWritten) {
					done[o.Partition] = max(done[o.Partition], o.To.Sequence)
				}
				for _, p := range log.partitions {
					if done[p] != each {
						t.Errorf("partition %s was delivered up to %d, want %d", p, done[p], each)
					}
				}
			})
		})
	}
}

// sinkFunc is a sink that is a function.
type sinkFunc func(ctx context.Context, e *sluice.Event, done func(driver.WriteResult))

func (f sinkFunc) Submit(ctx context.Context, e *sluice.Event, done func(driver.WriteResult)) {
	f(ctx, e, done)
}

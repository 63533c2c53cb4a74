package stream_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine/enginetest"
	"github.com/sluice-go/sluice/sluicetest"
)

// completed is a sink that completes records at once, on the caller's goroutine or on
// another one. It sends to counted after every hundred records.
type completed struct {
	queue   chan func(driver.WriteResult) // nil: on the caller's goroutine
	n       int
	counted chan int
	ctx     context.Context
}

func (s *completed) Submit(_ context.Context, _ *sluice.Event, done func(driver.WriteResult)) {
	if s.queue != nil {
		s.queue <- done
		return
	}
	s.complete(done)
}

func (s *completed) complete(done func(driver.WriteResult)) {
	done(driver.WriteResult{})
	if s.n++; s.n%100 == 0 {
		select {
		case s.counted <- 100:
		case <-s.ctx.Done():
		}
	}
}

// BenchmarkAtLeastOnce is the engine's own cost per event: a log, a store and a sink in
// memory that do next to nothing.
func BenchmarkAtLeastOnce(b *testing.B) {
	for _, own := range []bool{false, true} {
		b.Run(fmt.Sprintf("goroutine=%v", own), func(b *testing.B) {
			ctx, cancel := context.WithCancel(b.Context())
			sink := &completed{counted: make(chan int, 1024), ctx: ctx}
			working := make(chan struct{})
			if own {
				sink.queue = make(chan func(driver.WriteResult), 1<<20)
				go func() {
					defer close(working)
					for done := range sink.queue {
						sink.complete(done)
					}
				}()
			}
			c, err := sluice.New(&enginetest.EndlessLog{Partitions: 1}, &sluicetest.Leases{}, sluice.AtLeastOnce(&sluicetest.Store{}, sluice.EventAsRecord, sink, nil),
				&sluice.Config{AssignEvery: time.Millisecond})
			if err != nil {
				b.Fatal(err)
			}
			ran := make(chan error, 1)
			go func() { ran <- c.Run(ctx) }()
			<-sink.counted
			b.ReportAllocs()
			b.ResetTimer()
			for n := 0; n < b.N; {
				n += <-sink.counted
			}
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
			cancel()
			<-ran
			if own {
				close(sink.queue)
				<-working
			}
		})
	}
}

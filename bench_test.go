package sluice_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/sluicetest"
	"github.com/sluice-go/sluice/stamp"
)

// endless is a log that is never at its end: it measures the engine and
// nothing else.
type endless struct {
	partitions int
}

func (s *endless) Describe(context.Context) (sluice.Topic, error) {
	t := sluice.Topic{Group: group, Incarnation: "1"}
	for n := range s.partitions {
		t.Partitions = append(t.Partitions, fmt.Sprint(n))
	}
	return t, nil
}

func (s *endless) Bounds(context.Context, string) (driver.Bounds, error) {
	return driver.Bounds{Last: sluice.Position{Sequence: 1 << 60}}, nil
}

func (s *endless) Seek(context.Context, string, sluice.Start, int64) (sluice.Position, error) {
	return driver.Origin, nil
}

func (s *endless) Open(_ context.Context, _ string, after sluice.Position, _ int64) (driver.Reader, error) {
	return &endlessReader{next: after.Sequence + 1}, nil
}

type endlessReader struct{ next int64 }

func (r *endlessReader) Read(_ context.Context, max int) ([]*sluice.Event, error) {
	events := make([]*sluice.Event, max)
	block := make([]sluice.Event, max)
	for i := range events {
		block[i].Sequence = r.next
		r.next++
		events[i] = &block[i]
	}
	return events, nil
}

func (r *endlessReader) Close(context.Context) error { return nil }

// BenchmarkEngine is the engine's own cost per event: a log and a database in
// memory that do next to nothing.
func BenchmarkEngine(b *testing.B) {
	for _, partitions := range []int{1, 4} {
		for _, batch := range []int{100, 1000} {
			b.Run(fmt.Sprintf("partitions=%d/batch=%d", partitions, batch), func(b *testing.B) {
				b.ReportAllocs()
				consume(b, &endless{partitions: partitions}, &sluicetest.Store{}, batch)
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
			})
		}
	}
}

// consume times a consumer from its first batch on, until it has been given b.N
// events.
func consume(b *testing.B, source driver.Source, store driver.TxStore[*sluicetest.Tx], batch int) {
	b.Helper()
	seen := make(chan int, 1024)
	handler := func(ctx context.Context, _ *sluicetest.Tx, batch sluice.Batch) error {
		select {
		case seen <- len(batch.Events):
		case <-ctx.Done():
		}
		return nil
	}
	c, err := sluice.New(source, &sluicetest.Leases{}, sluice.Transactional(store, handler),
		&sluice.Config{MaxBatch: batch, AssignEvery: time.Millisecond, StampsFrom: []stamp.Source{{Topic: "flights"}}})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = c.Run(ctx) }()
	<-seen
	b.ResetTimer()
	for n := 0; n < b.N; {
		n += <-seen
	}
	b.StopTimer()
	cancel()
	<-done
}

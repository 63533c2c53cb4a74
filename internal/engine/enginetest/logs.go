package enginetest

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/sluicetest"
)

// FlakyLog is a log whose connections break, each so long after it was opened.
type FlakyLog struct {
	*sluicetest.Hub
	Every time.Duration
}

type flakyReader struct {
	driver.Reader
	deadline time.Time
}

// Open opens a reader that breaks.
func (f *FlakyLog) Open(ctx context.Context, partition string, after sluice.Position, epoch int64) (driver.Reader, error) {
	r, err := f.Hub.Open(ctx, partition, after, epoch)
	return &flakyReader{r, time.Now().Add(f.Every)}, err
}

func (r *flakyReader) Read(ctx context.Context, most int) ([]*sluice.Event, error) {
	ctx, cancel := context.WithDeadline(ctx, r.deadline)
	defer cancel()
	events, err := r.Reader.Read(ctx, most)
	if err != nil {
		err = ErrCut
	}
	return events, err
}

// EndlessLog is a log that is never at its end: it measures the engine and
// nothing else.
type EndlessLog struct {
	Partitions int
}

// Describe describes a topic with these partitions.
func (s *EndlessLog) Describe(context.Context) (sluice.Topic, error) {
	t := sluice.Topic{Group: Group, Incarnation: "1"}
	for n := range s.Partitions {
		t.Partitions = append(t.Partitions, fmt.Sprint(n))
	}
	return t, nil
}

// Bounds says that the end is far away.
func (s *EndlessLog) Bounds(context.Context, string) (driver.Bounds, error) {
	return driver.Bounds{Last: sluice.Position{Sequence: 1 << 60}}, nil
}

// Seek returns the beginning.
func (s *EndlessLog) Seek(context.Context, string, sluice.Start, int64) (sluice.Position, error) {
	return driver.Origin, nil
}

// Open opens a reader that always has events.
func (s *EndlessLog) Open(_ context.Context, _ string, after sluice.Position, _ int64) (driver.Reader, error) {
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

// SlowLog is a log whose links take a time to open.
type SlowLog struct {
	*sluicetest.Hub
	Takes time.Duration
}

// Open opens a reader after a time.
func (h SlowLog) Open(ctx context.Context, partition string, after sluice.Position, epoch int64) (driver.Reader, error) {
	time.Sleep(h.Takes)
	return h.Hub.Open(ctx, partition, after, epoch)
}

// CountsOpens counts how often the log is opened.
type CountsOpens struct {
	*sluicetest.Hub
	N atomic.Int64
}

func (h *CountsOpens) Open(ctx context.Context, partition string, after sluice.Position, epoch int64) (driver.Reader, error) {
	h.N.Add(1)
	return h.Hub.Open(ctx, partition, after, epoch)
}

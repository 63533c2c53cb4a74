package web

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
)

// PausableSource is a [driver.Source] whose partitions can be paused: a reader of a
// paused partition hands out nothing until it is resumed. The consumer keeps
// the partition's lease meanwhile, so that no other takes it, and continues
// with retries of dead letters whose bodies are stored. What was read before
// is still delivered: up to twice [sluice.Config.MaxBatch] events, or what is
// in flight. A pause ends with the process.
type PausableSource struct {
	driver.Source

	mu     sync.Mutex
	paused map[string]chan struct{} // closed when the partition is resumed
}

// NewPausableSource makes a source whose partitions can be paused.
func NewPausableSource(source driver.Source) *PausableSource {
	return &PausableSource{Source: source, paused: map[string]chan struct{}{}}
}

// Pause holds a partition. Pausing one that is paused changes nothing.
func (g *PausableSource) Pause(partition string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.paused[partition] == nil {
		g.paused[partition] = make(chan struct{})
	}
}

// Resume ends the pause of a partition.
func (g *PausableSource) Resume(partition string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c := g.paused[partition]; c != nil {
		close(c)
		delete(g.paused, partition)
	}
}

// Paused lists the partitions that are paused, sorted.
func (g *PausableSource) Paused() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	list := make([]string, 0, len(g.paused))
	for p := range g.paused {
		list = append(list, p)
	}
	slices.Sort(list)
	return list
}

// resumed returns what to wait for, nil if the partition is not paused.
func (g *PausableSource) resumed(partition string) <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.paused[partition]
}

// BoundsPerSecond implements [driver.BoundsBudget].
func (g *PausableSource) BoundsPerSecond() float64 { return driver.BudgetOf(g.Source) }

// Group implements [driver.GroupNamer].
func (g *PausableSource) Group() driver.Group { return driver.GroupOf(g.Source) }

// Open implements [driver.Source].
func (g *PausableSource) Open(ctx context.Context, partition string, after sluice.Position, epoch int64) (driver.Reader, error) {
	r, err := g.Source.Open(ctx, partition, after, epoch)
	if err != nil {
		return nil, err
	}
	return &pausableReader{Reader: r, source: g, partition: partition, closed: make(chan struct{})}, nil
}

type pausableReader struct {
	driver.Reader
	source    *PausableSource
	partition string
	pending   []*sluice.Event // read, but not handed out yet
	once      sync.Once
	closed    chan struct{}
}

var errClosed = errors.New("the reader was closed")

// Read implements [driver.Reader]. What arrives during a pause is handed out
// after it.
func (r *pausableReader) Read(ctx context.Context, max int) ([]*sluice.Event, error) {
	if err := r.wait(ctx); err != nil {
		return nil, err
	}
	if len(r.pending) == 0 {
		events, err := r.Reader.Read(ctx, max)
		if err != nil {
			return events, err
		}
		r.pending = events
		if err := r.wait(ctx); err != nil {
			return nil, err
		}
	}
	n := min(max, len(r.pending))
	events := r.pending[:n:n]
	r.pending = r.pending[n:]
	return events, nil
}

// Paused implements [driver.PausedReader].
func (r *pausableReader) Paused() bool { return r.source.resumed(r.partition) != nil }

func (r *pausableReader) wait(ctx context.Context) error {
	for {
		held := r.source.resumed(r.partition)
		if held == nil {
			return nil
		}
		select {
		case <-held:
		case <-r.closed:
			return errClosed
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Close implements [driver.Reader].
func (r *pausableReader) Close(ctx context.Context) error {
	r.once.Do(func() { close(r.closed) })
	return r.Reader.Close(ctx)
}

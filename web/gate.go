package web

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
)

// Gate is a [sluice.Source] whose partitions can be paused: a reader of a
// paused partition hands out nothing until it is resumed. The consumer keeps
// the partition's lease meanwhile, so that no other takes it, and goes on
// with retries of dead letters whose bodies are stored. What was read before
// is delivered still: up to twice [sluice.Config.MaxBatch] events, or what is
// in flight. A pause ends with the process.
type Gate struct {
	driver.Source

	mu     sync.Mutex
	paused map[string]chan struct{} // closed when the partition is resumed
}

// NewGate makes a gate before a source.
func NewGate(source driver.Source) *Gate {
	return &Gate{Source: source, paused: map[string]chan struct{}{}}
}

// Pause holds a partition. Pausing one that is paused changes nothing.
func (g *Gate) Pause(partition string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.paused[partition] == nil {
		g.paused[partition] = make(chan struct{})
	}
}

// Resume lets a partition go on.
func (g *Gate) Resume(partition string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c := g.paused[partition]; c != nil {
		close(c)
		delete(g.paused, partition)
	}
}

// Paused lists the partitions that are paused, sorted.
func (g *Gate) Paused() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	list := make([]string, 0, len(g.paused))
	for p := range g.paused {
		list = append(list, p)
	}
	slices.Sort(list)
	return list
}

// hold returns what to wait for, nil if the partition is not paused.
func (g *Gate) hold(partition string) <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.paused[partition]
}

// Open implements [sluice.Source].
func (g *Gate) Open(ctx context.Context, partition string, after sluice.Position, epoch int64) (driver.Reader, error) {
	r, err := g.Source.Open(ctx, partition, after, epoch)
	if err != nil {
		return nil, err
	}
	return &gatedReader{Reader: r, gate: g, partition: partition, closed: make(chan struct{})}, nil
}

type gatedReader struct {
	driver.Reader
	gate      *Gate
	partition string
	kept      []*sluice.Event // read, but not handed out yet
	once      sync.Once
	closed    chan struct{}
}

var errClosed = errors.New("the reader was closed")

// Read implements [sluice.Reader]. What arrives during a pause is handed out
// after it.
func (r *gatedReader) Read(ctx context.Context, max int) ([]*sluice.Event, error) {
	if err := r.wait(ctx); err != nil {
		return nil, err
	}
	if len(r.kept) == 0 {
		events, err := r.Reader.Read(ctx, max)
		if err != nil {
			return events, err
		}
		r.kept = events
		if err := r.wait(ctx); err != nil {
			return nil, err
		}
	}
	n := min(max, len(r.kept))
	events := r.kept[:n:n]
	r.kept = r.kept[n:]
	return events, nil
}

func (r *gatedReader) wait(ctx context.Context) error {
	for {
		held := r.gate.hold(r.partition)
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

// Close implements [sluice.Reader].
func (r *gatedReader) Close(ctx context.Context) error {
	r.once.Do(func() { close(r.closed) })
	return r.Reader.Close(ctx)
}

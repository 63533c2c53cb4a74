package sluice

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/sluice-go/sluice/driver"
)

// prefetchBuffer passes events from the goroutine that fetches to the one that
// delivers, so that the next batch is read while the last one commits. It holds
// fewer than twice max events.
type prefetchBuffer struct {
	max int

	mu     sync.Mutex
	events []*Event
	err    error // why no more events come; returned after the events

	space chan struct{} // wakes fetch: there is room again
	ready chan struct{} // wakes the delivery: there are events, or an error
}

func newPrefetchBuffer(max int) *prefetchBuffer {
	return &prefetchBuffer{max: max, space: make(chan struct{}, 1), ready: make(chan struct{}, 1)}
}

// fetch fills the buffer until reading fails or ctx ends. It calls fetched with
// the events of each read.
func (b *prefetchBuffer) fetch(ctx context.Context, r driver.Reader, fetched func([]*Event)) {
	for {
		b.mu.Lock()
		full := len(b.events) >= b.max
		b.mu.Unlock()
		if full {
			select {
			case <-b.space:
				continue
			case <-ctx.Done():
				return
			}
		}
		events, err := r.Read(ctx, b.max)
		if ctx.Err() != nil {
			return
		}
		if len(events) > 0 {
			fetched(events)
		}
		b.mu.Lock()
		b.events = append(b.events, events...)
		if b.err == nil {
			b.err = err
		}
		b.mu.Unlock()
		wake(b.ready)
		if err != nil {
			return
		}
	}
}

// fail has the delivery end with an error, after the events that are there.
func (b *prefetchBuffer) fail(err error) {
	b.mu.Lock()
	if b.err == nil {
		b.err = err
	}
	b.mu.Unlock()
	wake(b.ready)
}

// take removes up to n events. It returns the reader's error once there are no
// events left.
func (b *prefetchBuffer) take(n int) ([]*Event, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.events) == 0 {
		return nil, b.err
	}
	n = min(n, b.max, len(b.events))
	taken := b.events[:n:n]
	b.events = b.events[n:]
	if len(b.events) == 0 {
		b.events = nil
	}
	wake(b.space)
	return taken, nil
}

// peek returns up to n events with numbers above after, without removing them.
func (b *prefetchBuffer) peek(after int64, n int) []*Event {
	b.mu.Lock()
	defer b.mu.Unlock()
	i, _ := slices.BinarySearchFunc(b.events, after+1, func(e *Event, s int64) int { return cmp.Compare(e.Sequence, s) })
	return slices.Clone(b.events[i:min(i+n, len(b.events))])
}

// wake sends to a channel of capacity one unless a signal is already there.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

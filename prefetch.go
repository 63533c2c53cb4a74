package sluice

import (
	"context"
	"sync"

	"github.com/sluice-go/sluice/driver"
)

// inbox hands events from the goroutine that fetches to the one that
// delivers, so that the next batch is read while the last one commits. It
// holds fewer than twice max events.
type inbox struct {
	max int

	mu     sync.Mutex
	events []*Event
	err    error // why no more will come; behind the events

	room chan struct{} // wakes fetch: there is room again
	news chan struct{} // wakes the delivery: there is something to look at
}

func newInbox(max int) *inbox {
	return &inbox{max: max, room: make(chan struct{}, 1), news: make(chan struct{}, 1)}
}

// fetch fills the inbox until reading fails or ctx ends, which it returns no
// error for. Each read is told to the observer.
func (b *inbox) fetch(ctx context.Context, r driver.Reader, observe func([]*Event)) {
	for {
		b.mu.Lock()
		full := len(b.events) >= b.max
		b.mu.Unlock()
		if full {
			select {
			case <-b.room:
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
			observe(events)
		}
		b.mu.Lock()
		b.events = append(b.events, events...)
		b.err = err
		b.mu.Unlock()
		wake(b.news)
		if err != nil {
			return
		}
	}
}

// take removes up to n events. It returns the reader's error once there are
// no events left.
func (b *inbox) take(n int) ([]*Event, error) {
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
	wake(b.room)
	return taken, nil
}

// wake leaves a note in a channel of capacity one.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

package sluice

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine"
)

// Keyed returns a sink that writes to sink and orders records by a key of their own:
// key returns a record's key for [OrderKey], "" if it has none.
func Keyed[R any](sink driver.Sink[R], key func(R) string) driver.Sink[R] {
	return &keyedSink[R]{sink, key}
}

type keyedSink[R any] struct {
	driver.Sink[R]
	key func(R) string
}

// EventAsRecord makes an event its own record, for sinks like [Workers] that write
// events.
func EventAsRecord(_ context.Context, e *Event) ([]*Event, error) { return []*Event{e}, nil }

// Workers returns a sink that calls fn for each event, up to n calls at a time, for
// programs with a store of their own. The error of fn is read as [driver.WriteResult].Err; a
// panic is an error, and so is a call that ends its goroutine. Workers returns an error if
// n is not positive or fn is nil.
func Workers(n int, fn func(ctx context.Context, e *Event) error) (*WorkerSink, error) {
	if n <= 0 {
		return nil, fmt.Errorf("%d workers: must be positive", n)
	}
	if fn == nil {
		return nil, errors.New("workers: function is nil")
	}
	return &WorkerSink{fn: fn, idle: n}, nil
}

// WorkerSink is the sink that [Workers] returns. It is safe for concurrent use, also by
// several consumers, which share its n calls.
type WorkerSink struct {
	fn func(context.Context, *Event) error

	mu      sync.Mutex
	idle    int // workers that could be started
	waiting []call
}

type call struct {
	ctx  context.Context
	e    *Event
	done func(driver.WriteResult)
}

// Submit queues the event for the next free worker.
func (s *WorkerSink) Submit(ctx context.Context, e *Event, done func(driver.WriteResult)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = append(s.waiting, call{ctx, e, done})
	if s.idle > 0 {
		s.idle--
		// Its owner is the consumer, which waits for every result.
		go s.work()
	}
}

// work handles the waiting events, then ends.
func (s *WorkerSink) work() {
	// A function can end its goroutine. Another one takes its place.
	exited := true
	defer func() {
		if exited {
			go s.work()
		}
	}()
	for {
		s.mu.Lock()
		if len(s.waiting) == 0 {
			s.waiting = nil
			s.idle++
			s.mu.Unlock()
			exited = false
			return
		}
		c := s.waiting[0]
		s.waiting = s.waiting[1:]
		s.mu.Unlock()
		s.handle(c)
	}
}

// handle calls the function for an event, and completes it.
func (s *WorkerSink) handle(c call) {
	err := engine.GoexitError("function of Workers")
	defer func() { c.done(driver.WriteResult{Err: err}) }()
	if ended := c.ctx.Err(); ended != nil {
		err = ended
		return
	}
	err = engine.Guard(func() error { return s.fn(c.ctx, c.e) })
}

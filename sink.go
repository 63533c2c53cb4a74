package sluice

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Sink writes the records that [AtLeastOnce] makes of events. It completes each on its
// own, in any order. Implementations must be safe for concurrent use by all partitions.
type Sink[R any] interface {
	// Submit takes a record and returns. The sink calls done exactly once with the
	// result, from any goroutine, perhaps before Submit returns. Later calls are
	// ignored and reported; while no call comes, the partition is reported as stalled.
	// A panic of Submit counts as an outage.
	//
	// A sink should queue and not block: a call that blocks delays its partition. The
	// engine measures how fast the sink completes records, and submits about as many as
	// it completes in a second, in equal shares for the partitions that have more. A
	// stop waits for those, and for no others.
	//
	// A record whose ctx has ended must not be sent any more, because the partition may
	// belong to another owner.
	//
	// The sink must not retry by itself: the engine counts and paces every attempt.
	Submit(ctx context.Context, record R, done func(WriteResult))
}

// Keyed returns a sink that writes to sink and orders records by a key of their own:
// key returns a record's key for [OrderKey], "" if it has none.
func Keyed[R any](sink Sink[R], key func(R) string) Sink[R] {
	return &keyedSink[R]{sink, key}
}

type keyedSink[R any] struct {
	Sink[R]
	key func(R) string
}

// WriteResult says what happened to a record.
//
// Err says where the fault is:
//   - nil: the record is written;
//   - [ErrRejected] (see [Reject]): the event can never be written. It becomes a dead
//     letter at once;
//   - a [*RetryError] (see [RetryAfter]): the record is retried after a wait, as often
//     as needed;
//   - [ErrOutage] (see [Outage]): the store or the way to it is down. The partition
//     waits, with back-off, and the attempt does not count against the event;
//   - any other error is the event's own failure: see [Config.Attempts].
type WriteResult struct {
	Err  error
	Cost float64 // what the store charged for the attempt, in its own unit (RU for Cosmos DB); 0 if unknown
	// Waited is how long the sink held the attempt back for a limit of its own
	// (RU for Cosmos DB). If records waited together, only one of them reports it.
	Waited time.Duration
}

// EventAsRecord makes an event its own record, for sinks like [Workers] that write
// events.
func EventAsRecord(_ context.Context, e *Event) ([]*Event, error) { return []*Event{e}, nil }

// Workers returns a sink that calls fn for each event, up to n calls at a time, for
// programs with a store of their own. The error of fn is read as [WriteResult].Err; a
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
	done func(WriteResult)
}

// Submit queues the event for the next free worker.
func (s *WorkerSink) Submit(ctx context.Context, e *Event, done func(WriteResult)) {
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
	err := goexitError("function of Workers")
	defer func() { c.done(WriteResult{Err: err}) }()
	if ended := c.ctx.Err(); ended != nil {
		err = ended
		return
	}
	err = guard(func() error { return s.fn(c.ctx, c.e) })
}

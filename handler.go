package sluice

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine"
)

// Handler applies a batch to the database through tx, whose writes commit together with the
// checkpoint. It may be called again with the same events: after a failure, or with a part of the
// batch while the engine searches for the event to blame. It may also be called with a later event
// alone, to see whether that succeeds where an earlier one has failed. The writes of all these
// calls are rolled back; effects outside tx are not.
//
// The error says whose fault it is:
//   - marked by [driver.Reject]: the event's own. It becomes a dead letter at once;
//   - marked by [driver.Outage], or by [driver.RetryAfter]: that of something which every event
//     needs, such as an API. The partition waits and nothing is counted;
//   - any other error is the event's own failure: see [Config.Attempts]. A panic is such an error.
//
// An error of the database that is about its state, about a right, or about a statement that names
// something missing is an outage, whatever the handler makes of it. An outage is reported as
// [driver.KindFailed]. When ctx is cancelled (see [context.Cause]) nothing can be committed any
// more.
type Handler[Tx any] func(ctx context.Context, tx Tx, b Batch) error

// Middleware wraps a handler.
type Middleware[Tx any] func(Handler[Tx]) Handler[Tx]

// With wraps h in middleware; the first is the outermost.
func (h Handler[Tx]) With(middleware ...Middleware[Tx]) Handler[Tx] {
	for i := len(middleware) - 1; i >= 0; i-- {
		h = middleware[i](h)
	}
	return h
}

// Each makes a handler from a function that handles one event.
func Each[Tx any](fn func(ctx context.Context, tx Tx, e *Event) error) Handler[Tx] {
	return func(ctx context.Context, tx Tx, b Batch) error {
		for i, e := range b.Events {
			if err := engine.Guard(func() error { return fn(ctx, tx, e) }); err != nil {
				return &driver.EventError{Index: i, Err: err}
			}
		}
		return nil
	}
}

// Typed is [Each] for events whose bodies are JSON of type T. A body that
// cannot be decoded is rejected.
func Typed[T, Tx any](fn func(ctx context.Context, tx Tx, e *Event, value T) error) Handler[Tx] {
	return TypedBy(func(e *Event) (T, error) {
		var v T
		err := json.Unmarshal(e.Body, &v)
		return v, err
	}, fn)
}

// TypedBy is [Typed] with a decoder of the caller. The decoder's errors are rejections.
func TypedBy[T, Tx any](decode func(*Event) (T, error), fn func(ctx context.Context, tx Tx, e *Event, value T) error) Handler[Tx] {
	return Each(func(ctx context.Context, tx Tx, e *Event) error {
		v, err := decode(e)
		if err != nil {
			return driver.Reject(fmt.Errorf("decode: %w", err))
		}
		return fn(ctx, tx, e, v)
	})
}

package sluice

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"

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
	if fn == nil {
		return nil // New refuses it
	}
	return func(ctx context.Context, tx Tx, b Batch) error {
		for i, e := range b.Events {
			if err := engine.Guard(func() error { return fn(ctx, tx, e) }); err != nil {
				return &driver.EventError{Index: i, Err: err}
			}
		}
		return nil
	}
}

// Typed is [Each] for events whose bodies are JSON of type T. A body that cannot be decoded is
// rejected. So is null, and an empty body: if T is a pointer they are nil, for topics in which an
// event without a body deletes its key.
func Typed[T, Tx any](fn func(ctx context.Context, tx Tx, e *Event, value T) error) Handler[Tx] {
	if fn == nil {
		return nil
	}
	nilable := reflect.TypeFor[T]().Kind() == reflect.Pointer
	return TypedBy(func(e *Event) (T, error) {
		var v T
		body := bytes.TrimSpace(e.Body)
		switch null := string(body) == "null"; {
		case nilable && (null || len(body) == 0):
			return v, nil
		case null:
			return v, errors.New("the body is null")
		}
		err := json.Unmarshal(body, &v)
		return v, err
	}, fn)
}

// TypedBy is [Typed] with a decoder of the caller. The decoder's errors are rejections.
func TypedBy[T, Tx any](decode func(*Event) (T, error), fn func(ctx context.Context, tx Tx, e *Event, value T) error) Handler[Tx] {
	if decode == nil || fn == nil {
		return nil
	}
	return Each(func(ctx context.Context, tx Tx, e *Event) error {
		v, err := decode(e)
		if err != nil {
			return driver.Reject(fmt.Errorf("decode: %w", err))
		}
		return fn(ctx, tx, e, v)
	})
}

// Route makes a handler that passes each event to the handler of its kind, in the batch's order:
// neighbours of one kind come as one batch. kind returns what kind an event is, for example a
// property. The handler of "" gets the events that have no other; without it they are rejected. A
// nil handler is refused by [New], as one of [Each] without a function is.
func Route[Tx any](kind func(*Event) string, handlers map[string]Handler[Tx]) Handler[Tx] {
	if kind == nil || len(handlers) == 0 {
		return nil
	}
	for _, handler := range handlers {
		if handler == nil {
			return nil
		}
	}
	handlers = maps.Clone(handlers)
	return func(ctx context.Context, tx Tx, b Batch) error {
		for first := 0; first < len(b.Events); {
			name, err := kindOf(kind, b.Events[first])
			if err != nil {
				return &driver.EventError{Index: first, Err: err}
			}
			next := first + 1
			for ; next < len(b.Events); next++ {
				if other, err := kindOf(kind, b.Events[next]); err != nil || other != name {
					break
				}
			}
			handler := handlers[name]
			if handler == nil {
				handler = handlers[""]
			}
			if handler == nil {
				return &driver.EventError{Index: first, Err: driver.Reject(fmt.Errorf("no handler for events of kind %q", name))}
			}
			part := b
			part.Events = b.Events[first:next]
			if err := handler(ctx, tx, part); err != nil {
				return engine.Shifted(err, first, len(part.Events))
			}
			first = next
		}
		return nil
	}
}

func kindOf(kind func(*Event) string, e *Event) (name string, err error) {
	err = engine.Guard(func() error { name = kind(e); return nil })
	return name, err
}

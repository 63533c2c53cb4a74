package driver

import (
	"fmt"
	"time"
)

// EventError is a handler's error that names the event to blame by its index in the
// batch, so that the engine need not search for it. sluice.Each and sluice.Typed return it.
type EventError struct {
	Index int
	Err   error
}

func (e *EventError) Error() string { return fmt.Sprintf("event %d of the batch: %v", e.Index, e.Err) }

// Unwrap returns the event's own error.
func (e *EventError) Unwrap() error { return e.Err }

// Reject marks err as final: the event becomes a dead letter at once, without another
// attempt. It is for what is wrong with the event itself, such as a body that cannot be
// decoded. Reject(nil) is nil.
//
// An error may carry several marks, or wrap errors that do: then [RetryAfter] and Outage
// apply first, [Defer] next, and Reject last.
func Reject(err error) error {
	if err == nil {
		return nil
	}
	return &rejection{err}
}

type rejection struct{ err error }

func (r *rejection) Error() string { return r.err.Error() }

func (r *rejection) Unwrap() error { return r.err }

func (r *rejection) Is(target error) bool { return target == ErrRejected }

// Outage marks err as that of something which every event needs, such as an API that is
// down: the partition waits with back-off and repeats, for as long as it takes, and no
// attempt is counted. A sluice.Handler may return it, also inside an [EventError], and so may
// the function that makes records and a [Sink]. Outage(nil) is nil.
//
// Don't use it for an error that one event alone can cause: the partition would wait at
// that event for ever.
func Outage(err error) error {
	if err == nil {
		return nil
	}
	return &outage{err}
}

type outage struct{ err error }

func (o *outage) Error() string { return o.err.Error() }

func (o *outage) Unwrap() error { return o.err }

func (o *outage) Is(target error) bool { return target == ErrOutage }

// RetryError asks the engine for another attempt after a time.
type RetryError struct {
	After time.Duration // how long to wait; 0: as long as the engine chooses
	Err   error         // why
}

func (e *RetryError) Error() string { return e.Err.Error() }

// Unwrap returns the reason.
func (e *RetryError) Unwrap() error { return e.Err }

// RetryAfter marks err as one that passes, for example because a store throttles or a request timed
// out: there is another attempt after d, as often as needed, and none is counted. With
// sluice.Transactional and sluice.Batches the whole partition waits for d, and with back-off if d
// is 0. With sluice.AtLeastOnce the record waits, for sluice.AtLeastOnceConfig.RetryAfter if d is
// 0. RetryAfter(nil, d) is nil.
func RetryAfter(err error, d time.Duration) error {
	if err == nil {
		return nil
	}
	return &RetryError{After: d, Err: err}
}

// DeferError asks the engine to set the event aside and to try it again after a time.
type DeferError struct {
	After time.Duration // from 0 up
	Err   error         // why
}

func (e *DeferError) Error() string { return e.Err.Error() }

// Unwrap returns the reason.
func (e *DeferError) Unwrap() error { return e.Err }

// Defer marks err as the event's own and as one that may pass: the event becomes a dead letter at
// once, and the partition's owner tries it again after d, by the store's clock and as precisely as
// sluice.Config.RedriveEvery says, also after a restart. Meanwhile the later events go on and
// overtake it. With sluice.KeyHold those of its key wait instead. The attempt counts:
// a handler that wants to end the chain asks [AttemptOf]. Defer(nil, d) is nil.
//
// Where no order is needed, [RetryAfter] costs less for a short time. It stores nothing, and holds
// the checkpoint back.
func Defer(err error, d time.Duration) error {
	if err == nil {
		return nil
	}
	return &DeferError{After: max(d, 0), Err: err}
}

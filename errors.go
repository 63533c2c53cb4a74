package sluice

import (
	"errors"
	"fmt"
	"time"

	"github.com/sluice-go/sluice/driver"
)

// Errors to test for with [errors.Is]. The engine reports them to hooks and
// observers.
var (
	// ErrFenced means that the lease or the checkpoint belongs to a later epoch,
	// or that the checkpoint is at another position. Nothing was written.
	ErrFenced = driver.ErrFenced
	// ErrUnknown means that a commit was sent and its outcome is unknown. The
	// engine reads the checkpoint again before it retries anything.
	ErrUnknown = driver.ErrUnknown
	// ErrHandlerEnded means that a handler ended the transaction that it was given, by SQL
	// that reached the database past the store. What it wrote may be committed; the
	// checkpoint has not moved. The partition is halted, also after a restart, until an
	// operator sets its checkpoint.
	ErrHandlerEnded = driver.ErrHandlerEnded
	// ErrUnsafeTable means that a table's rows do not come and go with their transaction, for
	// example because it is UNLOGGED, or its engine is MyISAM. The events wait.
	ErrUnsafeTable = driver.ErrUnsafeTable
	// ErrStolen means that the broker gave the partition to a reader of a higher
	// epoch.
	ErrStolen = driver.ErrStolen
	// ErrRetention means that events were removed from the log before they were
	// read. The partition is halted until an operator sets its checkpoint.
	ErrRetention = driver.ErrRetention
	// ErrMissing means that the checkpoint is gone of a partition that had one.
	ErrMissing = driver.ErrMissing
	// ErrUndecodable means that the log holds an event that its driver cannot decode.
	// The partition is halted until an operator sets its checkpoint.
	ErrUndecodable = driver.ErrUndecodable
	// ErrPastEnd means that the checkpoint is after the newest event of the
	// log. The partition is halted until an operator sets its checkpoint.
	ErrPastEnd = driver.ErrPastEnd
	// ErrRecreated means that the topic was deleted and created again. The
	// partition is halted until an operator sets its checkpoint.
	ErrRecreated = driver.ErrRecreated
	// ErrTruncated means that the log lost events that were done, and gives their
	// numbers to others. The partition is halted until an operator sets its checkpoint.
	ErrTruncated = driver.ErrTruncated
	// ErrRefused means that repeating the request cannot help, for example
	// because the topic does not exist or access is denied.
	ErrRefused = driver.ErrRefused
	// ErrNotFound means that there is no such dead letter.
	ErrNotFound = driver.ErrNotFound

	// ErrRejected marks a handler's error as final: the event becomes a dead
	// letter without another attempt. See [Reject].
	ErrRejected = driver.ErrRejected
	// ErrOutage marks an error as that of something which every event needs, such as a
	// store, an API or the network. See [Outage].
	ErrOutage = errors.New("outage")
	// ErrLeaseExpired is the cause of a handler's cancelled context when the
	// lease could not be renewed in time.
	ErrLeaseExpired = errors.New("lease expired")
	// ErrSharedOwner means that another process works under this consumer's
	// [Config].Owner, so that the two take partitions from each other.
	ErrSharedOwner = errors.New("another process uses the owner name")
	// ErrDedupFull means that a partition has forgotten causation ids too early, because
	// it remembered as many as it may. Their duplicates take effect.
	ErrDedupFull = errors.New("dedup state is full")
	// ErrStopped is the cause of a handler's cancelled context when the consumer
	// is stopped and its time is up, or when the context of Run ends.
	ErrStopped = errors.New("consumer stopped")
)

// Errors that carry data, to ask for with [errors.As].
type (
	// FencedError is an [ErrFenced] that names the later epoch.
	FencedError = driver.FencedError
	// HandlerEndedError is an [ErrHandlerEnded] that says how to continue.
	HandlerEndedError = driver.HandlerEndedError
	// UnsafeTableError is an [ErrUnsafeTable] that names the table and says what to do.
	UnsafeTableError = driver.UnsafeTableError
	// StolenError is an [ErrStolen] that names the broker's epoch.
	StolenError = driver.StolenError
	// RetentionError is an [ErrRetention] that names the events that are gone.
	RetentionError = driver.RetentionError
	// MissingError is an [ErrMissing] that says how it is known that there was a checkpoint.
	MissingError = driver.MissingError
	// UndecodableError is an [ErrUndecodable] that names the event.
	UndecodableError = driver.UndecodableError
	// RecreatedError is an [ErrRecreated] that names both incarnations.
	RecreatedError = driver.RecreatedError
	// TruncatedError is an [ErrTruncated] that names the lost events.
	TruncatedError = driver.TruncatedError
	// PromotedError is an [ErrRecreated] of a geo-replicated topic: another region was
	// promoted, and the log refuses the offset of the checkpoint.
	PromotedError = driver.PromotedError
)

// EventError is a handler's error that names the event to blame by its index in the
// batch, so that the engine need not search for it. [Each] and [Typed] return it.
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
// apply before Reject.
func Reject(err error) error {
	if err == nil {
		return nil
	}
	return &rejection{err}
}

type rejection struct{ err error }

func (r *rejection) Error() string        { return r.err.Error() }
func (r *rejection) Unwrap() error        { return r.err }
func (r *rejection) Is(target error) bool { return target == ErrRejected }

// Outage marks err as that of something which every event needs, such as an API that is
// down: the partition waits with back-off and repeats, for as long as it takes, and no
// attempt is counted. A [Handler] may return it, also inside an [EventError], and so may
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

func (o *outage) Error() string        { return o.err.Error() }
func (o *outage) Unwrap() error        { return o.err }
func (o *outage) Is(target error) bool { return target == ErrOutage }

// RetryError asks the engine for another attempt after a time.
type RetryError struct {
	After time.Duration // how long to wait; 0: as long as the engine chooses
	Err   error         // why
}

func (e *RetryError) Error() string { return e.Err.Error() }

// Unwrap returns the reason.
func (e *RetryError) Unwrap() error { return e.Err }

// RetryAfter marks err as one that passes, for example because a store throttles or a
// request timed out: there is another attempt after d, as often as needed, and none is
// counted. With [Transactional] and [Batches] the whole partition waits for d, and with
// back-off if d is 0. With [AtLeastOnce] the record waits, for [AtLeastOnceConfig.RetryAfter] if d is 0.
// RetryAfter(nil, d) is nil.
func RetryAfter(err error, d time.Duration) error {
	if err == nil {
		return nil
	}
	return &RetryError{After: d, Err: err}
}

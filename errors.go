package sluice

import (
	"errors"
	"fmt"
)

// States that callers can ask for with [errors.Is].
var (
	// ErrHeld: the lease is another owner's and live.
	ErrHeld = errors.New("lease is held by another owner")
	// ErrFenced: the lease or the checkpoint has gone on without this owner;
	// nothing was written.
	ErrFenced = errors.New("fenced off by a later owner or position")
	// ErrUnknown: a commit was sent and its outcome is not known.
	ErrUnknown = errors.New("outcome of the commit is unknown")
	// ErrStolen: the broker gave the partition to a reader of a higher epoch.
	ErrStolen = errors.New("partition is read under a higher epoch")
	// ErrRetention: events that were not read yet are no longer in the log.
	ErrRetention = errors.New("events have passed retention unread")
	// ErrPastEnd: the position lies behind the newest event of the log.
	ErrPastEnd = errors.New("position is past the end of the partition")
	// ErrRecreated: the topic was deleted and created again.
	ErrRecreated = errors.New("topic was recreated")
	// ErrRefused: asking the same again cannot help.
	ErrRefused = errors.New("refused")
	// ErrRejected marks a handler's error as final: no retry, to the dead letters.
	ErrRejected = errors.New("rejected")
	// ErrNotFound: no such dead letter.
	ErrNotFound = errors.New("not found")
	// ErrLeaseExpired is the cause of a handler's cancelled context when the
	// lease could not be renewed in time.
	ErrLeaseExpired = errors.New("lease expired")
	// ErrStopped is the cause of a handler's cancelled context when the
	// consumer was told to stop and its time is up, or its context ended.
	ErrStopped = errors.New("consumer stopped")
)

// FencedError is an [ErrFenced] that names the epoch that won.
type FencedError struct {
	Partition string
	Epoch     int64 // of the checkpoint
	Owner     string
}

func (e *FencedError) Error() string {
	return fmt.Sprintf("partition %s: fenced off: its checkpoint is at epoch %d of %s", e.Partition, e.Epoch, e.Owner)
}

// Is makes a FencedError an [ErrFenced].
func (e *FencedError) Is(target error) bool { return target == ErrFenced }

// StolenError is an [ErrStolen] that names the broker's epoch, if the broker
// told it.
type StolenError struct {
	Partition string
	Epoch     int64 // 0 if unknown
}

func (e *StolenError) Error() string {
	if e.Epoch == 0 {
		return fmt.Sprintf("partition %s: taken by a reader of a higher epoch", e.Partition)
	}
	return fmt.Sprintf("partition %s: taken by a reader of epoch %d", e.Partition, e.Epoch)
}

// Is makes a StolenError an [ErrStolen].
func (e *StolenError) Is(target error) bool { return target == ErrStolen }

// RetentionError is an [ErrRetention] that names the events that are gone:
// After+1 up to First-1.
type RetentionError struct {
	Partition string
	After     int64 // sequence number of the checkpoint, or of the last event read
	First     int64 // sequence number of the next event that the log still holds
}

func (e *RetentionError) Error() string {
	return fmt.Sprintf("partition %s: events %d to %d have passed retention unread: look for what else recorded them, then go on with `sluice checkpoints set` to sequence %d",
		e.Partition, e.After+1, e.First-1, e.First)
}

// Is makes a RetentionError an [ErrRetention].
func (e *RetentionError) Is(target error) bool { return target == ErrRetention }

// RecreatedError is an [ErrRecreated] that names both incarnations.
type RecreatedError struct {
	Topic, Partition string
	Had, Has         string // the checkpoint's incarnation and the topic's
}

func (e *RecreatedError) Error() string {
	return fmt.Sprintf("partition %s: hub %s was recreated (created %s, the checkpoint is of the one created %s): check that the old events are done, then go on with `sluice checkpoints set` to earliest",
		e.Partition, e.Topic, e.Has, e.Had)
}

// Is makes a RecreatedError an [ErrRecreated].
func (e *RecreatedError) Is(target error) bool { return target == ErrRecreated }

// HandlerError is a failure of the handler, as told by [TxStore.Commit]: the
// database is healthy, so the event is to blame.
type HandlerError struct{ Err error }

func (e *HandlerError) Error() string { return e.Err.Error() }

// Unwrap gives the handler's own error.
func (e *HandlerError) Unwrap() error { return e.Err }

// EventError is a handler's error that names the event to blame by its index
// in the batch, which spares the search for it. [Each] and [Typed] return it.
type EventError struct {
	Index int
	Err   error
}

func (e *EventError) Error() string { return fmt.Sprintf("event %d of the batch: %v", e.Index, e.Err) }

// Unwrap gives the event's own error.
func (e *EventError) Unwrap() error { return e.Err }

// Reject marks err as final: the event goes to the dead letters at once,
// without further attempts. Reject(nil) is nil.
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

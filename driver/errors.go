package driver

import (
	"errors"
	"fmt"
)

// States that the engine asks for with [errors.Is].
var (
	// ErrHeld means that another owner holds the lease and that it has not expired.
	ErrHeld = errors.New("lease is held by another owner")
	// ErrFenced means that the lease or the checkpoint belongs to a later epoch,
	// or that the checkpoint stands at another position. Nothing was written.
	ErrFenced = errors.New("fenced off by a later owner or position")
	// ErrUnknown means that a commit was sent and its outcome is unknown.
	ErrUnknown = errors.New("outcome of the commit is unknown")
	// ErrStolen means that the broker gave the partition to a reader of a higher
	// epoch.
	ErrStolen = errors.New("partition is read under a higher epoch")
	// ErrRetention means that events were removed from the log before they were
	// read.
	ErrRetention = errors.New("events have passed retention unread")
	// ErrPastEnd means that the position lies behind the newest event of the log.
	ErrPastEnd = errors.New("position is past the end of the partition")
	// ErrRecreated means that the topic was deleted and created again.
	ErrRecreated = errors.New("topic was recreated")
	// ErrRefused means that asking the same again cannot help.
	ErrRefused = errors.New("refused")
	// ErrNotFound means that there is no such dead letter.
	ErrNotFound = errors.New("not found")
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

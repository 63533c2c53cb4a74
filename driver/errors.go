package driver

import (
	"errors"
	"fmt"
)

// Errors that the engine recognises with [errors.Is].
var (
	// ErrHeld means that another owner holds the lease, and that the lease has not expired.
	ErrHeld = errors.New("lease is held by another owner")
	// ErrFenced means that the lease or the checkpoint belongs to a later epoch, or that the
	// checkpoint is at another position. Nothing was written.
	ErrFenced = errors.New("fenced by a later owner or position")
	// ErrUnknown means that a commit was sent, and that its outcome is unknown.
	ErrUnknown = errors.New("commit outcome is unknown")
	// ErrTimeLimit means that a time limit ended the transaction while the handler was at work, and
	// that nothing was written. See [TxStore.Commit].
	ErrTimeLimit = errors.New("time limit passed")
	// ErrRejected means that a handler or a sink declared the event itself as the cause: another
	// attempt would not help.
	ErrRejected = errors.New("rejected")
	// ErrNotRun means that a handler succeeded in a dry run without the statements of
	// [Step].Witness.
	ErrNotRun = errors.New("statements were not run")
	// ErrHandlerEnded means that a handler ended the transaction that it was given. What it wrote
	// may be committed; the checkpoint has not moved. See [TxStore.Commit].
	ErrHandlerEnded = errors.New("handler ended its transaction")
	// ErrUnsafeTable means that a table's rows do not come and go with their transaction.
	ErrUnsafeTable = errors.New("table is not safe")
	// ErrStolen means that the broker gave the partition to a reader of a higher epoch.
	ErrStolen = errors.New("partition is read under a higher epoch")
	// ErrRetention means that retention removed events from the log before they were read.
	ErrRetention = errors.New("retention removed events before they were read")
	// ErrMissing means that the checkpoint is gone of a partition that had one.
	ErrMissing = errors.New("checkpoint is missing")
	// ErrUndecodable means that the log holds an event that its driver cannot decode.
	ErrUndecodable = errors.New("event cannot be decoded")
	// ErrPastEnd means that the position is after the newest event of the log.
	ErrPastEnd = errors.New("position is past the end of the partition")
	// ErrRecreated means that the topic was deleted and created again.
	ErrRecreated = errors.New("topic was recreated")
	// ErrTruncated means that the log lost events that were done, and gives their numbers to
	// others.
	ErrTruncated = errors.New("log was truncated")
	// ErrRefused means that the same request would be refused again.
	ErrRefused = errors.New("refused")
	// ErrNotFound means that there is no such dead letter.
	ErrNotFound = errors.New("not found")
)

// FencedError is an [ErrFenced] that names the later epoch.
type FencedError struct {
	Partition string
	Epoch     int64  // of the checkpoint
	Owner     string // of the checkpoint; empty after a reset
}

func (e *FencedError) Error() string {
	if e.Owner == "" {
		return fmt.Sprintf("partition %s: fenced: its checkpoint was reset in epoch %d", e.Partition, e.Epoch)
	}
	return fmt.Sprintf("partition %s: fenced: its checkpoint belongs to %s in epoch %d", e.Partition, e.Owner, e.Epoch)
}

// Is reports whether target is [ErrFenced].
func (e *FencedError) Is(target error) bool { return target == ErrFenced }

// HandlerEndedError is an [ErrHandlerEnded] that says how to continue.
type HandlerEndedError struct {
	Partition string
	Why       string // which events it was about, and what is known
	Next      int64  // sequence number after the checkpoint
}

func (e *HandlerEndedError) Error() string {
	return fmt.Sprintf("partition %s: %s: some of its writes may be committed, and the checkpoint has not moved: correct the handler, check which of the events took effect, then continue with `sluice checkpoints set` at sequence %d",
		e.Partition, e.Why, e.Next)
}

// Is reports whether target is [ErrHandlerEnded].
func (e *HandlerEndedError) Is(target error) bool { return target == ErrHandlerEnded }

// UnsafeTableError is an [ErrUnsafeTable] that names the table and says what to do. Nothing was
// written to it.
type UnsafeTableError struct{ Table, Why string }

func (e *UnsafeTableError) Error() string {
	return fmt.Sprintf("table %s is not safe: %s", e.Table, e.Why)
}

// Is reports whether target is [ErrUnsafeTable].
func (e *UnsafeTableError) Is(target error) bool { return target == ErrUnsafeTable }

// StolenError is an [ErrStolen] that names the epoch of the other reader, if the broker reports it.
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

// Is reports whether target is [ErrStolen].
func (e *StolenError) Is(target error) bool { return target == ErrStolen }

// RetentionError is an [ErrRetention] that names the missing events: After+1 to First-1.
type RetentionError struct {
	Partition string
	After     int64 // sequence number of the checkpoint, or of the last event read
	First     int64 // sequence number of the next event that the log still holds
	// Held says that the log holds older events than the missing ones, so that something
	// else than retention removed them, or the log did not return them.
	Held bool
	// Hint says of Held what is known, and what to check: a clause. Empty: nothing is.
	Hint string
	// Unchecked is why it is not known whether the log holds older events; empty if it is known.
	Unchecked string
}

func (e *RetentionError) Error() string {
	if e.Held && e.Hint != "" {
		return fmt.Sprintf("partition %s: the log did not return events %d to %d: %s; the partition is read again every 10 s; to continue without the events use `sluice checkpoints set` at sequence %d",
			e.Partition, e.After+1, e.First-1, e.Hint, e.First)
	}
	if e.Held {
		return fmt.Sprintf("partition %s: events %d to %d are missing, though the log holds older ones, so this is not retention: check whether log compaction is on; the partition is read again every 10 s; to continue without the events use `sluice checkpoints set` at sequence %d",
			e.Partition, e.After+1, e.First-1, e.First)
	}
	if e.Unchecked != "" {
		return fmt.Sprintf("partition %s: events %d to %d are missing; whether retention removed them could not be checked (%s): the partition is read again every 10 s; if the error stays, recover the events from another record, then continue with `sluice checkpoints set` at sequence %d",
			e.Partition, e.After+1, e.First-1, e.Unchecked, e.First)
	}
	return fmt.Sprintf("partition %s: retention removed events %d to %d before they were read: recover them from another record, then continue with `sluice checkpoints set` at sequence %d",
		e.Partition, e.After+1, e.First-1, e.First)
}

// Is reports whether target is [ErrRetention].
func (e *RetentionError) Is(target error) bool { return target == ErrRetention }

// UndecodableError is an [ErrUndecodable] that names the event.
type UndecodableError struct {
	Partition string
	Sequence  int64  // of the event
	Reason    string // what the driver does not decode
}

func (e *UndecodableError) Error() string {
	return fmt.Sprintf("partition %s: event %d cannot be decoded (%s): read it with another client if it matters, then continue after it with `sluice checkpoints set` at sequence %d",
		e.Partition, e.Sequence, e.Reason, e.Sequence+1)
}

// Is reports whether target is [ErrUndecodable].
func (e *UndecodableError) Is(target error) bool { return target == ErrUndecodable }

// MissingError is an [ErrMissing] that says how it is known that there was a checkpoint.
type MissingError struct {
	Partition string
	Known     string // how it is known: a clause
	Next      int64  // sequence number after the last position that is known; 0: none is
}

func (e *MissingError) Error() string {
	at := "at the first event that is not done"
	if e.Next > 0 {
		at = fmt.Sprintf("at sequence %d", e.Next)
	}
	return fmt.Sprintf("partition %s: the checkpoint is missing, but it existed (%s): starting again would repeat or skip events: find what removed it, then restore it, or continue with `sluice checkpoints set` %s",
		e.Partition, e.Known, at)
}

// Is reports whether target is [ErrMissing].
func (e *MissingError) Is(target error) bool { return target == ErrMissing }

// RecreatedError is an [ErrRecreated] that names both incarnations.
type RecreatedError struct {
	Topic, Partition string
	Had, Has         string // incarnation of the checkpoint, and of the topic now
}

func (e *RecreatedError) Error() string {
	return fmt.Sprintf("partition %s: topic %s was recreated: it is incarnation %s now, its checkpoint is of incarnation %s: check that the old events are done, then continue with `sluice checkpoints set --all --to earliest --force`",
		e.Partition, e.Topic, e.Has, e.Had)
}

// Is reports whether target is [ErrRecreated].
func (e *RecreatedError) Is(target error) bool { return target == ErrRecreated }

// TruncatedError is an [ErrTruncated] that names the lost events: End to Position.Sequence. A
// leader that had not received them was elected, and the log went back to End. It gives these
// numbers to other events, which must not be taken for done.
type TruncatedError struct {
	Partition string
	Position  Position // that was to be opened: the checkpoint, or the last event handled
	End       int64    // the first number that the log no longer has in the history of the position
	// Before is set by the at-least-once delivery: events of so many numbers before End, which the
	// log still has, are not all done. The checkpoint is to be set so far before End.
	Before int64
}

func (e *TruncatedError) Error() string {
	undone := ""
	if e.Before > 0 {
		undone = fmt.Sprintf(" (of the events from there to %d some are not done yet)", e.End-1)
	}
	return fmt.Sprintf("partition %s: the log lost events %d to %d, which were done, when a leader without them was elected; other events get their numbers: recover the lost events from another record if others need them, then continue with `sluice checkpoints set` at sequence %d%s",
		e.Partition, e.End, e.Position.Sequence, e.End-e.Before, undone)
}

// Is reports whether target is [ErrTruncated].
func (e *TruncatedError) Is(target error) bool { return target == ErrTruncated }

// PromotedError is an [ErrRecreated] of a geo-replicated topic: another region was promoted, and
// the log refuses the offset of the position. Which events were replicated is unknown.
type PromotedError struct {
	Topic, Partition string
	Position         Position
}

func (e *PromotedError) Error() string {
	return fmt.Sprintf("partition %s: hub %s refuses the offset %s of event %v, because another region was promoted or geo-replication was turned on: check which events are done, then continue with `sluice checkpoints set` at sequence %d if numbers are the same there, else at a time",
		e.Partition, e.Topic, e.Position.Offset, e.Position, e.Position.Sequence+1)
}

// Is reports whether target is [ErrRecreated].
func (e *PromotedError) Is(target error) bool { return target == ErrRecreated }

// HandlerError is a failure of the handler, as [TxStore.Commit] returns it: the database works, so
// the cause is the event or the handler.
type HandlerError struct {
	Err error
	// Statements are what the database refused for a reason that may be every event's, such as a
	// missing table or right, or one for which these values alone are the reason. An event that can
	// run them decides which it is: see [Step].Witness. Empty: the reason is no statement, or it is
	// the values.
	Statements []string
	// Advice is what to do if it is every event's: a clause. It may be empty.
	Advice string
}

func (e *HandlerError) Error() string {
	if e.Advice != "" {
		return e.Err.Error() + ": " + e.Advice
	}
	return e.Err.Error()
}

// Unwrap returns the handler's own error.
func (e *HandlerError) Unwrap() error { return e.Err }

// Errors of the engine, to test for with [errors.Is].
var (
	// ErrOutage marks an error as that of something which every event needs, such as a
	// store, an API or the network. See [Outage].
	ErrOutage = errors.New("outage")
	// ErrLeaseExpired is the cause of a handler's cancelled context when the
	// lease could not be renewed in time.
	ErrLeaseExpired = errors.New("lease expired")
	// ErrSharedOwner means that another process works under this consumer's
	// owner name, so that the two take partitions from each other.
	ErrSharedOwner = errors.New("another process uses the owner name")
	// ErrDedupFull means that a partition has forgotten causation ids too early, because
	// it remembered as many as it may. Their duplicates take effect.
	ErrDedupFull = errors.New("dedup state is full")
	// ErrStopped is the cause of a handler's cancelled context when the consumer
	// is stopped and its time is up, or when the context of Run ends.
	ErrStopped = errors.New("consumer stopped")
)

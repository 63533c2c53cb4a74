package driver

import (
	"context"
	"time"
)

// Step is what one transaction does to a partition besides the handler's own
// writes: it moves the checkpoint from From to To, parks and redrives events.
// From and To are equal when only dead letters change.
type Step struct {
	Lease          Lease
	From, To       Position
	DeadLetters    []DeadLetter // stored, or updated if a dead letter of the same identity is there
	Redriven       []int64      // ids of dead letters on retry that this step's handler has applied: removed
	FailedRedrives []DeadLetter // dead letters on retry that have failed again: state and error updated by id, bodies left alone
	Dedup          []DedupState // chain ids of the step's events, each origin once
	DedupSince     time.Time    // if not zero: of the partition's [DedupState], those older (At) are removed
	DedupForgotten []string     // origins of which every [DedupState] is removed, before those of this step are stored
}

// DedupState is what one step leaves in a partition's memory of chain ids of one
// origin (their source and partition), so that the next owner can tell
// repeats. The last one's Epoch and Low are the ones that hold.
type DedupState struct {
	Origin string
	Epoch  int64     // the highest so far
	Low    int64     // the watermark: ids of events up to this number need not be remembered
	Top    int64     // the highest number among IDs; Low if that is higher
	Forget int64     // what earlier steps have left of the origin is removed if its Top is at most this
	At     time.Time // when the log took the newest of the events
	IDs    string    // those new with the step, in printable ASCII; the store's to keep, not to read
}

// TxStore keeps checkpoints and dead letters in the database that the handler
// writes to, so that all three commit in one transaction. Tx is what the
// handler writes through; it cannot commit. Implementations are safe for
// concurrent use.
type TxStore[Tx any] interface {
	// Claim makes the lease's owner and epoch those of the partition's
	// checkpoint, creating the checkpoint (at Unset, with this incarnation) if
	// it is missing, and returns it. It waits for a transaction in progress on
	// the checkpoint, and ends that where it may, so that what it returns is
	// the truth. It counts Claims up if the epoch is new; a claim repeated
	// in the same epoch by the same owner does not count. It returns a
	// [*FencedError] if the checkpoint has a higher epoch, or the same one
	// under another owner. A checkpoint of another incarnation is claimed and
	// returned as it is; to judge that is the caller's business.
	Claim(ctx context.Context, lease Lease, incarnation string) (Checkpoint, error)

	// Commit runs one transaction: it checks, by updating exactly one row,
	// that the checkpoint has the lease's epoch and owner and stands at
	// step.From, and moves it to step.To; then calls fn (if not nil) with the
	// transaction; then stores the dead letters, removes the redriven ones
	// and updates the returned ones (each exactly one row with status retry),
	// stores what was seen and removes what that lets forget, and commits. When To differs from From, Claims becomes 1 and the Trial is
	// cleared.
	//
	// The error tells what has happened:
	//   - nil: committed;
	//   - [ErrFenced]: nothing written, fn not called or its writes undone:
	//     the checkpoint, or a dead letter on retry, is not as expected;
	//   - [ErrUnknown]: the commit was sent and no answer came. The caller
	//     must Claim again to learn the truth before anything is retried;
	//   - a [*HandlerError]: fn failed, or what it wrote was refused at the
	//     commit; nothing written, and the database was found healthy after;
	//   - any other: the database could not do it (an outage, a lost
	//     connection, a deadlock, a serialization failure): nothing written,
	//     and the same step may be tried again.
	Commit(ctx context.Context, step Step, fn func(ctx context.Context, tx Tx) error) error

	// RecordAttempt stores the trial of the event behind position at, fenced as
	// Commit is.
	RecordAttempt(ctx context.Context, lease Lease, at Position, trial AttemptRecord) error

	// Leave notes that the owner gives the partition up in good order: it sets
	// Claims to 0, if the checkpoint is still this lease's. A lease that was
	// fenced off is not an error.
	Leave(ctx context.Context, lease Lease) error

	// Due returns the partition's dead letters whose retry is due by the
	// store's clock, with bodies, lowest sequence number first, at most limit.
	Due(ctx context.Context, group Group, partition string, limit int) ([]DeadLetter, error)

	// ReadDedup returns what the partition's steps have left, up to the one that
	// brought the checkpoint to where it stands, in their order.
	ReadDedup(ctx context.Context, group Group, partition string) ([]DedupState, error)

	// Read returns the group's checkpoints sorted by partition, without
	// claiming them: for lag, audit and lists.
	Read(ctx context.Context, group Group) ([]Checkpoint, error)

	// Reset moves a checkpoint by hand, creating it if it is missing, gives it
	// the incarnation, and raises its epoch, which it returns, above every
	// claim so far, so that an owner that is still at work is fenced off. It
	// clears Claims and Trial, and removes what steps beyond the position have
	// left to be seen. What they had let forget doesn't come back: of a message
	// before the position whose id was forgotten since, a repeat behind it may
	// take effect again.
	Reset(ctx context.Context, group Group, partition, incarnation string, to Position) (epoch int64, err error)
}

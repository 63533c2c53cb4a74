package driver

import (
	"context"
	"time"
)

// Step is what one transaction does to a partition, besides the handler's own writes: it moves the
// checkpoint from From to To, and stores and redrives dead letters. From and To are equal if only
// dead letters change.
type Step struct {
	Lease          Lease
	From, To       Position
	DeadLetters    []DeadLetter // stored; updated if one of the same identity is stored already
	Redriven       []int64      // IDs of dead letters that this step's handler has redriven: removed
	FailedRedrives []DeadLetter // dead letters that failed again or are postponed: status, next attempt and error updated by ID, bodies left alone
	// PostponeFor, if not zero, makes those of FailedRedrives that are to be redriven due so long
	// after now, by the store's clock, in place of their NextAttempt.
	PostponeFor time.Duration

	Dedup          []DedupState // causation IDs of the step's events, each origin once
	DedupSince     time.Time    // if not zero: the partition's states whose At is before it are removed
	DedupForgotten []string     // origins of which every state is removed, before those of this step are stored

	// SettleIncarnation, if not empty, is the topic's incarnation: the step also removes its dead
	// letters, of any status, of the events after From and up to To, except those in DeadLetters.
	// The step decides about these events, so an older dead letter must not be redriven after it.
	SettleIncarnation string

	// DryRun has the step rolled back where it would commit, after the checks that a commit makes.
	DryRun bool
	// Witness are the statements of a [HandlerError]. In a dry run the error is [ErrNotRun] if the
	// handler succeeds without having run each of them.
	Witness []string
}

// DedupState is the part of a partition's deduplication state that one step adds for one origin (a
// source and a partition of it): the causation IDs of the step's events. From it the next owner
// recognises duplicates. Of several states of one origin, Epoch and Low of the last one apply.
type DedupState struct {
	Origin string
	Epoch  int64     // the highest of the origin so far
	Low    int64     // the watermark: IDs of events up to this number need not be kept
	Top    int64     // the highest number among IDs, or Low if that is higher
	Forget int64     // earlier states of the origin are removed if their Top is at most this
	At     time.Time // when the log accepted the newest of the events
	IDs    string    // the IDs that are new with the step, in printable ASCII; opaque to the store
}

// TxStore keeps checkpoints and dead letters in the database that the handler writes to, so that
// checkpoint, dead letters and the handler's writes commit in one transaction. Tx is what the
// handler writes through; it cannot commit. Implementations are safe for concurrent use. Each
// method returns soon after its context has ended, also if the database does not answer; the engine
// limits the time of every call but that of Commit.
type TxStore[Tx any] interface {
	// Claim makes the lease's owner and epoch those of the partition's checkpoint and returns the
	// checkpoint. It creates it, at Unset and with this incarnation, if it is missing. It waits for
	// a transaction in progress on the checkpoint, or ends it if it may: no earlier transaction can
	// change what Claim has returned. It does so within the deadline of ctx, which is a third of
	// the lease at first: a claim that waits for longer never succeeds.
	//
	// Claim increments Claims if the epoch is new. A claim repeated by the same owner in the same
	// epoch does not count. The error is a [*FencedError] if the checkpoint has a higher epoch, or
	// the same epoch under another owner. A checkpoint of another incarnation is claimed and
	// returned as it is: the caller decides about it.
	Claim(ctx context.Context, lease Lease, incarnation string) (Checkpoint, error)

	// Begin stores the start of a partition: it moves the checkpoint from a position, which is
	// Unset unless an earlier start is replaced, and stores to as its Began with [HowStart], in one
	// step. It is fenced as Commit is. After another error the write may have happened or may still
	// happen: the caller must Claim again.
	Begin(ctx context.Context, lease Lease, from, to Position) error

	// Commit runs one transaction. In this order it
	//   - checks that the checkpoint has the lease's owner and epoch and is at step.From, and locks
	//     it until the transaction ends;
	//   - calls fn, if it is not nil, with the transaction;
	//   - checks that the transaction is still the one that holds the lock;
	//   - stores the dead letters, removes the redriven ones and updates those that failed again,
	//     each exactly one row that is marked for redrive; removes those of SettleIncarnation;
	//   - stores the deduplication state and removes what it replaces;
	//   - moves the checkpoint to step.To, by updating exactly one row;
	//   - commits, or with DryRun checks the constraints that were deferred, as far as the database
	//     can, and rolls back.
	//
	// If To differs from From, Claims becomes 1 and Attempt is cleared.
	//
	// ctx has no deadline, because fn may take as long as it wants: the engine watches it and
	// reports it. Commit itself limits the time of each of its own requests, before and after fn,
	// well within a lease. A request before the commit that gets no answer is an outage; a commit
	// that gets none is [ErrUnknown].
	//
	// The error says what happened:
	//   - nil: committed, or with DryRun: it would have been, and nothing was written;
	//   - [ErrFenced]: nothing was written; fn was not called, or its writes were rolled back. The
	//     checkpoint, or a dead letter to redrive, is not as expected;
	//   - [ErrUnknown]: the commit was sent and no answer arrived. The caller must Claim again to
	//     learn the outcome before it repeats anything;
	//   - a [*HandlerError]: fn failed, or the database refused at the commit what fn wrote.
	//     Nothing was written, and afterwards the database was found to work. It has Statements
	//     unless the database's error is one of the values (a constraint, a value that does not
	//     fit), or fn's error is an [ErrRejected]: what fn says of the event counts more than the
	//     database's code;
	//   - [ErrNotRun]: fn succeeded, in a dry run, without the statements of step.Witness;
	//   - [ErrTimeLimit]: a limit on the time of a statement or a transaction passed in fn: the
	//     database's, or that of a context of fn's own. Nothing was written. One event may be the
	//     cause, or too many at once: the engine repeats the step with fewer, and counts it as the
	//     event's failure if there is only one;
	//   - [ErrHandlerEnded]: fn ended the transaction, whatever it returned. What fn wrote may be
	//     committed. The store wrote nothing, and the checkpoint is at step.From. The engine halts
	//     the partition. It is not this error if what fn wrote is known to be rolled back;
	//   - any other error: the database could not do it (an outage, a lost connection, a deadlock,
	//     a serialization failure). Nothing was written, and the caller may repeat the step.
	Commit(ctx context.Context, step Step, fn func(ctx context.Context, tx Tx) error) error

	// RecordAttempt stores an attempt record in place of the one that is stored. The checkpoint
	// must be at position at. It is fenced as Commit is.
	RecordAttempt(ctx context.Context, lease Lease, at Position, attempt AttemptRecord) error

	// Leave records that the owner stops cleanly, or has nothing to process: it sets Claims to 0 if
	// the checkpoint is still this lease's. If it is not, Leave does nothing and returns nil.
	Leave(ctx context.Context, lease Lease) error

	// Due returns the partition's dead letters whose redrive is due by the store's clock, with
	// bodies, lowest sequence number first, at most limit.
	Due(ctx context.Context, group Group, partition string, limit int) ([]DeadLetter, error)

	// Parked and SetAside are those of [DeadLetterQueue].
	Parked(ctx context.Context, group Group, partition, incarnation string, after int64) ([]ParkedEvent, error)
	SetAside(ctx context.Context, group Group, partition, incarnation string, lost []ParkedEvent) error

	// ReadDedup returns the deduplication state that the partition's steps have stored, up to the
	// step that moved the checkpoint to its position, in the order of the steps.
	ReadDedup(ctx context.Context, group Group, partition string) ([]DedupState, error)

	// Read returns the group's checkpoints sorted by partition. It claims nothing. The lag, the
	// audit and lists use it.
	Read(ctx context.Context, group Group) ([]Checkpoint, error)

	// Reset moves a checkpoint for an operator, and creates it if it is missing. It sets the
	// incarnation and Began, and raises the epoch, which it returns, above every claim so far: an
	// owner that is still at work is fenced. It clears Owner, Claims, Attempt and Done, and removes
	// the deduplication state of steps after the position. State that those steps had removed does
	// not come back: a duplicate, after the position, of a message before it may take effect again
	// if its ID was removed since.
	Reset(ctx context.Context, group Group, partition, incarnation string, to Position, how How) (epoch int64, err error)
}

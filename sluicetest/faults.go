package sluicetest

import (
	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
)

// Op names an operation of a [Store], for [Faults].
type Op string

// The operations of a [Store]. OpInsert is a handler's write through a [Tx].
const (
	OpClaim     Op = "claim"
	OpCommit    Op = "commit"
	OpInsert    Op = "insert"
	OpRecord    Op = "record"
	OpLeave     Op = "leave"
	OpDue       Op = "due"
	OpReadDedup Op = "seen"
	OpRead      Op = "read"
	OpReset     Op = "reset"
	OpList      Op = "list"
	OpGet       Op = "get"
	OpRedrive   Op = "retry"
	OpDiscard   Op = "discard"
	OpAdvance   Op = "advance"
	OpPark      Op = "park"
	OpSettle    Op = "settle"
	OpParked    Op = "parked"
	OpHeld      Op = "held"
)

// Faults lets a test come between a [Store] and its users. Its methods are
// called from several goroutines at once, on those of the callers and with no
// lock held, so that they may block.
type Faults interface {
	// Before is called before an operation. Its error is the operation's: an
	// outage. In OpInsert it breaks the transaction, whatever the handler
	// makes of the error. The lease is empty but for group and partition where
	// the operation has none, and the partition too where it has no partition.
	Before(op Op, lease sluice.Lease) error

	// Commit stands for the way of a COMMIT to the database and of its answer
	// back; the store returns its error as it is. It is called after the
	// handler, and may
	//   - call apply once and return its result: all is well;
	//   - return an error without calling apply: the connection was lost
	//     before the COMMIT reached the database;
	//   - call apply and return [driver.ErrUnknown]: the answer was lost;
	//   - return [driver.ErrUnknown] and have apply called later, from
	//     elsewhere: the COMMIT was under way for long.
	// apply checks the fence and writes, atomically, at the moment it is
	// called. What it returns is what a database would answer. A second call
	// fails and does nothing.
	Commit(step driver.Step, apply func() error) error
}

// WriteFaults are [Faults] that also come between the database and what is
// written to it without a transaction.
type WriteFaults interface {
	Faults

	// Write stands for the way of an OpAdvance, OpPark or OpSettle to the
	// database and of its answer back, as Commit does for a COMMIT: apply may
	// be called at once, later from elsewhere, or never, and the error returned
	// is the operation's. The lease is as in Before.
	Write(op Op, lease sluice.Lease, apply func() error) error
}

// UnsafeStore are the mutants of [Store].
type UnsafeStore struct {
	// NoFence checks neither epoch nor owner, in Commit, Advance and Claim.
	NoFence bool
	// NoPosition doesn't check that the checkpoint stands where the step
	// begins.
	NoPosition bool
	// SplitCommit writes the handler's effects in a transaction of their own,
	// before the one of checkpoint and dead letters, which is then the one that
	// Faults.Commit sees.
	SplitCommit bool
	// LateCommit has Claim leave transactions in progress alone, so that they
	// can take effect behind its back: what a Claim returned may not be the
	// last word.
	LateCommit bool
	// Backwards has Advance move the checkpoint back as well.
	Backwards bool
	// LostDedup has Commit store nothing of what was seen.
	LostDedup bool
	// LostDeadLetters has Park answer and store nothing.
	LostDeadLetters bool
}

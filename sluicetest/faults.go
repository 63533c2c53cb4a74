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
	OpBegin     Op = "begin"
	OpCommit    Op = "commit"
	OpInsert    Op = "insert"
	OpRecord    Op = "record"
	OpLeave     Op = "leave"
	OpDue       Op = "due"
	OpReadDedup Op = "read dedup"
	OpRead      Op = "read"
	OpReset     Op = "reset"
	OpList      Op = "list"
	OpGet       Op = "get"
	OpRedrive   Op = "redrive"
	OpDiscard   Op = "discard"
	OpAdvance   Op = "advance"
	OpPark      Op = "park"
	OpSettle    Op = "settle"
	OpParked    Op = "parked"
	OpSetAside  Op = "set aside"
	OpHeld      Op = "held"

	OpUncopied   Op = "uncopied"
	OpMarkCopied Op = "mark copied"
)

// Faults lets a test inject failures between a [Store] and its users. Its methods are called from
// several goroutines at the same time, those of the callers, without a lock, so that they may
// block.
type Faults interface {
	// Before is called before an operation, which returns its error: an outage.
	// In OpInsert the error fails the transaction, even if the handler drops it.
	// For an operation without a lease only group and partition are set, for one
	// without a partition only the group.
	Before(op Op, lease sluice.Lease) error

	// Commit simulates the network between the store and its database for a
	// COMMIT; the store returns its error as it is. It is called after the
	// handler, and may
	//   - call apply once and return its result: no fault;
	//   - return an error without calling apply: the connection was lost
	//     before the COMMIT reached the database;
	//   - call apply and return [driver.ErrUnknown]: the answer was lost;
	//   - return [driver.ErrUnknown] and call apply later, on another
	//     goroutine: the COMMIT was delayed.
	// apply checks the fence and writes, atomically, when it is called, and
	// returns what a database would answer. A second call fails and does nothing.
	Commit(step driver.Step, apply func() error) error
}

// WriteFaults are [Faults] that also cover writes without a transaction.
type WriteFaults interface {
	Faults

	// Write simulates the network for an OpBegin, OpAdvance, OpPark, OpSettle, OpSetAside or
	// OpMarkCopied, as Commit does for a COMMIT: apply may be called at once, later on another
	// goroutine, or never, and the operation returns the error. The lease is as in Before.
	Write(op Op, lease sluice.Lease, apply func() error) error
}

// UnsafeStore switches protections of a [Store] off.
type UnsafeStore struct {
	// NoFence checks neither epoch nor owner, in Commit, Advance and Claim.
	NoFence bool
	// NoPosition does not check that the checkpoint is where the step begins.
	NoPosition bool
	// SplitCommit writes the handler's effects in a transaction of their own,
	// before that of checkpoint and dead letters, which is the one that
	// Faults.Commit gets.
	SplitCommit bool
	// LateCommit makes Claim leave transactions in progress alone, so that they
	// can commit after it: what Claim returned may then change.
	LateCommit bool
	// Backwards makes Advance move the checkpoint back too.
	Backwards bool
	// LostDedup makes Commit store no deduplication state.
	LostDedup bool
	// LostDeadLetters makes Park return nil and store nothing.
	LostDeadLetters bool
}

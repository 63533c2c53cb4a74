package sluice

import "github.com/sluice-go/sluice/driver"

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
	// letter without another attempt. See [driver.Reject].
	ErrRejected = driver.ErrRejected
	// ErrOutage marks an error as that of something which every event needs, such as a
	// store, an API or the network. See [driver.Outage].
	ErrOutage = driver.ErrOutage
	// ErrLeaseExpired is the cause of a handler's cancelled context when the
	// lease could not be renewed in time.
	ErrLeaseExpired = driver.ErrLeaseExpired
	// ErrSharedOwner means that another process works under this consumer's
	// [Config].Owner, so that the two take partitions from each other.
	ErrSharedOwner = driver.ErrSharedOwner
	// ErrDedupFull means that a partition has forgotten causation ids too early, because
	// it remembered as many as it may. Their duplicates take effect.
	ErrDedupFull = driver.ErrDedupFull
	// ErrStopped is the cause of a handler's cancelled context when the consumer
	// is stopped and its time is up, or when the context of Run ends.
	ErrStopped = driver.ErrStopped
)

package sluice

import "context"

// Hooks are called at the steps of a partition's assignment. A hook may take long:
// it delays its own partition at most, never the renewal of a lease. A hook's error
// or panic is observed as [driver.KindHookFailed] and changes nothing.
type Hooks struct {
	// Assigned is called before the first event of the partition is read.
	Assigned func(ctx context.Context, lease Lease, at Checkpoint) error
	// Renewed is called after a renewal. A renewal during the call causes no
	// second call.
	Renewed func(ctx context.Context, lease Lease) error
	// Released is called after the last event was handled and the lease was
	// released or lost. cause says why; it is nil after a graceful stop and for a
	// partition that is handed over to another consumer. It is called only where Assigned
	// was, or would have been if set: not where the checkpoint was never claimed.
	Released func(ctx context.Context, lease Lease, cause error) error
	// Batch is called after a commit with the events that it covered; with Batches, after
	// the handler has returned.
	Batch func(ctx context.Context, b Batch) error
	// Error is called with the error of each observation of the partition that is
	// KindFailed, KindLost, KindFenced, KindUnknown, KindStopped, KindStalled or KindCopyFailed.
	Error func(ctx context.Context, lease Lease, err error) error
}

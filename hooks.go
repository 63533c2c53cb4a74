package sluice

import (
	"context"
	"sync"
)

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

// hookQueue runs hooks one after the other on a goroutine of its own, which lives
// while there are any. While the queue is full, further calls are dropped: a hook
// that hangs misses what happens meanwhile.
type hookQueue struct {
	mu      sync.Mutex
	waiting []func()
	busy    bool
	closed  bool
	running sync.WaitGroup
}

const hookQueueLen = 64

func (q *hookQueue) push(fn func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || len(q.waiting) >= hookQueueLen {
		return
	}
	q.waiting = append(q.waiting, fn)
	if !q.busy {
		q.busy = true
		q.running.Go(q.run)
	}
}

func (q *hookQueue) run() {
	for {
		q.mu.Lock()
		if len(q.waiting) == 0 {
			q.busy = false
			q.mu.Unlock()
			return
		}
		fn := q.waiting[0]
		q.waiting = q.waiting[1:]
		q.mu.Unlock()
		fn()
	}
}

// close waits for the hooks that are queued. Further calls are dropped.
func (q *hookQueue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.running.Wait()
}

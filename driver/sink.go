package driver

import (
	"context"
	"time"
)

// Sink writes the records that sluice.AtLeastOnce makes of events. It completes each on its
// own, in any order. Implementations must be safe for concurrent use by all partitions.
type Sink[R any] interface {
	// Submit takes a record and returns. The sink calls done exactly once with the
	// result, from any goroutine, perhaps before Submit returns. Later calls are
	// ignored and reported; while no call comes, the partition is reported as stalled.
	// A panic of Submit counts as an outage.
	//
	// A sink should queue and not block: a call that blocks delays its partition. The
	// engine measures how fast the sink completes records, and submits about as many as
	// it completes in a second, in equal shares for the partitions that have more. A
	// stop waits for those, and for no others.
	//
	// A record whose ctx has ended must not be sent any more, because the partition may
	// belong to another owner.
	//
	// The sink must not retry by itself: the engine counts and paces every attempt.
	Submit(ctx context.Context, record R, done func(WriteResult))
}

// WriteResult says what happened to a record.
//
// Err says where the fault is:
//   - nil: the record is written;
//   - [ErrRejected] (see [Reject]): the event can never be written. It becomes a dead
//     letter at once;
//   - a [*RetryError] (see [RetryAfter]): the record is retried after a wait, as often
//     as needed;
//   - [ErrOutage] (see [Outage]): the store or the way to it is down. The partition
//     waits, with back-off, and the attempt does not count against the event;
//   - any other error is the event's own failure: see sluice.Config.Attempts.
type WriteResult struct {
	Err  error
	Cost float64 // what the store charged for the attempt, in its own unit (RU for Cosmos DB); 0 if unknown
	// Waited is how long the sink held the attempt back for a limit of its own
	// (RU for Cosmos DB). If records waited together, only one of them reports it.
	Waited time.Duration
}

package sluice

import (
	"context"
	"errors"

	"github.com/sluice-go/sluice/internal/engine/replay"
)

// Replayer is what [Replay] delivers to: memory that can be built again from the log. Its
// functions are called one at a time for each partition.
type Replayer struct {
	// Apply takes a batch into memory, in the log's order. Each event comes once between
	// an assignment and Released. After an error or a panic it is unknown how much of the
	// batch is in memory: the partition is released and read again from the start.
	Apply func(ctx context.Context, b Batch) error
	// CaughtUp, if set, is called once after each assignment, when all events have been
	// applied that the partition held when the assignment began. Later events come as they
	// are sent. An error counts as one of Apply.
	CaughtUp func(ctx context.Context, lease Lease) error
	// Released, if set, is called to discard what is in memory of the partition. cause says
	// why; it is nil after a graceful stop.
	Released func(lease Lease, cause error)
}

// Replay delivers into memory, without checkpoints and dead letters. On every assignment a
// partition is read from [Config.Start] on, for example [Ago] 24 hours, and events follow as
// they arrive. It needs the log and leases. A partition must stay with one process while
// that runs, so Replay does not work with [Balanced] partitions. A connection that breaks
// repeats no event.
func Replay(r Replayer) Delivery {
	var err error
	if r.Apply == nil {
		err = errors.New("replay: Apply is missing")
	}
	return delivery{replay.New(replay.Replayer(r)), err}
}

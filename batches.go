package sluice

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine/batch"
)

// BatchesConfig holds what has a default in [Batches]. The zero value is ready to use.
type BatchesConfig struct {
	// CheckpointEvery is the time between two checkpoints of a partition. A crash repeats what was
	// done since the last one, a stop repeats nothing. Default: 0, a checkpoint after each batch.
	CheckpointEvery time.Duration
}

// Batches calls handler with the events of each partition in the log's order, one batch at a time,
// and moves the checkpoint when it has returned nil. It is for effects that need no transaction, or
// cannot join one: a batch that is uploaded as a file, loaded into a warehouse in bulk, or sent to
// a web service. store keeps checkpoints and dead letters. A nil cfg takes every default.
//
// Each event is handled at least once, or is a dead letter, before the checkpoint passes it. An
// event is handled only when all events before it are done or are dead letters. Events are
// repeated, from the checkpoint on and in other batches, when the process ends or the lease is lost.
// So an effect should not depend on where a batch begins and ends, and repeating it must do no
// harm. [Batch] identifies each event for that: by Group, Incarnation, Partition and the event's
// sequence number.
//
// The handler's error says whose fault it is, as that of a [Handler] does. An [*driver.EventError], or
// several that are joined, names the events to blame; the engine finds others by splitting the
// batch. Nothing is rolled back: the events of a batch that failed are handled again. A time limit
// of the handler's own ([context.DeadlineExceeded]) that names no event makes the next batches
// smaller.
//
// An event that has used up [Config.Attempts] may fail for a reason that every event has, such as a
// service that is down. So before it becomes a dead letter, the handler is called with the event
// that succeeded last, once more. If that fails too, the partition is held until one of the two
// succeeds. If nothing has succeeded since the partition was acquired, the event is tried ten more
// times. To mark an error as an [driver.Outage] is better: it takes effect at once, and nothing is repeated.
//
// [Hooks].Batch is called when the handler has returned. Stamps of earlier stages are not used:
// see [Transactional].
func Batches(store driver.AtLeastOnceStore, handler func(context.Context, Batch) error, cfg *BatchesConfig) Delivery {
	var every time.Duration
	if cfg != nil {
		every = cfg.CheckpointEvery
	}
	var err error
	switch {
	case store == nil || handler == nil:
		err = errors.New("batches: store or handler is nil")
	case every < 0:
		err = fmt.Errorf("batches: checkpoint every %v: must not be negative", every)
	}
	return delivery{batch.Batches(store, handler, every), err}
}

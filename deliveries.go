package sluice

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine/batch"
	"github.com/sluice-go/sluice/internal/engine/partition"
	"github.com/sluice-go/sluice/internal/engine/replay"
)

// Delivery is how events take effect. Its constructor's name is the guarantee:
// [Transactional], [Batches], [AtLeastOnce] or [Replay].
type Delivery interface {
	// engine returns the delivery as the engine runs it, or what is wrong with its configuration.
	engine() (partition.Delivery, error)
}

// delivery implements [Delivery].
type delivery struct {
	partition.Delivery
	err error
}

func (d delivery) engine() (partition.Delivery, error) { return d.Delivery, d.err }

// Transactional delivers each event's effect exactly once: the handler's
// writes, the checkpoint and the dead letters commit in one transaction of
// store, fenced by the lease's epoch and owner and by the position they start
// from.
//
// Where the events are messages of an [AtLeastOnce] stage that carry a [stamp.Stamp],
// and [Config].StampsFrom names that stage,
// the exactly-once guarantee starts at that stage's events: a message that was
// sent more than once is handled once. Of several messages that share a stamp,
// because an event's properties were copied to each, only the first is handled: see
// [stamp.Stamp].
func Transactional[Tx any](store driver.TxStore[Tx], handler Handler[Tx]) Delivery {
	err := firstNil("transactional", part{"store", isNil(store), ""}, part{"handler", handler == nil, passFunction})
	return delivery{batch.Transactional(store, handler), err}
}

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
// repeated, from the checkpoint on and in other batches, when the process ends or the lease is
// lost. So an effect should not depend on where a batch begins and ends, and repeating it must do
// no harm. [Batch] identifies each event for that: by Group, Incarnation, Partition and the event's
// sequence number.
//
// The handler's error says whose fault it is, as that of a [Handler] does. An [*driver.EventError],
// or several that are joined, names the events to blame; the engine finds others by splitting the
// batch. Nothing is rolled back: the events of a batch that failed are handled again. A time limit
// of the handler's own ([context.DeadlineExceeded]) that names no event makes the next batches
// smaller.
//
// An event that has used up [Config.Attempts] may fail for a reason that every event has, such as a
// service that is down. So before it becomes a dead letter, the handler is called with the event
// that succeeded last, once more. If that fails too, the partition is held until one of the two
// succeeds. If nothing has succeeded since the partition was acquired, the event is tried ten more
// times. To mark an error as an [driver.Outage] is better: it takes effect at once, and nothing is
// repeated.
//
// [Hooks].Batch is called when the handler has returned. Stamps of earlier stages are not used:
// see [Transactional].
func Batches(store driver.AtLeastOnceStore, handler func(context.Context, Batch) error, cfg *BatchesConfig) Delivery {
	var every time.Duration
	if cfg != nil {
		every = cfg.CheckpointEvery
	}
	err := firstNil("batches", part{"store", isNil(store), ""}, part{"handler", handler == nil, passFunction})
	if err == nil && every < 0 {
		err = fmt.Errorf("batches: checkpoint every %v: must not be negative", every)
	}
	return delivery{batch.Batches(store, handler, every), err}
}

// Replayer is what [Replay] delivers to: memory that can be built again from the log. Its
// functions are called one at a time for each partition.
type Replayer struct {
	// Apply takes a batch into memory, in the log's order. Each event comes once between
	// an assignment and Released. There are no dead letters: an event whose Undecodable is set
	// comes too, if the source returns such events. After an error or a panic it is
	// unknown how much of the batch is in memory: the partition is released and read again
	// from the start.
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
// they arrive. With leases a partition is in the memory of one process, and must stay there while
// that runs, so Replay does not work with [Balanced] partitions. Without a lease store (nil in
// [New]) each process has every partition in memory, for example a cache in every replica. It reads
// without an epoch: Event Hubs allows five such readers of a partition and consumer group, and none
// beside a reader with one. A connection that breaks repeats no event.
func Replay(r Replayer) Delivery {
	var err error
	if r.Apply == nil {
		err = errors.New("replay: Apply is missing")
	}
	return delivery{replay.New(replay.Replayer(r)), err}
}

// part is an argument, and whether it is nil.
type part struct {
	name string
	nil  bool
	next string // what to do; empty: the default
}

// passFunction is what to do about a missing function.
const passFunction = "pass a function, to Route one for each kind"

// firstNil returns an error that names the first part that is nil, if one is.
func firstNil(what string, parts ...part) error {
	for _, p := range parts {
		if p.nil {
			return fmt.Errorf("%s: the %s is nil: %s", what, p.name, cmp.Or(p.next, "check the error of what makes it"))
		}
	}
	return nil
}

// isNil reports whether an interface holds nothing, or a nil pointer, which fails at its first use.
func isNil(v any) bool {
	if v == nil {
		return true
	}
	value := reflect.ValueOf(v)
	return value.Kind() == reflect.Pointer && value.IsNil()
}

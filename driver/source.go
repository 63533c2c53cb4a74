package driver

import (
	"context"
	"fmt"
	"time"
)

// Group names one consumer group of one topic. Leases, checkpoints and dead
// letters are kept per group and partition.
type Group struct {
	Namespace string // where the topic lives, e.g. the Event Hubs namespace's host name
	Topic     string // the hub's name
	Name      string // the consumer group's name
}

// String gives namespace/topic/group.
func (g Group) String() string { return fmt.Sprintf("%s/%s/%s", g.Namespace, g.Topic, g.Name) }

// Topic describes what a [Source] reads.
type Topic struct {
	Group
	// Incarnation changes when the topic is deleted and created again; it is
	// the creation time. Sequence numbers of two incarnations have nothing to
	// do with each other.
	Incarnation string
	Partitions  []string
}

// Bounds are the ends of what a partition holds. An empty partition has
// Last.Sequence == First-1.
type Bounds struct {
	First        int64     // sequence number of the oldest event still held
	Last         Position  // the newest event's
	LastEnqueued time.Time // when the newest event was enqueued; zero if there never was one
}

// Lag is how many of the events that a partition holds are behind a position.
// Events that retention has removed do not count.
func (b Bounds) Lag(p Position) int64 { return max(0, b.Last.Sequence-max(p.Sequence, b.First-1)) }

// Source is a partitioned log, read by one consumer group. Implementations are
// safe for concurrent use.
type Source interface {
	// Describe asks the log for the topic. It returns an error that is
	// [ErrRefused] if asking again cannot help (no such hub, not authorised).
	Describe(ctx context.Context) (Topic, error)
	// Bounds asks for the ends of a partition, for lag and for the audit.
	Bounds(ctx context.Context, partition string) (Bounds, error)
	// Seek turns a start into the position before the first event it means.
	// A start beyond the newest event means the end. The epoch is as in Open:
	// a seek may have to read.
	Seek(ctx context.Context, partition string, start Start, epoch int64) (Position, error)
	// Open reads the events behind a position. The epoch is the lease's: a log
	// that knows owner levels evicts readers of a lower one, and refuses this
	// one with a [*StolenError] if a higher one is there; that is advisory, it
	// compares live links only. Open returns a [*RetentionError] if events
	// between the position and the oldest event held are gone, and
	// [ErrPastEnd] if the position lies behind the newest event.
	Open(ctx context.Context, partition string, after Position, epoch int64) (Reader, error)
}

// Reader reads one partition in order. It is used by one goroutine at a time,
// except that Close may be called during a Read, which then returns.
type Reader interface {
	// Read waits for at least one event, then returns what is there, at most
	// max events. The events follow each other without a gap where the log
	// numbers them consecutively: a gap is a [*RetentionError]. After any
	// error but that of its own context the reader is of no more use, and the
	// consumer opens another.
	Read(ctx context.Context, max int) ([]*Event, error)
	Close(ctx context.Context) error
}

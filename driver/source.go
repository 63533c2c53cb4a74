package driver

import (
	"context"
	"fmt"
	"time"
)

// Group names one consumer group of one topic. Leases, checkpoints and dead letters are kept by
// group and partition.
type Group struct {
	Namespace string // where the topic is, for example the host name of an Event Hubs namespace
	Topic     string // name of the topic; in Event Hubs, of the hub
	Name      string // name of the consumer group
}

// String returns namespace/topic/name.
func (g Group) String() string { return fmt.Sprintf("%s/%s/%s", g.Namespace, g.Topic, g.Name) }

// Topic describes what a [Source] reads.
type Topic struct {
	Group
	// Incarnation changes when the topic is deleted and created again: the creation time in Event
	// Hubs, the topic id in Kafka. Sequence numbers of two incarnations are unrelated.
	Incarnation string
	Partitions  []string // their IDs
	// Sparse says that sequence numbers may be missing, and nothing is lost: in Kafka control
	// records, aborted transactions and compacted records take numbers. Then a gap between two
	// events means nothing, see [Reader]. In any other topic the numbers are consecutive, and a gap
	// is a [*RetentionError].
	Sparse bool
	// AnyCase says that the log ignores case in the names of its topics and groups, as Event Hubs
	// does. Then what belongs to the group is stored under the group that [Spelling] returns.
	AnyCase bool
}

// Bounds are the ends of what a partition holds. For an empty partition Last.Sequence is First-1.
//
// In a topic that is Sparse they are ends of the numbers, which need not be events. There Last is
// the highest number that a reader can reach now: what an open transaction holds back is after it.
type Bounds struct {
	First        int64     // sequence number of the oldest event held
	Last         Position  // of the newest event
	LastEnqueued time.Time // when the newest event was enqueued; zero if unknown, or if there never was an event
	Held         *HeldBack // what the log holds after Last, and readers cannot reach; nil: nothing
}

// HeldBack is what a log holds back from its readers, such as an open transaction. The engine
// reports it as a stall if a reader waits there for long.
type HeldBack struct {
	Last  int64  // the highest number that the log has; the lag counts to it
	What  string // what holds the events back: a clause in the perfect tense, to which " for 30s" is added
	Check string // what an operator should do about it
}

// Lag returns how many of the events that the partition holds are after the position. Events that
// retention has removed do not count, those that are held back do. In a topic that is Sparse it
// counts numbers: at least as many as there are events.
func (b Bounds) Lag(p Position) int64 {
	last := b.Last.Sequence
	if b.Held != nil {
		last = max(last, b.Held.Last)
	}
	return max(0, last-max(p.Sequence, b.First-1))
}

// Source is a partitioned log, read by one consumer group. Implementations are safe for concurrent
// use.
type Source interface {
	// Describe asks the log for the topic. The error is an [ErrRefused] if asking again cannot
	// help: there is no such topic, or access is denied.
	Describe(ctx context.Context) (Topic, error)
	// Bounds asks the log for the ends of a partition. They are advice, for the lag and for
	// progress: a log may answer with what it held some time ago, or with nothing for ever. They do
	// not show that a position is past the end, or that events are gone.
	Bounds(ctx context.Context, partition string) (Bounds, error)
	// Seek returns the position before the first event that start selects. A start after the newest
	// event means the end of the partition, in a topic that is Sparse the highest number that a
	// reader can reach. Unlike Bounds, Seek knows the end exactly: [StartLatest] is after every
	// event whose sender had its answer before. A start at a number or an offset before the oldest
	// event is a [*RetentionError], of Seek or of the Open that follows: it is not moved. The epoch
	// is as in Open, because a seek may have to read.
	Seek(ctx context.Context, partition string, start Start, epoch int64) (Position, error)
	// Open opens a reader of the events after a position. The epoch is the lease's, or [NoEpoch]. A
	// log with owner levels disconnects readers of a lower or the same epoch, and refuses this one
	// with a [*StolenError] while a reader of a higher epoch is connected. This protects nothing by
	// itself: it compares connected readers only. The error is an [ErrPastEnd] if the position is
	// after the newest event. If events between the position and the oldest event are gone, it is a
	// [*RetentionError], in a topic that is Sparse also if it is unknown whether there were any. It
	// is a [*TruncatedError] if the position's offset shows that the log lost the event of the
	// position and took its number back; a log that can lose events compares the offset in every
	// Open. A log may notice each of these late: then the reader's first Read returns the error.
	Open(ctx context.Context, partition string, after Position, epoch int64) (Reader, error)
}

// NoEpoch, passed to [Source].Seek or Open for an epoch, asks for a reader without one, which
// disconnects no other reader. Where a log has owner levels, it is refused with a [*StolenError]
// while a reader with an epoch is connected, and disconnected by the next such reader. It is for
// tools that only look: they must not end a consumer's link.
const NoEpoch int64 = -1

// BoundsBudget is implemented by a [Source] whose log limits how often it is asked, as a namespace
// of Event Hubs does for all its clients together. The processes of a consumer group divide the
// budget by the partitions that they hold: the more partitions a topic has, the less often each is
// asked for. Without it, each partition is asked for as often as is useful.
type BoundsBudget interface {
	// BoundsPerSecond returns how often all processes of a group together may call Bounds in a
	// second, without those calls that somebody waits for. Zero means that there is no limit.
	BoundsPerSecond() float64
}

// BudgetOf returns a source's BoundsPerSecond, 0 if it is no [BoundsBudget].
func BudgetOf(source Source) float64 {
	if b, is := source.(BoundsBudget); is {
		return b.BoundsPerSecond()
	}
	return 0
}

// GroupNamer is implemented by a [Source] that knows its topic and group before it has asked the
// log, so that a failure of [Source].Describe can be reported with them.
type GroupNamer interface {
	// Group returns them; the Namespace may be empty.
	Group() Group
}

// GroupOf returns a source's group, the zero Group if it is no [GroupNamer].
func GroupOf(source Source) Group {
	if n, is := source.(GroupNamer); is {
		return n.Group()
	}
	return Group{}
}

// ReadBytes is how many bytes of events, by [Event.Size], one Read of a [Reader] returns at most,
// except where a single event is larger.
const ReadBytes = 1 << 20

// Reader reads one partition in order. One goroutine at a time uses it, except that Close may be
// called during a Read, which then returns.
type Reader interface {
	// Read waits for at least one event after the position and returns the events that are there,
	// at most max, and of several at most about [ReadBytes], so that the consumer's bounds in bytes
	// hold. Events before the position, which a broker may send at the beginning of a link, are not
	// returned. Unless the topic is Sparse they follow each other without a gap: a gap is a
	// [*RetentionError].
	//
	// In a topic that is Sparse numbers without an event are passed. Behind the last event that is
	// there, Read returns a marker for them, an [Event] with Control, so that the checkpoint can
	// pass them too: one for each run of such numbers, at the highest that it has read, which is
	// Last of the [Bounds] once nothing is left to read. A run that grows afterwards has another
	// marker. Before an event a marker is allowed and not needed. Markers ascend with the events
	// and count in max.
	//
	// Every number is accounted for: it is an event's, or Passed of the next event or marker counts
	// it. The engine checks this, and halts the partition if a number is missing. A reader that got
	// nothing for a number, and cannot prove why, asks the log again, and returns a
	// [*RetentionError] with Held if that lasts.
	//
	// A live reader that finds that the log lost events which it has returned fails with any error:
	// the consumer opens the log again at its position, and Open finds out whether these events
	// were done.
	//
	// A reader never returns events of another incarnation of its topic.
	//
	// After an error other than that of ctx the reader is of no further use, and the consumer opens
	// another. After the end of ctx the reader continues where it was.
	Read(ctx context.Context, max int) ([]*Event, error)
	// Close disconnects the reader. It may be called more than once.
	Close(ctx context.Context) error
}

// PausedReader is a [Reader] that may return nothing on purpose. The engine replaces any other
// reader that returns nothing although the log holds further events.
type PausedReader interface {
	Reader
	// Paused reports whether the reader is paused. It is safe for concurrent use.
	Paused() bool
}

package driver

import (
	"fmt"
	"strings"
	"time"
)

// Position is a place in a partition: directly after the sequence number that it names. A
// checkpoint at a position says that the event of this number and all before it are done. In a
// [Topic] that is Sparse there may be no event of this number.
//
// Positions are equal if their sequence numbers are. The offset is what the log wants to know
// beside the number in order to open there: stores keep it, and the engine passes it on unread. In
// Event Hubs it is the event's offset, by which the log seeks. In Kafka, whose offsets are the
// sequence numbers, it is the epoch of the partition's leader that wrote the record, "leader-epoch
// 7": it shows whether the log still has what it had, see [TruncatedError] and [Position.History].
type Position struct {
	Sequence int64  // sequence number before the position
	Offset   string // opaque; empty if unknown
}

// History returns what the offset says of the log's history: the text before " from ", after which
// a driver may add what it needs. In a topic that is Sparse two events of one number, of which both
// histories are known, are different events if these differ: the log lost one of them.
func (p Position) History() string {
	history, _, _ := strings.Cut(p.Offset, " from ")
	return history
}

// Positions that name no event.
var (
	// Unset is the position of a checkpoint for which no start was chosen yet.
	Unset = Position{Sequence: -2}
	// Origin is the position before the first event of a log.
	Origin = Position{Sequence: -1}
)

// String returns the sequence number, or "unset" or "origin".
func (p Position) String() string {
	switch {
	case p.Sequence <= Unset.Sequence:
		return "unset"
	case p.Sequence == Origin.Sequence:
		return "origin"
	}
	return fmt.Sprint(p.Sequence)
}

// Start says where the first read of a partition without a checkpoint begins. The zero value is the
// earliest event held. It is converted into a [Position] once, which is stored, so that a restart
// does not choose again.
type Start struct {
	Kind     StartKind
	Time     time.Time     // with StartTime: the first event enqueued at or after it
	Ago      time.Duration // with StartAgo: the same, by the time that long before the seek
	Sequence int64         // with StartSequence: the event of this number
	Offset   string        // with StartOffset: the event at this offset
}

// StartKind says which field of a [Start] applies.
type StartKind uint8

// The kinds of start. StartEarliest is the oldest event held, StartLatest the end of the partition.
const (
	StartEarliest StartKind = iota
	StartLatest
	StartTime
	StartAgo
	StartSequence
	StartOffset
)

// String returns the form that sluice.ParseStart reads.
func (s Start) String() string {
	switch s.Kind {
	case StartLatest:
		return "latest"
	case StartTime:
		return s.Time.UTC().Format(time.RFC3339Nano)
	case StartAgo:
		return s.Ago.String() + " ago"
	case StartSequence:
		return fmt.Sprintf("sequence %d", s.Sequence)
	case StartOffset:
		return "offset " + s.Offset
	}
	return "earliest"
}

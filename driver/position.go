package driver

import (
	"fmt"
	"time"
)

// Position is a place in a partition: right behind the event it names. A
// checkpoint at a position says that this event and all before it are done.
//
// Positions are equal if their sequence numbers are; the offset is carried for
// logs that seek by offset.
type Position struct {
	Sequence int64  // sequence number of the last event before the position
	Offset   string // the same event's offset; empty if not known
}

// Unset is the position of a checkpoint for which no start was chosen yet, and
// Origin lies before the very first event of a log.
var (
	Unset  = Position{Sequence: -2}
	Origin = Position{Sequence: -1}
)

// String gives the sequence number, or "unset" or "origin".
func (p Position) String() string {
	switch {
	case p.Sequence <= Unset.Sequence:
		return "unset"
	case p.Sequence == Origin.Sequence:
		return "origin"
	}
	return fmt.Sprint(p.Sequence)
}

// Start tells where a partition is first read, when it has no checkpoint. The
// zero value is [Earliest]. It is turned into a [Position] once and stored, so
// that a restart does not choose again.
type Start struct {
	Kind     StartKind
	Time     time.Time     // for StartTime
	Ago      time.Duration // for StartAgo
	Sequence int64         // for StartSequence
	Offset   string        // for StartOffset
}

// StartKind says which field of a [Start] counts.
type StartKind uint8

// The kinds of start.
const (
	StartEarliest StartKind = iota
	StartLatest
	StartTime
	StartAgo
	StartSequence
	StartOffset
)

// String gives the form that [ParseStart] reads.
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

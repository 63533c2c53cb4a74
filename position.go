package sluice

import (
	"fmt"
	"strconv"
	"strings"
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

// Earliest starts with the oldest event that the log still holds.
func Earliest() Start { return Start{Kind: StartEarliest} }

// Latest starts with the next event that arrives.
func Latest() Start { return Start{Kind: StartLatest} }

// At starts with the first event enqueued at t or later.
func At(t time.Time) Start { return Start{Kind: StartTime, Time: t} }

// Ago is [At] d before the moment the start is resolved.
func Ago(d time.Duration) Start { return Start{Kind: StartAgo, Ago: d} }

// FromSequence starts with the event numbered n.
func FromSequence(n int64) Start { return Start{Kind: StartSequence, Sequence: n} }

// FromOffset starts with the event at offset.
func FromOffset(offset string) Start { return Start{Kind: StartOffset, Offset: offset} }

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

// ParseStart reads "earliest", "latest", an RFC 3339 time, "24h ago",
// "sequence 42" or "offset 4096".
func ParseStart(text string) (Start, error) {
	fail := func(why string) (Start, error) {
		return Start{}, fmt.Errorf("start %q: %s: write earliest, latest, an RFC 3339 time, \"24h ago\", \"sequence N\" or \"offset O\"", text, why)
	}
	t := strings.TrimSpace(text)
	switch {
	case t == "" || t == "earliest":
		return Earliest(), nil
	case t == "latest":
		return Latest(), nil
	case strings.HasSuffix(t, " ago"):
		d, err := time.ParseDuration(strings.TrimSpace(strings.TrimSuffix(t, " ago")))
		if err != nil || d <= 0 {
			return fail("not a positive duration")
		}
		return Ago(d), nil
	case strings.HasPrefix(t, "sequence "):
		n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimPrefix(t, "sequence ")), 10, 64)
		if err != nil || n < 0 {
			return fail("not a sequence number")
		}
		return FromSequence(n), nil
	case strings.HasPrefix(t, "offset "):
		o := strings.TrimSpace(strings.TrimPrefix(t, "offset "))
		if o == "" {
			return fail("no offset")
		}
		return FromOffset(o), nil
	}
	at, err := time.Parse(time.RFC3339Nano, t)
	if y := at.UTC().Year(); err != nil || y < 0 || y > 9999 {
		return fail("not understood")
	}
	return At(at), nil
}

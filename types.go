package sluice

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-go/sluice/driver"
)

// What handlers, hooks and operators' programs handle. Drivers for logs and
// stores make these values, so package driver declares them.
type (
	// Event is one record of a partition as the log returned it. A handler must
	// not change it: the engine delivers the events of a failed batch again.
	Event = driver.Event
	// Batch is a run of events of one partition in the log's order, never empty. With
	// [Transactional] all of it takes effect in one transaction, or none of it.
	Batch = driver.Batch
	// Header is one header of an event, in a log that has headers in order.
	Header = driver.Header
	// DateTimeOffset is a time that a client of .NET sent as a property.
	DateTimeOffset = driver.DateTimeOffset
	// TimeSpan is a duration that a client of .NET sent as a property.
	TimeSpan = driver.TimeSpan
	// URI is an address that a client of .NET sent as a property.
	URI = driver.URI
	// Position is a place in a partition, directly after the event that it names.
	Position = driver.Position
	// Start is where a partition without a checkpoint begins. Make one with
	// [Earliest], [Latest], [At], [Ago], [FromSequence], [FromOffset] or
	// [ParseStart].
	Start = driver.Start
	// Group names one consumer group of one topic.
	Group = driver.Group
	// Topic is a topic and its partitions.
	Topic = driver.Topic
	// Lease is the right to read one partition for a consumer group.
	Lease = driver.Lease
	// Checkpoint says how far a consumer group has got in a partition.
	Checkpoint = driver.Checkpoint
	// DeadLetter is an event that could not be handled.
	DeadLetter = driver.DeadLetter
	// DeadLetterFilter selects dead letters.
	DeadLetterFilter = driver.DeadLetterFilter
	// DeadLetterStatus says whether a dead letter waits, is to be redriven, or
	// was discarded.
	DeadLetterStatus = driver.DeadLetterStatus
)

// The states of a dead letter.
const (
	StatusDead      = driver.StatusDead
	StatusRetry     = driver.StatusRetry
	StatusDiscarded = driver.StatusDiscarded
)

// Earliest starts with the oldest event that the log still holds.
func Earliest() Start { return Start{Kind: driver.StartEarliest} }

// Latest starts with the next event that arrives.
func Latest() Start { return Start{Kind: driver.StartLatest} }

// At starts with the first event enqueued at t or later.
func At(t time.Time) Start { return Start{Kind: driver.StartTime, Time: t} }

// Ago is [At] d before the moment the start is resolved.
func Ago(d time.Duration) Start { return Start{Kind: driver.StartAgo, Ago: d} }

// FromSequence starts with the event numbered n.
func FromSequence(n int64) Start { return Start{Kind: driver.StartSequence, Sequence: n} }

// FromOffset starts with the event at offset.
func FromOffset(offset string) Start { return Start{Kind: driver.StartOffset, Offset: offset} }

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

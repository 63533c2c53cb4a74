package audit

import (
	"fmt"
	"time"

	"github.com/sluice-go/sluice"
)

// FaultKind is what is wrong with an event.
type FaultKind string

// The kinds of fault.
const (
	// Lost: the checkpoint has passed the event, and it has neither effect
	// nor dead letter.
	Lost FaultKind = "missing"
	// Duplicated: it has more than one effect, or an effect and a dead letter; or
	// it repeats a message that was sent before, and has an effect all the same.
	Duplicated FaultKind = "doubled"
	// Expired: the log gave it up before the checkpoint came to it.
	Expired FaultKind = "expired"
	// Stray: an effect of an event that the log has never had.
	Stray FaultKind = "stray"
)

// FaultKinds are all kinds of fault.
var FaultKinds = []FaultKind{Lost, Duplicated, Expired, Stray}

// Fault is a run of consecutive events with the same thing wrong.
type Fault struct {
	Kind        FaultKind
	Partition   string
	First, Last int64 // sequence numbers, both included
	// From and Until are when the first and the last were enqueued; zero if the
	// log doesn't hold them any more.
	From, Until time.Time
}

// Events is how many events it is about.
func (f Fault) Events() int64 { return f.Last - f.First + 1 }

// String names the events.
func (f Fault) String() string {
	if f.First == f.Last {
		return fmt.Sprintf("partition %s: event %d is %s", f.Partition, f.First, f.Kind)
	}
	return fmt.Sprintf("partition %s: events %d to %d are %s", f.Partition, f.First, f.Last, f.Kind)
}

// Count is an account of events.
type Count struct {
	Held        int64 // that the log holds
	Written     int64 // of those, with an effect
	DeadLetters int64 // of those, with a dead letter alone
	Waiting     int64 // of those, before the checkpoint and without either
	Skipped     int64 // of those, before the place where the consumer began
	// Deduplicated are messages that a stage before sent more than once: a consumer
	// passes over all but the first. Unclear are those without an effect that
	// may be such, of one that the log doesn't hold any more.
	Deduplicated, Unclear int64
	Ahead                 int64 // with an effect, though the checkpoint has not passed them: these will be done again
	PastRetention         int64 // effects and dead letters of events that the log doesn't hold any more
	Faults                map[FaultKind]int64
}

func (c *Count) add(o *Count) {
	c.Held += o.Held
	c.Written += o.Written
	c.DeadLetters += o.DeadLetters
	c.Waiting += o.Waiting
	c.Skipped += o.Skipped
	c.Deduplicated += o.Deduplicated
	c.Unclear += o.Unclear
	c.Ahead += o.Ahead
	c.PastRetention += o.PastRetention
	for kind, n := range o.Faults {
		c.addFaults(kind, n)
	}
}

func (c *Count) addFaults(kind FaultKind, n int64) {
	if c.Faults == nil {
		c.Faults = map[FaultKind]int64{}
	}
	c.Faults[kind] += n
}

// Bin is an account of the events enqueued in a stretch of time.
type Bin struct {
	Start time.Time
	Count
}

// Partition is the account of a partition.
type Partition struct {
	ID          string
	First, Last int64 // that the log holds; Last is First-1 if it is empty
	// Checkpoint is the sequence number up to which all is done;
	// [sluice.Unset]'s if there is no checkpoint.
	Checkpoint int64
	Count
	Bins []Bin // by time
}

// Report is the account of a hub.
type Report struct {
	Topic      sluice.Topic
	Began      time.Time
	Took       time.Duration
	Partitions []Partition // in the topic's order
	Total      Count
	// Faults are the first ones of each partition, by partition and sequence
	// number; Unnamed is how many events with faults are in none of them.
	Faults         []Fault
	UnlistedEvents int64
}

// Exact tells that nothing is lost and nothing doubled.
func (r *Report) Exact() bool { return r.faultyEvents() == 0 && r.Total.Unclear == 0 }

// Undecided tells that nothing is known to be lost or doubled, but that of some
// events nobody can know.
func (r *Report) Undecided() bool { return r.faultyEvents() == 0 && r.Total.Unclear > 0 }

// faultyEvents is how many events have one.
func (r *Report) faultyEvents() (n int64) {
	for _, of := range r.Total.Faults {
		n += of
	}
	return n
}

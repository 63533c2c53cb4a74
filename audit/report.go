package audit

import (
	"fmt"
	"slices"
	"time"

	"github.com/sluice-go/sluice/driver"
)

// FaultKind is what is wrong with an event. Its value is the kind's name in
// JSON reports, which differs from [FaultKind.String].
type FaultKind string

const (
	// Lost: the checkpoint has passed the event, and it has neither an effect nor
	// a dead letter.
	Lost FaultKind = "missing"
	// Duplicated: the event has more than one effect, or an effect and a dead
	// letter, or it is a copy of an earlier message and has an effect.
	Duplicated FaultKind = "doubled"
	// Expired: retention removed the event before the checkpoint reached it.
	Expired FaultKind = "expired"
	// Stray: there is an effect of an event that the log has never had.
	Stray FaultKind = "stray"
)

// FaultKinds are all kinds of fault.
var FaultKinds = []FaultKind{Lost, Duplicated, Expired, Stray}

// String returns the kind as reports for people name it.
func (k FaultKind) String() string {
	switch k {
	case Lost:
		return "lost"
	case Duplicated:
		return "duplicated"
	}
	return string(k)
}

// Fault is a run of consecutive events with the same kind of fault.
type Fault struct {
	Kind        FaultKind
	Partition   string
	First, Last int64 // sequence numbers, both included
	// From and Until are the enqueued times of the first and the last event. They
	// are zero if the log no longer has them.
	From, Until time.Time
}

// Events returns the number of events in the run.
func (f Fault) Events() int64 { return f.Last - f.First + 1 }

// String returns the fault as a sentence.
func (f Fault) String() string {
	if f.First == f.Last {
		return fmt.Sprintf("partition %s: event %d is %s", f.Partition, f.First, f.Kind)
	}
	return fmt.Sprintf("partition %s: events %d to %d are %s", f.Partition, f.First, f.Last, f.Kind)
}

// Count counts events by their result.
type Count struct {
	Held        int64 // events in the log
	Written     int64 // of those, with an effect
	DeadLetters int64 // of those, with a dead letter only
	Waiting     int64 // of those, after the checkpoint and with neither
	Skipped     int64 // of those, before the recorded beginning: not checked
	Earlier     int64 // effects and dead letters of events before the recorded beginning
	// Removed are events from the beginning up to the checkpoint that the log no longer has and
	// that were not checked. In a sparse log some of these numbers were no events.
	Removed int64
	// Deduplicated are copies of messages that an earlier stage sent more than
	// once, without an effect: a consumer drops them. Unclear are events without
	// an effect that may be copies of a message that the log no longer has.
	Deduplicated, Unclear int64
	// UnclearWhy counts the Unclear by the reason: that, and what a [Finder] cannot know.
	UnclearWhy map[string]int64
	Unselected int64 // of those held, that the consumer does not handle ([Config].Filter)
	// Unmatched are those of Deduplicated of which the log holds no earlier message with
	// the same id: only a watermark says that they are copies. A forged watermark shows
	// here, and so do messages of a dead letter that the stage has sent late.
	Unmatched int64
	// Unmatchable are those of Deduplicated of which that is not known: there are too many ids to
	// remember.
	Unmatchable   int64
	Ahead         int64 // with an effect, although after the checkpoint: these will be processed again; of a [Finder], or were written since
	PastRetention int64 // effects and dead letters of events that the log no longer has
	Faults        map[FaultKind]int64
}

func (c *Count) add(o *Count) {
	c.Held += o.Held
	c.Written += o.Written
	c.DeadLetters += o.DeadLetters
	c.Waiting += o.Waiting
	c.Skipped += o.Skipped
	c.Earlier += o.Earlier
	c.Removed += o.Removed
	c.Deduplicated += o.Deduplicated
	for why, n := range o.UnclearWhy {
		c.addUnclear(n, why)
	}
	c.Unselected += o.Unselected
	c.Unmatched += o.Unmatched
	c.Unmatchable += o.Unmatchable
	c.Ahead += o.Ahead
	c.PastRetention += o.PastRetention
	for kind, n := range o.Faults {
		c.addFaults(kind, n)
	}
}

// Why it is not known whether an event is lost that has no effect.
const (
	mayRepeatGone    = "it may repeat a message that the log no longer has"
	mayRepeatEarlier = "it may repeat a message from before the recorded beginning"
	mayBeLeftOut     = "the log no longer has it, and the pipeline may have left it out"
	removedWithout   = "the log no longer has it, and it left nothing behind"
	noBeginning      = "it is not recorded whether the pipeline had to process it"
	mayRepeatForgot  = "it may repeat a message that the audit no longer remembers"
)

// Doubt is why nothing can be decided about a whole partition. Its value is a sentence without a
// subject, which is the partition.
type Doubt string

const (
	NoCheckpoint   Doubt = "has no checkpoint: no consumer has begun it, or its checkpoint was removed"
	NoBeginning    Doubt = "does not record where it began: an earlier version stored its checkpoint, or it was removed meanwhile"
	BeganLater     Doubt = "records a beginning after its checkpoint"
	EarlierEffects Doubt = "records a start after events that have effects: rows or record are of another consumer"
	TooManyIDs     Doubt = "has messages of more stages, or more of them, than the audit remembers: repetitions may be missed"
)

func (c *Count) addUnclear(n int64, why string) {
	if n == 0 {
		return
	}
	if c.UnclearWhy == nil {
		c.UnclearWhy = map[string]int64{}
	}
	c.Unclear += n
	c.UnclearWhy[why] += n
}

func (c *Count) addFaults(kind FaultKind, n int64) {
	if c.Faults == nil {
		c.Faults = map[FaultKind]int64{}
	}
	c.Faults[kind] += n
}

// Bin counts the events that were enqueued within [Config.Bin] from Start on.
type Bin struct {
	Start time.Time
	Count
}

// Partition is the result for one partition.
type Partition struct {
	ID          string
	First, Last int64 // sequence numbers in the log; Last is First-1 if it is empty
	// Checkpoint is the sequence number up to which every event is processed;
	// that of [driver.Unset] if there is no checkpoint.
	Checkpoint int64
	// Began is where the events begin that the checkpoint accounts for, as it is recorded.
	Began driver.Beginning
	// Doubt is why it cannot be decided whether events are lost; empty if it can.
	Doubt Doubt
	Count
	Bins []Bin // by time
}

// Report is the result of an audit.
type Report struct {
	Topic      driver.Topic
	Began      time.Time
	Took       time.Duration
	Partitions []Partition // in the topic's order
	Total      Count
	// Faults are the first [Config.MaxFaults] of each partition, sorted by
	// partition and sequence number. UnlistedEvents is the number of events with
	// faults that are in none of them.
	Faults         []Fault
	UnlistedEvents int64
	// Effect and MayRepeat are those of [Config]; Notes are what the audit's user adds to
	// the headline.
	Effect    string
	MayRepeat bool
	Notes     []string
}

// Exact reports that no event is lost or duplicated. Where the target may have
// repetitions, duplicated events are exact too.
func (r *Report) Exact() bool { return r.faultyEvents() == 0 && !r.unclear() }

// Undecided reports that no event is known to be lost or duplicated, but that
// some events are unclear or a partition is in doubt.
func (r *Report) Undecided() bool { return r.faultyEvents() == 0 && r.unclear() }

func (r *Report) unclear() bool {
	return r.Total.Unclear > 0 || slices.ContainsFunc(r.Partitions, func(p Partition) bool { return p.Doubt != "" })
}

// faultyEvents returns the number of events with a fault.
func (r *Report) faultyEvents() (n int64) {
	for kind, of := range r.Total.Faults {
		if kind != Duplicated || !r.MayRepeat {
			n += of
		}
	}
	return n
}

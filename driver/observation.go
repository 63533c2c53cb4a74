package driver

import (
	"slices"
	"time"
)

// Observer receives an observation of everything that the engine does. The engine
// calls it on its own goroutines, from several at once: it must be quick, must not
// block, and must be safe for concurrent use. A panic in it is recovered and dropped.
type Observer interface {
	Observe(Observation)
}

// ObserverFunc makes a function an [Observer].
type ObserverFunc func(Observation)

// Observe calls f.
func (f ObserverFunc) Observe(o Observation) { f(o) }

// Observers joins several into one, called in order. Those that are nil are left out.
func Observers(list ...Observer) Observer {
	list = slices.DeleteFunc(slices.Clone(list), func(l Observer) bool { return l == nil })
	return ObserverFunc(func(o Observation) {
		for _, l := range list {
			l.Observe(o)
		}
	})
}

// Observation is something that the engine did or that happened to it. Its kind says which fields
// besides Kind, Time, Owner and Group are set.
type Observation struct {
	Kind       ObservationKind
	Time       time.Time // wall clock
	Owner      string
	Group      Group // the topic and the consumer group; its Namespace may be unknown at first
	Partition  string
	Epoch      int64
	From, To   Position
	Events     int           // number of events
	Duplicates int           // of those, how many were skipped as duplicates of earlier ones
	Filtered   int           // of those, how many sluice.Config.Filter left out; see KindWritten
	Bytes      int           // size of their bodies
	Enqueued   time.Time     // when the event To was enqueued
	Attempt    int           // from 1
	Duration   time.Duration // of the operation
	Lag        int64         // events in the log that are not done; -1 until the log was asked for its end
	InFlight   int           // events read and not done
	Cost       float64       // what the store charged, in its own unit
	Waited     time.Duration // time spent waiting for a limit
	RetriedIn  time.Duration // when the event is tried again; 0: it waits for an operator
	Passed     Passed        // numbers without an event, by the reason
	Event      *Event        // that it is about; it must not be changed, and may lack its body
	Err        error
}

// ObservationKind is what an [Observation] is about.
type ObservationKind uint8

// The kinds of observation. All carry Partition and Epoch, with the exception of
// KindListed and of a KindFailed that is not about one partition. Err is set where the
// name says that something went wrong.
const (
	// KindAcquired: a lease was acquired.
	KindAcquired ObservationKind = iota + 1
	// KindRenewed: a lease was renewed; Duration.
	KindRenewed
	// KindLost: a lease was lost, by expiry or to another owner; Err.
	KindLost
	// KindReleased: a lease was released.
	KindReleased
	// KindClaimed: the checkpoint was claimed; To is its position, Attempt its Claims.
	KindClaimed
	// KindOpened: reading began after To.
	KindOpened
	// KindFetched: Events were read from the log, up to To; Bytes, Enqueued, and Lag,
	// which includes them: they are not done.
	KindFetched
	// KindCommitted: the checkpoint moved From, To; Events (dead letters included),
	// Duration (of handler and commit, or of the request), Lag. For Replay, which has
	// no checkpoint: the events are in memory.
	KindCommitted
	// KindFenced: a transaction was refused and nothing was written; From, To, Err.
	KindFenced
	// KindUnknown: the reply to a commit was lost; From, To, Err.
	KindUnknown
	// KindRetried: an attempt at the event To failed and another follows; Event, Attempt, Err.
	KindRetried
	// KindParked: the event To was stored as a dead letter; Event, Attempt, RetriedIn, Err is its
	// error.
	KindParked
	// KindRedriven: a dead letter (To) was applied and removed; Event, Duration.
	KindRedriven
	// KindRedriveFailed: a dead letter's redrive failed; it stays one; Event, Attempt, RetriedIn,
	// Err.
	KindRedriveFailed
	// KindHalted: the partition is halted until an operator acts; Err says how. To is the
	// position. Its end is KindResumed: that the log is opened again ends nothing.
	KindHalted
	// KindFailed: a dependency (log, database, lease store, or one that a handler names
	// by Outage) returned an error and is retried; Err. If Events is not 0, so many
	// events up to To wait for it. Partition and Epoch are empty if it was not about one
	// partition.
	KindFailed
	// KindHookFailed: a hook returned an error or panicked; Err.
	KindHookFailed
	// KindWritten: the sink of AtLeastOnce has written Events records since the last report, about
	// once a second, and Filtered events needed none; all before To is done; Cost (of failed
	// attempts too), InFlight, Lag; Waited, for the rate and for limits of the sink's own, such as
	// RU. If Waited is about a second in every second, these limits hold the partition back, not
	// the store.
	KindWritten
	// KindListed: the leases were listed, to acquire or to divide partitions: the lease
	// store answers. Partition and Epoch are empty.
	KindListed
	// KindStalled: a call that holds the partition up has lasted longer than
	// sluice.Config.StallAfter, or a stop waits for it, or no event was done for that time although
	// some wait; Duration so far, Err says what it is and what to look for. Events and To, the
	// first of them, if it is about events. It is reported again each time when it has lasted
	// twice as long.
	KindStalled
	// KindResumed: the stall or the halt has ended: something was done, or nothing waits.
	// Another attempt ends neither. Duration since it began.
	KindResumed
	// KindCopied: Events dead letters were copied, and are marked so
	// (sluice.Config.CopyDeadLetters); Duration.
	KindCopied
	// KindCopyFailed: Events dead letters could not be copied, or the store could not be asked for
	// them (Events is 0) or mark them; they are tried again; Err.
	KindCopyFailed
	// KindPassed: numbers without an event were read, up to To; Passed says how many, and why.
	KindPassed
)

var kindNames = [...]string{
	KindAcquired: "acquired", KindRenewed: "renewed", KindLost: "lost", KindReleased: "released",
	KindClaimed: "claimed", KindOpened: "opened", KindFetched: "fetched", KindCommitted: "committed",
	KindFenced: "fenced", KindUnknown: "unknown", KindRetried: "retried", KindParked: "parked",
	KindRedriven: "redriven", KindRedriveFailed: "redrive failed", KindHalted: "halted",
	KindFailed: "failed", KindHookFailed: "hook failed", KindWritten: "written", KindListed: "listed",
	KindStalled: "stalled", KindResumed: "resumed", KindCopied: "copied", KindCopyFailed: "copy failed",
	KindPassed: "passed",
}

// String returns the kind's name.
func (k ObservationKind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return ""
}

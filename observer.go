package sluice

import (
	"time"
)

// Observer is told everything the engine does. It is called on the engine's
// own goroutines, from several at once: it must be quick, must not block, and
// must be safe for concurrent use. A panic in it is caught and dropped.
type Observer interface {
	Observe(Observation)
}

// ObserverFunc makes a function an [Observer].
type ObserverFunc func(Observation)

// Observe calls f.
func (f ObserverFunc) Observe(o Observation) { f(o) }

// Observers joins several into one, called in order.
func Observers(list ...Observer) Observer {
	return ObserverFunc(func(o Observation) {
		for _, l := range list {
			l.Observe(o)
		}
	})
}

// Observation is one thing that happened. Which fields besides Kind, Time and
// Owner are set is said at the kinds.
type Observation struct {
	Kind       ObservationKind
	Time       time.Time // wall clock
	Owner      string
	Partition  string
	Epoch      int64
	From, To   Position
	Events     int           // how many events
	Duplicates int           // of those, how many were passed over, for they repeat earlier ones
	Bytes      int           // their bodies' size
	Enqueued   time.Time     // when the log took the event To
	Attempt    int           // from 1
	Duration   time.Duration // of the operation
	Lag        int64         // events in the log that are not done; -1 until the log was asked for its end
	InFlight   int           // events taken and not done
	Cost       float64       // what the store charged, in its own unit
	Waited     time.Duration // for a limiter
	Err        error
}

// ObservationKind is what an [Observation] is about.
type ObservationKind uint8

// The kinds of observation. All but Failed and Listed may be counted on to carry
// Partition and Epoch; Err is set where the name says that something went
// wrong.
const (
	// KindAcquired: a lease was taken.
	KindAcquired ObservationKind = iota + 1
	// KindRenewed: a lease was renewed; Duration.
	KindRenewed
	// KindLost: a lease was lost, by expiry or to another owner; Err.
	KindLost
	// KindReleased: a lease was given back.
	KindReleased
	// KindClaimed: the checkpoint was claimed; To is its position, Attempt its Claims.
	KindClaimed
	// KindOpened: reading began behind To.
	KindOpened
	// KindFetched: Events came from the log, up to To; Bytes, Enqueued, and Lag,
	// which they are part of: they are not done.
	KindFetched
	// KindCommitted: the checkpoint moved From, To; Events (dead letters
	// included), Duration (of handler and commit, or of the request), Lag. Of
	// Replay, which has no checkpoint: the events are in memory.
	KindCommitted
	// KindFenced: a transaction was refused; nothing was written; From, To, Err.
	KindFenced
	// KindUnknown: a commit's answer was lost; From, To, Err.
	KindUnknown
	// KindRetried: an attempt at the event To failed and another follows; Attempt, Err.
	KindRetried
	// KindParked: the event To was stored as a dead letter; Attempt, Err is its error.
	KindParked
	// KindRedriven: a dead letter (To) was applied and removed; Duration.
	KindRedriven
	// KindRedriveFailed: it failed again and waits as a dead letter; Attempt, Err.
	KindRedriveFailed
	// KindStopped: the partition can't go on until a person acts; Err says how.
	KindStopped
	// KindFailed: something outside (log, database, lease store) failed and is
	// tried again; Err. Partition and Epoch are empty if it was not about one.
	KindFailed
	// KindHookFailed: a hook returned an error or panicked; Err.
	KindHookFailed
	// KindWritten: AtLeastOnce's sink wrote Events records since it was last
	// told, about once a second; all before To is done; Cost (of failed
	// attempts too), InFlight, Lag; Waited, for the rate and for limits of the
	// sink's own, such as RU: a second in every second says that they, not the
	// store, are what holds the partition up.
	KindWritten
	// KindListed: the leases were listed, to take partitions or to share them
	// out: the lease store answers. Partition and Epoch are empty.
	KindListed
)

var kindNames = [...]string{
	KindAcquired: "acquired", KindRenewed: "renewed", KindLost: "lost", KindReleased: "released",
	KindClaimed: "claimed", KindOpened: "opened", KindFetched: "fetched", KindCommitted: "committed",
	KindFenced: "fenced", KindUnknown: "unknown", KindRetried: "retried", KindParked: "parked",
	KindRedriven: "redriven", KindRedriveFailed: "redrive failed", KindStopped: "stopped",
	KindFailed: "failed", KindHookFailed: "hook failed", KindWritten: "written", KindListed: "listed",
}

// String gives the kind's name.
func (k ObservationKind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return ""
}

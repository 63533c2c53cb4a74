package partition

import (
	"sync/atomic"

	"github.com/sluice-go/sluice/driver"
)

// activity is something that can hold a partition up, in words.
type activity struct {
	what  string // what has not happened yet
	check string // what an operator should look for
}

// The activities. A request to a log or a store has one of its own: see
// assignment.request.
var (
	ActivityHandler   = &activity{"handler has not returned", "look for a lock or a call without a time limit"}
	ActivityCommit    = &activity{"commit has not returned", "look for locks in the database, and for a connection that gets no answer"}
	ActivityFilter    = &activity{"filter has not returned", "look for a lock or a call without a time limit"}
	ActivityRecords   = &activity{"records function has not returned", "look for a lock or a call without a time limit"}
	ActivityReplayer  = &activity{"replayer has not returned", "look for a lock or a call without a time limit"}
	activityMemory    = &activity{"a large event has waited for memory", "other partitions' events have it: look at those that stall, or give the process more memory (Config.Memory, memory_limit)"}
	ActivityRate      = &activity{"rate has admitted no record", "check the configured rate against the number of partitions"}
	ActivitySink      = &activity{"sink has completed no record", "check the sink's store; a sink must call done for each record"}
	ActivitySuspect   = &activity{"an event that may have ended the process has waited", "another partition tries such an event: look at the one whose handler has not returned"}
	ActivityHold      = &activity{"no event succeeds", "the first ones are tried one at a time: look at what all events need: a table, a right, a service"}
	ActivityStore     = &activity{"request to store checkpoint or dead letters has not returned", "the driver ignores the time limit of its context"}
	ActivityUnstored  = &activity{"checkpoint has not been stored", "the failures say what is wrong with the store; records are written meanwhile"}
	activityAssigned  = &activity{"hook Assigned has not returned", "look for a lock or a call without a time limit"}
	ActivityBatch     = &activity{"hook Batch has not returned", "look for a lock or a call without a time limit"}
	activityReleased  = &activity{"hook Released has not returned", "look for a lock or a call without a time limit"}
	activityHookQueue = &activity{"hook Renewed or Error has not returned", "look for a lock or a call without a time limit; later calls wait and are dropped"}
	activityCopy      = &activity{"CopyDeadLetters has not returned", "look for a lock or a call without a time limit; dead letters wait for it, the partition itself continues"}
	activityRead      = &activity{"reader has not returned", ""}                     // which is normal while no events come: see silenceWatch
	activityHeld      = &activity{"the log has held back events", "look at the log"} // see driver.HeldBack
	activityReader    = &activity{"reader of the log has not ended", "the driver ignores the end of its context"}
	activityReread    = &activity{"event of a dead letter has not been read", "the driver ignores the time limit of its context"}
)

// track is one line of activity of an assignment: mostly what one goroutine is doing.
// One goroutine changes it, any may read it. Changing it takes no lock and no memory.
type track struct {
	changes atomic.Uint64 // increases when an activity begins, moves on or ends; odd meanwhile
	current atomic.Pointer[activity]
	first   atomic.Int64 // sequence number of the first event that it is about
	events  atomic.Int64 // how many events it is about; 0: none in particular
	poll    atomic.Pointer[func() (changes uint64, busy bool)]
}

// Span is an activity in progress. It ends by a call of done.
type Span struct {
	track         *track
	outer         *activity
	first, events int64
}

// Doing begins an activity about a number of events from the first one on. An
// activity may begin within another one, which continues when this one is done.
func (t *track) Doing(what *activity, first int64, events int) Span {
	s := Span{t, t.current.Load(), t.first.Load(), t.events.Load()}
	t.set(what, first, int64(events))
	return s
}

// Done ends the activity.
func (s Span) Done() { s.track.set(s.outer, s.first, s.events) }

func (t *track) set(what *activity, first, events int64) {
	t.changes.Add(1) // before and after: nobody reads two activities as one
	t.current.Store(what)
	t.first.Store(first)
	t.events.Store(events)
	t.changes.Add(1)
}

// MoveTo says that the activity continues with the event of a sequence number.
func (t *track) MoveTo(sequence int64) {
	t.changes.Add(1)
	t.first.Store(sequence)
	t.changes.Add(1)
}

// Polled has the watcher ask fn instead: whether the activity is in progress, and a
// number that changes with any progress. It costs nothing between two questions.
func (t *track) Polled(what *activity, fn func() (changes uint64, busy bool)) {
	t.current.Store(what)
	t.poll.Store(&fn)
}

// load returns what the track is doing, nil if nothing or if that changes just now.
func (t *track) load() (what *activity, changes uint64, first, events int64) {
	if poll := t.poll.Load(); poll != nil {
		changes, busy := (*poll)()
		if !busy {
			return nil, changes, 0, 0
		}
		return t.current.Load(), changes, 0, 0
	}
	changes = t.changes.Load()
	what, first, events = t.current.Load(), t.first.Load(), t.events.Load()
	if now := t.changes.Load(); now != changes || now%2 == 1 {
		return nil, now, 0, 0 // it moves
	}
	return what, changes, first, events
}

// tracks are the lines of activity of one assignment.
type tracks struct {
	Delivery  track // the delivery's goroutine
	Waiting   track // what the delivery waits for over several attempts: the hold of the brake
	Storing   track // the goroutine that stores checkpoints and dead letters of AtLeastOnce
	Unstored  track // the checkpoint of AtLeastOnce, over several attempts
	Sink      track // the records that the sink has
	hookQueue track // the goroutine that runs the hooks Renewed and Error
	copying   track // the goroutine that copies dead letters
	reader    track // the goroutine that fetches: driver.Reader.Read
	held      track // what the log holds back from the reader
}

// delaying returns the tracks whose activities end. That of the reader does not: it waits
// for events.
func (t *tracks) delaying() []*track {
	return []*track{&t.Delivery, &t.Waiting, &t.Storing, &t.Unstored, &t.Sink, &t.hookQueue, &t.copying}
}

// watchHeld has the track of what the log holds back follow the lag: it moves if the end that
// readers can reach does.
func (t *tracks) watchHeld(lag *lagTracker) {
	t.held.Polled(activityHeld, func() (changes uint64, busy bool) {
		b := lag.bounds.Load()
		if b == nil || b.Held == nil || lag.read.Load() < b.Last.Sequence {
			return 0, false
		}
		return uint64(b.Last.Sequence), true
	})
}

// setHeld says what the log holds back.
func (t *tracks) setHeld(held *driver.HeldBack) {
	if held != nil {
		t.held.current.Store(&activity{held.What, held.Check})
	}
}

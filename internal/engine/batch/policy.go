package batch

import (
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine"
	"github.com/sluice-go/sluice/internal/engine/partition"
)

// workerPolicy holds the differences between Transactional and Batches.
type workerPolicy struct {
	saveEvery time.Duration            // how often a checkpoint is stored that was not stored with its batch; 0: each was
	stamps    bool                     // messages that are duplicates by their stamps are skipped
	trials    bool                     // an event can be tried out of turn, because what it does is rolled back
	report    func(driver.Observation) // reports a step that is done
	witnesses witnesses
}

// witnesses are the events that show, if they succeed when they are tried, that another event's
// failure is its own. The brake remembers the last one (brake.witness).
type witnesses interface {
	// candidates returns up to n of them for an event that fails, best first.
	candidates(e *driver.Event, n int) []*driver.Event
	// applied notes that events up to this one were applied.
	applied(last *driver.Event)
	// failed notes that a candidate failed, by a failure of its own or because of something else.
	failed(own bool)
	// missing notes that no candidate has succeeded.
	missing()
	// exhausted reports whether an event that has no witness was tried often enough, after n
	// attempts in a hold.
	exhausted(n int) bool
}

// laterEvents are the witnesses of sluice.Transactional: events after the one that fails, because
// trying them changes nothing.
type laterEvents[Tx any] struct{ w *worker[Tx] }

// candidates implements witnesses. The last witness comes first. Events that are suspected of
// killing the process are left out, and those that are not handled.
func (l laterEvents[Tx]) candidates(e *driver.Event, n int) []*driver.Event {
	w := l.w
	var list []*driver.Event
	from := max(e.Sequence, w.pos.Sequence, w.suspectUpTo)
	cfg := w.a.Settings
	if cfg.Filter != nil {
		defer w.a.Delivery.Doing(partition.ActivityFilter, e.Sequence, 1).Done()
	}
	began := cfg.Clock.Elapsed()
	enough := func() bool {
		return len(list) >= n || w.a.Idle.Err() != nil || len(list) > 0 && cfg.Clock.Elapsed()-began >= sampleFor
	}
	add := func(others []*driver.Event) {
		for _, other := range others {
			if enough() {
				return
			}
			if other.Sequence > from && cfg.Handles(other) {
				list = append(list, other)
			}
		}
	}
	if witness := w.brake.witness; witness != nil {
		add([]*driver.Event{witness})
	}
	add(w.batch)
	if w.buffer == nil {
		return list // redrives before the log is open
	}
	last := e
	if len(w.batch) > 0 {
		last = w.batch[len(w.batch)-1]
	}
	if !enough() {
		ahead := n
		if cfg.Filter != nil { // it may leave out most of them
			ahead = max(n, filteredAhead)
		}
		others := w.buffer.Peek(max(from, last.Sequence), w.suspects+ahead)
		add(others[min(w.suspects, len(others)):])
	}
	return list
}

func (laterEvents[Tx]) applied(*driver.Event) {}

func (l laterEvents[Tx]) failed(bool) { l.w.brake.witness = nil }

func (laterEvents[Tx]) missing() {}

func (laterEvents[Tx]) exhausted(int) bool { return false }

// eventDone is the witness of sluice.Batches: the event that was done last, once more. Trying a
// later event would have its effect out of turn.
type eventDone struct{ brake *brake }

func (d eventDone) candidates(*driver.Event, int) []*driver.Event {
	if d.brake.witness == nil {
		return nil
	}
	return []*driver.Event{d.brake.witness}
}

func (d eventDone) applied(last *driver.Event) { d.brake.witness = last }

// failed implements witnesses. A handler that rejects repetitions shows nothing.
func (d eventDone) failed(own bool) {
	if !own {
		d.brake.witness = nil
	}
}

func (d eventDone) missing() { d.brake.held = true }

// exhausted implements witnesses. Without a witness no event before this one can be tried, and none
// after it may be.
func (d eventDone) exhausted(n int) bool { return d.brake.witness == nil && n >= engine.HeldAttempts }

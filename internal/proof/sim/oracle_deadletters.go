package sim

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
)

// eventID identifies an event in the logs of a world.
type eventID struct {
	topic, partition string
	sequence         int64
	life             int // number of the incarnation
}

func (e eventID) String() string {
	text := fmt.Sprintf("%s/%s/%d", e.topic, e.partition, e.sequence)
	if e.life > 0 {
		text += fmt.Sprintf(" of incarnation %d", e.life)
	}
	return text
}

// blame is what the world knows about which events may become dead letters: those that
// fail by themselves, and those that the process died with.
type blame struct {
	kinds map[eventID]string         // the first word of each event's body
	begun map[eventID]map[int64]bool // the epochs in which an attempt was recorded before it began
	// unrecorded are the leases whose owner could not record an attempt.
	unrecorded map[sluice.Lease]bool
	parked     map[string][]eventID // the dead letters of each key, by topic, partition and key

	why         map[eventID]string // the error with which it became a dead letter
	window      map[eventID]string // during which outage of the environment, and in which assignment
	environment map[string]int     // dead letters because of one outage of the environment, by partition and assignment
	assignments map[string]int     // how many of each partition have begun: after a loss of the leases, two may have one epoch
}

func newBlame() blame {
	return blame{kinds: map[eventID]string{}, begun: map[eventID]map[int64]bool{}, parked: map[string][]eventID{}, unrecorded: map[sluice.Lease]bool{}, why: map[eventID]string{}, window: map[eventID]string{}, environment: map[string]int{}, assignments: map[string]int{}}
}

// deadliest is how many processes must have ended during attempts at an event before it
// may become a dead letter for that.
const deadliest = 3

// sentAs notes an event that was appended to a log. The lock is held.
func (b *blame) sentAs(id eventID, body string) {
	b.kinds[id], _, _ = strings.Cut(body, " ")
}

// attempted notes an attempt that was recorded before it began.
func (w *world) attempted(lease sluice.Lease, a driver.AttemptRecord) {
	if a.Unreturned == 0 || a.DeadLetter != 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	id := eventID{lease.Group.Topic, lease.Partition, a.Sequence, w.life}
	if w.blame.begun[id] == nil {
		w.blame.begun[id] = map[int64]bool{}
	}
	w.blame.begun[id][lease.Epoch] = true
}

// notAttempted notes that an attempt could not be recorded, or taken back.
func (w *world) notAttempted(lease sluice.Lease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.blame.unrecorded[lease] = true
	for id, epochs := range w.blame.begun { // the store counts what is tried next on top
		if id.topic == lease.Group.Topic && id.partition == lease.Partition && epochs[lease.Epoch] {
			epochs[-lease.Epoch] = true
		}
	}
}

// left notes that an owner has left a partition cleanly: it did not die.
func (w *world) left(lease sluice.Lease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.blame.unrecorded[lease] {
		return // it could not take an attempt back
	}
	for id, epochs := range w.blame.begun {
		if id.topic == lease.Group.Topic && id.partition == lease.Partition {
			delete(epochs, lease.Epoch)
		}
	}
}

// assignment returns the number of a partition's present assignment.
func (w *world) assignment(lease sluice.Lease) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.blame.assignments[partitionName(lease)]
}

// stored notes the keys of dead letters that a process has stored, in an assignment.
func (w *world) stored(by string, assignment int, list []sluice.DeadLetter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range list {
		key := keyOf(&list[i])
		id := w.letterID(&list[i])
		w.blame.why[id] = list[i].Error
		w.blame.window[id] = fmt.Sprintf("%d %d %s", w.windows[environment], assignment, by)
		w.blame.parked[key] = append(w.blame.parked[key], w.letterID(&list[i]))
	}
}

func keyOf(d *sluice.DeadLetter) string {
	return d.Group.Topic + "/" + d.Event.Partition + "/" + d.Event.Key
}

// checkBlame returns the dead letters of events that have not failed by themselves.
func (w *world) checkBlame() []string {
	var bad []string
	for _, g := range w.groups() {
		list, _ := w.storeOf(g).List(context.Background(), g, sluice.DeadLetterFilter{})
		w.mu.Lock()
		for i := range list {
			if !w.deserved(&list[i]) {
				d := &list[i]
				id := w.letterID(d)
				bad = append(bad, fmt.Sprintf("event %v (%s) did not fail by itself, but is a dead letter after %d attempts: %s", id, w.blame.kinds[id], d.Attempts, d.Error))
			}
		}
		w.mu.Unlock()
	}
	return bad
}

// failing are the kinds of events that fail by themselves.
var failing = []string{"reject", "broken", "flaky", "panic", "exit"}

// deserved reports whether an event may be a dead letter. The lock is held.
func (w *world) deserved(d *sluice.DeadLetter) bool {
	id := w.letterID(d)
	kind := w.blame.kinds[id]
	firstOfChain := w.cfg.Chain != nil && d.Group.Topic == w.group.Topic
	switch {
	case firstOfChain && (kind == "refused" || kind == "half"):
		return true
	case !firstOfChain && slices.Contains(failing, kind):
		return true
	case strings.HasPrefix(w.blame.why[id], "held back"):
		another := slices.ContainsFunc(w.blame.parked[keyOf(d)], func(o eventID) bool { return o != id })
		return w.cfg.Stream != nil && w.cfg.Stream.Policy == sluice.KeyHold && another
	}
	return len(w.blame.begun[id]) >= deadliest || w.convicted(d)
}

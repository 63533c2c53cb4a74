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
	unrecorded map[tenure]bool
	parked     map[string][]eventID // the dead letters of each key, by topic, partition and key

	why         map[eventID]string    // the error with which it became a dead letter
	convictions map[string]conviction // by partition, outage and assignment
	assignments map[string]int        // how many of each partition have begun: after a loss of the leases, two may have one epoch
}

func newBlame() blame {
	return blame{kinds: map[eventID]string{}, begun: map[eventID]map[int64]bool{}, parked: map[string][]eventID{}, unrecorded: map[tenure]bool{}, why: map[eventID]string{}, convictions: map[string]conviction{}, assignments: map[string]int{}}
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
	w.blame.unrecorded[tenureOf(lease)] = true
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
	if w.blame.unrecorded[tenureOf(lease)] {
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

// stored notes dead letters that a process has stored, in an assignment. It records a violation if
// an event has not failed by itself, or if too many were stored because of one outage of the
// environment.
func (w *world) stored(by string, assignment int, list []sluice.DeadLetter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range list {
		key := keyOf(&list[i])
		id := w.letterID(&list[i])
		w.blame.why[id] = list[i].Error
		if w.blame.why[id] == errEnvironment.Error() {
			w.convicted(id, fmt.Sprint(id.topic, "/", id.partition, " ", w.windows[environment], assignment, by))
		}
		w.blame.parked[key] = append(w.blame.parked[key], id)
		if !w.deserved(&list[i]) {
			w.stale = append(w.stale, fmt.Sprintf("event %v (%s) did not fail by itself, but is a dead letter after %d attempts: %s", id, w.blame.kinds[id], list[i].Attempts, list[i].Error))
		}
	}
}

// checkHeldBack returns the dead letters that are held back although no other event of their key
// was a dead letter. The other one may have been stored later. If it never was, because its request
// was lost, an operator's retry has removed the ones behind it.
func (w *world) checkHeldBack() []string {
	var bad []string
	for _, g := range w.groups() {
		list, _ := w.storeOf(g).List(context.Background(), g, sluice.DeadLetterFilter{})
		w.mu.Lock()
		for i := range list {
			id := w.letterID(&list[i])
			others := slices.DeleteFunc(slices.Clone(w.blame.parked[keyOf(&list[i])]), func(o eventID) bool { return o == id })
			again := len(w.blame.parked[keyOf(&list[i])]) - len(others) // its owner may have found the one that the owner before stored
			if isHeldBack(&list[i]) && len(others) == 0 && again < 2 {
				bad = append(bad, fmt.Sprintf("event %v is held back, but no other event of its key was a dead letter", id))
			}
		}
		w.mu.Unlock()
	}
	return bad
}

// isHeldBack reports whether an event is a dead letter because an earlier one of its key is.
func isHeldBack(d *sluice.DeadLetter) bool { return strings.HasPrefix(d.Error, "held back") }

func keyOf(d *sluice.DeadLetter) string {
	return d.Group.Topic + "/" + d.Event.Partition + "/" + d.Event.Key
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
	case isHeldBack(d): // see checkHeldBack
		return w.cfg.Stream != nil && w.cfg.Stream.Policy == sluice.KeyHold
	}
	return len(w.blame.begun[id]) >= deadliest || w.blame.why[id] == errEnvironment.Error()
}

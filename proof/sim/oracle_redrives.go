package sim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-go/sluice"
)

// redrives are those that a process has found due in one partition.
type redrives struct {
	due  map[eventID]foundRedrive
	done map[eventID]bool // its record was written
}

// foundRedrive is a dead letter on redrive, when a process first found it due.
type foundRedrive struct {
	id       int64
	attempts int
	earlier  []int64 // IDs of the earlier dead letters of its key that were there and not discarded
}

func (p *process) redrivesOf(partition string) *redrives {
	r := p.redrives[partition]
	if r == nil {
		r = &redrives{map[eventID]foundRedrive{}, map[eventID]bool{}}
		p.redrives[partition] = r
	}
	return r
}

// foundDue notes an answer of the store.
func (p *process) foundDue(partition string, due []sluice.DeadLetter) {
	if len(due) == 0 {
		return
	}
	w := p.w
	list, _ := w.store.List(context.Background(), w.group, sluice.DeadLetterFilter{Partition: partition})
	w.mu.Lock()
	defer w.mu.Unlock()
	r := p.redrivesOf(partition)
	for i := range due {
		d, id := &due[i], w.letterID(&due[i])
		if known, found := r.due[id]; found && known.id == d.ID && known.attempts == d.Attempts {
			continue
		}
		f := foundRedrive{id: d.ID, attempts: d.Attempts}
		for j := range list {
			l := &list[j]
			if l.Event.Key == d.Event.Key && l.Incarnation == d.Incarnation && l.Event.Sequence < d.Event.Sequence && l.Status != sluice.StatusDiscarded {
				f.earlier = append(f.earlier, l.ID)
			}
		}
		r.due[id] = f
	}
}

// redriven notes that a redrive was written.
func (p *process) redriven(e *sluice.Event) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	p.redrivesOf(e.Partition).done[p.w.idOf(e)] = true
}

// idOf identifies an event of the first stage.
func (w *world) idOf(e *sluice.Event) eventID {
	return eventID{w.group.Topic, e.Partition, e.Sequence, lifeOf(e)}
}

// redriveInOrder records a violation if a dead letter is redriven although an earlier one of
// its key, which was there when the process found the later one due, is still there, and the
// process has not written it.
func (p *process) redriveInOrder(e *sluice.Event) {
	w := p.w
	w.mu.Lock()
	earlier := p.redrivesOf(e.Partition).due[w.idOf(e)].earlier
	w.mu.Unlock()
	if len(earlier) == 0 {
		return
	}
	list, _ := w.store.List(context.Background(), w.group, sluice.DeadLetterFilter{IDs: earlier})
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range list {
		id := w.letterID(&list[i])
		if w.discarded[list[i].ID] || p.redrivesOf(e.Partition).done[id] {
			continue
		}
		w.stale = append(w.stale, fmt.Sprintf("partition %s: the dead letter of event %d was redriven before that of event %d (%s), which is earlier and has the same key %q", e.Partition, e.Sequence, id.sequence, list[i].Status, e.Key))
		return
	}
}

// checkReleased checks that no key is held back after its dead letters are gone: once they
// are discarded, a further event of each key is written.
func (w *world) checkReleased() []string {
	if w.cfg.Stream == nil || w.cfg.Stream.Policy != sluice.KeyHold || w.cfg.Chain != nil || w.cfg.Seed%2 > 0 {
		return nil
	}
	ctx := context.Background()
	for range 2 { // a process that was replaced may store one more until it has left
		_, _ = w.store.Discard(ctx, w.group, sluice.DeadLetterFilter{})
		w.drive(time.Now().Add(20 * time.Second)) // owners look for held keys every 5 s
	}
	before := w.deadLetters()
	topic, _ := w.hub.Describe(ctx)
	for _, partition := range topic.Partitions {
		for key := range keys {
			w.hub.Append(partition, &sluice.Event{Body: fmt.Appendf(nil, "good 0 %d", w.life), Key: fmt.Sprint("key ", key)})
		}
	}
	w.drive(time.Now().Add(5 * time.Second))
	if n := w.deadLetters() - before; n > 0 {
		return []string{fmt.Sprintf("%d events were held back although their keys have no dead letters", n)}
	}
	return nil
}

// waits reports whether a dead letter's redrive is still to come, now that the world is at rest.
// One that is held back may wait for ever: for an earlier one of its key that waits for an
// operator.
func (w *world) waits(d *sluice.DeadLetter, list []sluice.DeadLetter) bool {
	if d.Status != sluice.StatusRetry {
		return false
	}
	hold := w.cfg.Stream != nil && w.cfg.Stream.Policy == sluice.KeyHold && d.Event.Key != ""
	return !hold || !slices.ContainsFunc(list, func(o sluice.DeadLetter) bool {
		return o.Status == sluice.StatusDead && o.Event.Key == d.Event.Key && o.Event.Partition == d.Event.Partition &&
			o.Incarnation == d.Incarnation && o.Event.Sequence < d.Event.Sequence
	})
}

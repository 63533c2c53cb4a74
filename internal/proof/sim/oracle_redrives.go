package sim

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-go/sluice"
)

// redrives are those that one process has found due in one partition under one lease.
type redrives struct {
	due  map[eventID]time.Time // when the store first returned it
	done map[eventID]bool      // its record was written
}

func (p *process) redrivesOf(partition string) *redrives {
	r := p.redrives[partition]
	if r == nil {
		r = &redrives{map[eventID]time.Time{}, map[eventID]bool{}}
		p.redrives[partition] = r
	}
	return r
}

// foundDue notes an answer of the store.
func (p *process) foundDue(partition string, list []sluice.DeadLetter) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	r := p.redrivesOf(partition)
	for i := range list {
		id := p.w.letterID(&list[i])
		if _, known := r.due[id]; !known {
			r.due[id] = time.Now()
		}
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
// its key, which the owner found with it, is still there and was not written. Across two looks
// for redrives the engine keeps no order yet.
func (p *process) redriveInOrder(e *sluice.Event) {
	if !unproven {
		return
	}
	w, before := p.w, e.Sequence-1
	list, _ := w.store.List(context.Background(), w.group, sluice.DeadLetterFilter{Partition: e.Partition, Key: e.Key, LastSequence: &before})
	w.mu.Lock()
	defer w.mu.Unlock()
	r := p.redrivesOf(e.Partition)
	since, known := r.due[w.idOf(e)]
	for i := range list {
		id := w.letterID(&list[i])
		earlier, found := r.due[id]
		if !known || !found || !earlier.Equal(since) || r.done[id] || id.life != lifeOf(e) || list[i].Status == sluice.StatusDiscarded {
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
	_, _ = w.store.Discard(ctx, w.group, sluice.DeadLetterFilter{})
	w.drive(time.Now().Add(20 * time.Second)) // owners look for held keys every 5 s
	before := w.deadLetters()
	topic, _ := w.hub.Describe(ctx)
	for _, partition := range topic.Partitions {
		for key := range keys {
			w.hub.Append(partition, &sluice.Event{Body: []byte("good"), Key: fmt.Sprint("key ", key)})
		}
	}
	w.drive(time.Now().Add(5 * time.Second))
	if n := w.deadLetters() - before; n > 0 {
		return []string{fmt.Sprintf("%d events were held back although their keys have no dead letters", n)}
	}
	return nil
}

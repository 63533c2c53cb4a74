package sim

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
)

// past is what was sent in an earlier incarnation of the topic.
type past struct{ sent map[string]int64 }

// lifeOf is the number of the incarnation that an event was sent in. Its body says so.
func lifeOf(e *sluice.Event) int {
	if words := strings.Fields(string(e.Body)); len(words) == 3 {
		n, _ := strconv.Atoi(words[2])
		return n
	}
	return 0
}

// letterID identifies the event of a dead letter. The lock is held.
func (w *world) letterID(d *sluice.DeadLetter) eventID {
	return eventID{d.Group.Topic, d.Event.Partition, d.Event.Sequence, w.lives[d.Incarnation]}
}

// trim removes the front of a partition, as retention does. Events that were not done may
// be lost.
func (w *world) trim() {
	ctx := context.Background()
	w.mu.Lock()
	partition := strconv.Itoa(w.rng.IntN(w.present()))
	w.mu.Unlock()
	b, _ := w.hub.Bounds(ctx, partition)
	w.mu.Lock()
	before := b.First + w.rng.Int64N(b.Last.Sequence-b.First+2)
	w.mu.Unlock()
	w.count("retention")
	if w.removeBefore(partition, before) {
		w.count("retention of events that are not done")
	}
}

// removeBefore removes the front of a partition, and reports whether events were not done.
func (w *world) removeBefore(partition string, before int64) (undone bool) {
	ctx := context.Background()
	b, _ := w.hub.Bounds(ctx, partition)
	topic, _ := w.hub.Describe(ctx)
	done := driver.Origin.Sequence
	if c := w.checkpoint(partition); c.Incarnation == topic.Incarnation {
		done = c.Position.Sequence
	}
	w.mu.Lock()
	for n := max(b.First, done+1); n < before; n++ {
		w.lost[eventID{w.group.Topic, partition, n, w.life}] = true
		w.overtaken[eventID{w.group.Topic, partition, n, w.life}] = true
	}
	w.note("retention removes events of partition %s before %d", partition, before)
	w.trouble(nil, "", w.operatorActs())
	w.mu.Unlock()
	w.hub.Trim(partition, before)
	w.copyHub.Trim(partition, before)
	return done < before-1
}

// recreate deletes the topic and creates it again.
func (w *world) recreate() {
	w.keepDeadLetters()
	ctx := context.Background()
	w.hub.Recreate()
	w.copyHub.Recreate()
	topic, _ := w.hub.Describe(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.past = append(w.past, past{w.sent})
	w.life++
	w.lives[topic.Incarnation] = w.life
	w.sent = map[string]int64{}
	w.nextSend = w.operatorActs()
	w.note("the topic is recreated")
	w.fired["topic recreated"]++
	w.trouble(nil, "", w.operatorActs())
}

// lie returns an error of a log whose view is stale: a position that it has is past its
// end, or events that it has are gone.
func (s source) lie(partition string, after sluice.Position) error {
	if !s.w.has(staleLogs) || s.secondStage || !s.w.troubled() || !s.w.coin(0.1, s.name+" lie "+partition) {
		return nil
	}
	s.w.count("log that lies")
	s.w.mu.Lock()
	s.w.trouble(s.process, partition, s.w.operatorActs())
	s.w.mu.Unlock()
	if s.w.coin(0.5, "past the end "+partition) {
		return fmt.Errorf("open partition %s: %w", partition, sluice.ErrPastEnd)
	}
	return &driver.RetentionError{Partition: partition, After: after.Sequence, First: after.Sequence + 2}
}

// outOfDate decides whether the log reports a partition as it was when it was empty.
func (s source) outOfDate(partition string) bool {
	if !s.w.has(staleLogs) || s.secondStage || !s.w.troubled() || !s.w.coin(0.5, s.name+" bounds "+partition) {
		return false
	}
	s.w.count("bounds out of date")
	return true
}

// startOf returns the position before the oldest event of a partition.
func (w *world) startOf(partition string) (incarnation string, at sluice.Position) {
	ctx := context.Background()
	topic, _ := w.hub.Describe(ctx)
	b, _ := w.hub.Bounds(ctx, partition)
	return topic.Incarnation, sluice.Position{Sequence: max(b.First-1, driver.Origin.Sequence)}
}

package sim

import (
	"context"
	"fmt"
	"slices"

	"github.com/sluice-go/sluice"
)

// check returns the violations in the contents of the database, without help of the
// engine.
func (w *world) check() []string {
	var bad []string
	if w.cfg.Stream != nil {
		bad = append(w.checkStream(), w.checkChain()...)
	}
	if w.cfg.Chain == nil {
		bad = append(bad, w.checkEffects()...)
	}
	w.mu.Lock()
	bad = append(bad, w.stale...)
	w.mu.Unlock()
	slices.Sort(bad)
	return bad
}

// checkEffects returns the violations in what transactional deliveries have written: exactly
// once, and in order. Events that an at-least-once delivery had too may have effects beside.
func (w *world) checkEffects() []string {
	var bad []string
	complain := func(format string, args ...any) { bad = append(bad, fmt.Sprintf(format, args...)) }
	id := func(e effect) eventID { return eventID{w.group.Topic, e.partition, e.sequence, e.life} }
	count := map[eventID]int{}
	last := map[string]effect{}
	for _, row := range w.store.Rows("effects") {
		e := row.(effect)
		count[id(e)]++
		before, ok := last[e.partition]
		if ok && e.epoch < before.epoch {
			complain("partition %s: event %d of epoch %d took effect after one of epoch %d", e.partition, e.sequence, e.epoch, before.epoch)
		}
		if !e.redriven {
			again := w.setBack[e.partition] && e.epoch > before.epoch
			if ok && e.sequence <= before.sequence && e.life == before.life && !again {
				complain("partition %s: event %d took effect after event %d", e.partition, e.sequence, before.sequence)
			}
			last[e.partition] = e
		}
	}
	second := map[eventID]int{}
	for _, row := range w.store.Rows("effects too") {
		e := row.(effect)
		second[id(e)]++
	}
	deadLetters, err := w.store.List(context.Background(), w.group, sluice.DeadLetterFilter{})
	if err != nil {
		complain("list dead letters: %v", err)
	}
	parked := map[eventID]int{}
	for _, l := range deadLetters {
		parked[w.letterID(&l)]++
		if w.waits(&l, deadLetters) && !w.isGone(l.Event.Partition) {
			complain("partition %s: event %d still waits for its redrive", l.Event.Partition, l.Event.Sequence)
		}
	}
	for life, sent := range w.sentInLives() {
		for partition, sent := range sent {
			for n := range sent {
				e := eventID{w.group.Topic, partition, n, life}
				least, most := 1, 1+w.repeats.parked[e]
				if life < w.life || w.lost[e] {
					least = 0
				}
				if w.isEmpty(e) {
					least, most = 0, 0
				}
				if w.cfg.Stream != nil {
					least = 0 // checkStream knows what is written
				}
				total := count[e] - w.repeats.earlier[e].effects + parked[e]
				if total < least || total > most || second[e] != count[e] {
					complain("partition %s: event %d has %d effects, %d second effects, %d dead letters; %d effects are of an earlier interval, and at most %d may be of this one", partition, n, count[e], second[e], parked[e], w.repeats.earlier[e].effects, most)
				}
			}
		}
	}
	return bad
}

// sentInLives returns how many events were sent to each partition, by incarnation.
func (w *world) sentInLives() []map[string]int64 {
	var list []map[string]int64
	for _, p := range w.past {
		list = append(list, p.sent)
	}
	return append(list, w.sent)
}

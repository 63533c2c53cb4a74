package sim

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
)

// Bounds of the oracle of partitions that are gone. A consumer describes the topic once a
// minute, and believes the second description.
const (
	mustRelease = 3 * time.Minute // a partition that is gone is released after this time at most
	learns      = 70 * time.Second
)

// removals is what the world knows about partitions that the topic has lost.
type removals struct {
	removed   int                  // so many partitions are gone for good
	removedAt map[string]time.Time // when a partition was removed that is gone
	back      map[string]time.Time // when one came back
	fewest    int                  // partitions that were ever described
	resized   time.Time            // when the topic was recreated with another number
	known     time.Time            // when all processes know the partitions
	kept      map[eventID]bool     // dead letters of earlier incarnations
}

func newRemovals(partitions int) removals {
	return removals{removedAt: map[string]time.Time{}, back: map[string]time.Time{}, fewest: partitions, kept: map[eventID]bool{}}
}

// present is how many partitions the topic has. The lock is held.
func (w *world) present() int { return w.cfg.Partitions - w.adding - w.gone.removed }

// isGone reports whether the topic does not have a partition. The lock is held.
func (w *world) isGone(partition string) bool {
	n, _ := strconv.Atoi(partition)
	return n >= w.present()
}

// absent returns the error of a request for a partition that the topic does not have.
func (s source) absent(partition string) error {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	if s.secondStage || !s.w.isGone(partition) {
		return nil
	}
	return fmt.Errorf("topic %s has no partition %q: %w", s.w.group.Topic, partition, sluice.ErrRefused)
}

// resize has the topic recreated with another number of partitions. Those that are gone may be
// added again later.
func (w *world) resize() {
	w.mu.Lock()
	if time.Since(w.gone.resized) < mustRelease {
		w.mu.Unlock()
		return
	}
	before, now := w.present(), 1+w.rng.IntN(w.cfg.Partitions)
	w.gone.resized = time.Now()
	if before > 1 && w.rng.IntN(3) > 0 {
		now = 1 + w.rng.IntN(before-1)
	}
	w.adding, w.gone.removed = w.cfg.Partitions-now, 0
	w.growth = time.Now().Add(time.Duration(30+w.rng.IntN(210)) * time.Second)
	if w.rng.IntN(3) > 0 {
		w.adding, w.gone.removed = 0, w.adding
	}
	w.gone.fewest = min(w.gone.fewest, now)
	for n := now; n < before; n++ {
		w.gone.removedAt[strconv.Itoa(n)] = time.Now()
	}
	for n := before; n < now; n++ {
		w.comesBack(strconv.Itoa(n))
	}
	w.note("the topic has %d partitions, after %d", now, before)
	w.mu.Unlock()
	w.recreate()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gone.known = time.Now().Add(2 * learns)
	w.trouble(nil, "", w.gone.known)
	if now < before {
		w.fired["topic recreated with fewer partitions"]++
	}
}

// comesBack notes that the topic has a partition that was gone. The lock is held.
func (w *world) comesBack(partition string) {
	if _, ok := w.gone.removedAt[partition]; !ok {
		return
	}
	delete(w.gone.removedAt, partition)
	w.gone.back[partition] = time.Now()
	w.gone.known = time.Now().Add(2 * learns)
	w.trouble(nil, "", w.gone.known)
	w.fired["partition that comes back"]++
}

// shorten makes the log describe the topic to one process without some of its partitions, for
// less than the time between two of its looks.
func (w *world) shorten(span time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.slots[w.rng.IntN(len(w.slots))].process
	span = min(span, 50*time.Second)
	if p == nil || p.secondStage || w.present() < 2 || time.Since(p.shortUntil) < mustRelease || time.Until(w.start.Add(w.cfg.Length)) < span {
		return
	}
	p.short, p.shortUntil = 1+w.rng.IntN(w.present()-1), time.Now().Add(span)
	w.gone.fewest = min(w.gone.fewest, p.short)
	w.gone.known = p.shortUntil.Add(learns)
	w.trouble(p, "", w.gone.known)
	w.note("the topic has %d partitions for %s, for %v", p.short, p.name, span)
}

// described returns how many partitions the log describes to a process.
func (s source) described() int {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	if n := s.w.present(); !time.Now().Before(s.shortUntil) || s.short >= n {
		return n
	}
	s.w.fired["description without a partition"]++
	return s.short
}

// released checks that a partition that was released because it is gone is gone. The lock is
// held.
func (p *process) released(o driver.Observation) {
	if o.Kind != driver.KindLost || !strings.Contains(o.Err.Error(), "no longer in topic") {
		return
	}
	p.w.fired["partition released because it is gone"]++
	if !p.w.isGone(o.Partition) && time.Since(p.w.gone.back[o.Partition]) > mustRelease {
		p.w.stale = append(p.w.stale, fmt.Sprintf("partition %s: %s has released it as gone, but the topic has it", o.Partition, p.name))
	}
}

// judgeGone records a violation if a partition that is gone is still held. The lock is held.
func (w *world) judgeGone(l *lane, partition string, now time.Time) {
	l.moved, l.halted = now, false
	since := w.gone.removedAt[partition]
	for _, t := range []time.Time{l.heldFrom, l.troubled} {
		if t.After(since) {
			since = t
		}
	}
	if l.holder != nil && now.Sub(since) > mustRelease {
		w.stale = append(w.stale, fmt.Sprintf("partition %s: the topic does not have it, and %s still holds it", partition, l.holder.name))
		w.gone.removedAt[partition] = now
	}
}

// knowsPartitions reports whether all processes know which partitions the topic has, and hold
// no others.
func (w *world) knowsPartitions() bool {
	holders := w.holders()
	w.mu.Lock()
	defer w.mu.Unlock()
	for partition := range holders {
		if w.isGone(partition) {
			return false
		}
	}
	return !time.Now().Before(w.gone.known)
}

// keepDeadLetters notes the dead letters that must outlast the topic's recreation.
func (w *world) keepDeadLetters() {
	list, _ := w.store.List(context.Background(), w.group, sluice.DeadLetterFilter{})
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range list {
		w.gone.kept[w.letterID(&list[i])] = true
	}
}

// checkKept returns the dead letters of earlier incarnations that are gone without an effect.
func (w *world) checkKept() (bad []string) {
	has := map[eventID]bool{}
	list, _ := w.store.List(context.Background(), w.group, sluice.DeadLetterFilter{})
	rows := w.store.Rows("effects")
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range list {
		has[w.letterID(&list[i])] = true
	}
	for _, row := range rows {
		e := row.(effect)
		has[eventID{w.group.Topic, e.partition, e.sequence, e.life}] = true
	}
	for id := range w.gone.kept {
		if !has[id] && w.written[written{id.partition, id.sequence, id.life}] == 0 {
			bad = append(bad, fmt.Sprintf("event %v: its dead letter is lost", id))
		}
	}
	slices.Sort(bad)
	return bad
}

// onPresent leaves out the dead letters of partitions that are gone: no owner can redrive them.
func (w *world) onPresent(list []sluice.DeadLetter) []sluice.DeadLetter {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.DeleteFunc(list, func(d sluice.DeadLetter) bool { return d.Group == w.group && w.isGone(d.Event.Partition) })
}

// settleTime is how long a world without faults may take to finish its events.
func (w *world) settleTime() time.Duration {
	if w.has(resizes) {
		return Quiet + 7*time.Minute // partitions may still have to come back
	}
	return Quiet
}

package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
)

// replayGroup is the consumer group of the processes that replay the log, and the name of its
// lanes.
const replayGroup = "replay"

// replayers is how many processes replay the log in worlds with that theme.
const replayers = 2

// memory is what a process has in memory of one partition.
type memory struct {
	loaded   bool // it has an event
	life     int  // number of the incarnation of its events
	last     int64
	broken   bool // Apply has failed: the memory must be discarded
	caughtUp bool
}

// discarded is a memory that was discarded because of an error.
type discarded struct {
	process   *process
	partition string
	time      time.Time
	cause     error
}

func (w *world) addReplayers() {
	for range replayers {
		w.slots = append(w.slots, &slot{n: len(w.slots), role: replaying})
	}
}

// groupOf returns the consumer group of the processes of a role.
func (w *world) groupOf(r role) sluice.Group {
	g := w.group
	switch r {
	case ofSecondStage:
		g.Topic = "onward"
	case replaying:
		g.Name = replayGroup
	}
	return g
}

// replay is the delivery of a process that keeps the log in memory.
func (p *process) replay() sluice.Delivery {
	return sluice.Replay(sluice.Replayer{Apply: p.applyToMemory, CaughtUp: p.caughtUp, Released: p.discard})
}

// memoryOf returns the memory of a partition. The lock is held.
func (p *process) memoryOf(partition string) *memory {
	m := p.memories[partition]
	if m == nil {
		m = &memory{}
		p.memories[partition] = m
	}
	return m
}

// applyToMemory checks that events come in their order, none twice and none left out, and
// fails sometimes.
func (p *process) applyToMemory(ctx context.Context, b sluice.Batch) error {
	w := p.w
	p.handed(b)
	w.progressed(replayGroup, b.Partition)
	bounds, _ := w.copyHub.Bounds(ctx, b.Partition)
	w.mu.Lock()
	m := p.memoryOf(b.Partition)
	for _, e := range b.Events {
		if e.Control {
			w.stale = append(w.stale, fmt.Sprintf("%s replays partition %s: number %d holds no event, and came as one", p.name, e.Partition, e.Sequence))
		}
		w.remember(p, m, e, bounds.First)
	}
	w.mu.Unlock()
	key := fmt.Sprint(p.name, " replay ", b.Partition)
	if w.has(hangingHandlers) {
		if err := p.dawdle(ctx, b.Partition, key); err != nil {
			w.mu.Lock()
			defer w.mu.Unlock()
			m.broken = true
			return err
		}
	}
	if !w.troubled() || !w.coin(0.01, key) {
		return nil
	}
	w.count("replay that fails")
	w.mu.Lock()
	defer w.mu.Unlock()
	m.broken = true
	w.trouble(p, b.Partition, time.Now())
	return errors.New("the memory is full")
}

// remember adds an event to a memory. first is the oldest event that the log holds. The lock is
// held.
func (w *world) remember(p *process, m *memory, e *sluice.Event, first int64) {
	complain := func(format string, args ...any) {
		w.stale = append(w.stale, fmt.Sprintf("%s replays partition %s: event %d ", p.name, e.Partition, e.Sequence)+fmt.Sprintf(format, args...))
	}
	life := lifeOf(e)
	id := eventID{w.group.Topic, e.Partition, 0, life}
	switch {
	case m.broken:
		complain("was applied after a failure, without Released")
	case !m.loaded && life == w.life && w.eventsIn(id, first-1, e.Sequence) > 1 && !w.cfg.Free:
		complain("was the first, although the log begins with event %d", first)
	case m.loaded && life != m.life:
		complain("of incarnation %d was applied after events of incarnation %d", life, m.life)
	case m.loaded && (e.Sequence <= m.last || w.eventsIn(id, m.last, e.Sequence) != 1):
		complain("was applied after event %d", m.last)
	}
	m.loaded, m.life, m.last = true, life, e.Sequence
}

// caughtUp checks that a process has caught up once, and with all that the partition held
// when it was acquired.
func (p *process) caughtUp(ctx context.Context, l sluice.Lease) error {
	w := p.w
	bounds, _ := w.copyHub.Bounds(ctx, l.Partition)
	w.mu.Lock()
	defer w.mu.Unlock()
	m, end := p.memoryOf(l.Partition), p.ends[l.Partition]
	if m.caughtUp {
		w.stale = append(w.stale, fmt.Sprintf("%s replays partition %s: CaughtUp was called twice", p.name, l.Partition))
	}
	missing := m.loaded && m.life == end.life && m.last < end.sequence || !m.loaded && end.life == w.life && bounds.First <= end.sequence
	if missing && !w.cfg.Free {
		w.stale = append(w.stale, fmt.Sprintf("%s replays partition %s: it has caught up at event %d, but event %d was there before", p.name, l.Partition, m.last, end.sequence))
	}
	m.caughtUp = true
	return nil
}

// noteEnd notes the newest event of a partition that a process acquires.
func (p *process) noteEnd(partition string) {
	bounds, _ := p.w.copyHub.Bounds(context.Background(), partition)
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	p.ends[partition] = eventID{"", partition, p.w.endOf(partition, bounds), p.w.life}
}

// endOf returns the number of the last event of the log's present incarnation within bounds. The
// lock is held.
func (w *world) endOf(partition string, b driver.Bounds) int64 {
	return w.lastEvent(eventID{w.group.Topic, partition, b.Last.Sequence, w.life})
}

// discard notes that the engine has a memory discarded.
func (p *process) discard(l sluice.Lease, cause error) {
	w := p.w
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(p.memories, l.Partition)
	if p.dead || p.stopping {
		return
	}
	if cause == nil {
		w.stale = append(w.stale, fmt.Sprintf("%s replays partition %s: it was released without a cause, although nobody stopped the process", p.name, l.Partition))
	}
	w.fired["replay that starts over"]++
	w.discards = append(w.discards, discarded{p, l.Partition, time.Now(), cause})
}

// mustExplain is how soon the reason for discarding a memory is reported.
const mustExplain = 10 * time.Second

// watchDiscards records a violation for each memory that was discarded without a report. The
// lock is held.
func (w *world) watchDiscards() {
	w.discards = slices.DeleteFunc(w.discards, func(d discarded) bool {
		if time.Since(d.time) < mustExplain {
			return false
		}
		if d.process.reports[d.partition].Before(d.time.Add(-mustExplain)) && !d.process.dead && !d.process.stopping {
			w.stale = append(w.stale, fmt.Sprintf("%s replays partition %s: it started over (%v) and did not report it", d.process.name, d.partition, d.cause))
		}
		return true
	})
}

// replayed returns the last event that a process has in memory, by partition.
func (w *world) replayed() map[string]int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	last := map[string]int64{}
	for _, s := range w.slots {
		if s.role != replaying || s.process == nil {
			continue
		}
		for partition, m := range s.process.memories {
			if before, ok := last[partition]; m.loaded && m.life == w.life && m.caughtUp && !m.broken && (!ok || m.last > before) {
				last[partition] = m.last
			}
		}
	}
	return last
}

// unreplayed returns the partitions of which no process has all events in memory.
func (w *world) unreplayed() (list []string) {
	if !w.has(replays) {
		return nil
	}
	topic, _ := w.copyHub.Describe(context.Background())
	last := w.replayed()
	for _, partition := range topic.Partitions {
		bounds, _ := w.copyHub.Bounds(context.Background(), partition)
		w.mu.Lock()
		end := w.endOf(partition, bounds)
		w.mu.Unlock()
		if n, ok := last[partition]; bounds.First <= end && (!ok || n != end) {
			list = append(list, partition)
		}
	}
	return list
}

// checkReplays checks that each partition is in the memory of a process at the end.
func (w *world) checkReplays() (bad []string) {
	for _, partition := range w.unreplayed() {
		bad = append(bad, fmt.Sprintf("partition %s: no process has all its events in memory", partition))
	}
	return bad
}

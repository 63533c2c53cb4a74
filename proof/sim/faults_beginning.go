package sim

import (
	"context"
	"errors"
	"fmt"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
)

// A link to Event Hubs may also begin with events before its position. That is not simulated:
// the contract of [driver.Reader] demands events after the position, so the driver drops the
// earlier ones, and the engine cannot see them. The tests of package eventhub and its
// conformance suite do it, against an emulator as Azure is.

// beginningMoves lets retention remove the oldest events of a partition, at a moment when a
// process has just asked where it begins, or has just opened it.
func (s source) beginningMoves(partition, site string) {
	w := s.w
	if !w.has(beginnings) || s.secondStage || !w.troubled() || !w.coin(0.2, s.name+" "+site+" "+partition) {
		return
	}
	b, _ := w.hub.Bounds(context.Background(), partition)
	if b.Last.Sequence < b.First {
		return
	}
	removed := int64(1)
	for removed < 4 && w.coin(0.5, s.name+" more "+partition) {
		removed++
	}
	w.removeBefore(partition, min(b.First+removed, b.Last.Sequence+1))
	w.count(site)
}

// choseStart notes that a process has got the start of a partition without a checkpoint. If it has
// read the partition before, a failover has lost the checkpoint, and the first start stays.
func (p *process) choseStart(partition string) {
	if p.secondStage || p.replays || p.w.checkpoint(partition).Position != driver.Unset {
		return
	}
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	if _, before := p.chosen[partition]; !before {
		p.chosen[partition] = true
	}
}

// hasRead notes that a process has read events of a partition since it chose the start.
func (p *process) hasRead(partition string) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	p.chosen[partition] = false
}

// halts checks that a partition does not halt because retention has passed the start before an
// event was read: the start can be chosen again. The lock is held.
func (p *process) halts(o driver.Observation) {
	if o.Kind == driver.KindHalted && errors.Is(o.Err, sluice.ErrRetention) && p.chosen[o.Partition] {
		p.w.stale = append(p.w.stale, fmt.Sprintf("partition %s: %s halts at the start, of which it has not read an event: %v", o.Partition, p.name, o.Err))
	}
}

// mayMoveStart reports whether a process may still choose the start of a partition again: it
// has read nothing since it chose it.
func (p *process) mayMoveStart(partition string) bool {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	return p.chosen[partition]
}

// passes checks that a checkpoint that has moved has not passed events that retention has
// removed before they were done: an operator must decide about them, if others were read
// before.
func (w *world) passes(p *process, lease sluice.Lease, from, to sluice.Position) {
	checkpoint := w.checkpoint(lease.Partition)
	w.mu.Lock()
	life := w.lives[checkpoint.Incarnation]                // a later one may have begun since the events were read
	restored := w.fired["failover that loses commits"] > 0 // it may lose what was done about events
	missing := map[int64]bool{}
	for n := from.Sequence + 1; from != driver.Unset && n <= to.Sequence; n++ {
		id := eventID{w.group.Topic, lease.Partition, n, life}
		if w.overtaken[id] && !w.isEmpty(id) && w.written[written{id.partition, n, id.life}] == 0 {
			missing[n] = true
		}
	}
	w.mu.Unlock()
	if len(missing) == 0 || restored || lease.Group != w.group {
		return
	}
	for _, row := range w.store.Rows("effects") {
		if e := row.(effect); e.partition == lease.Partition && e.life == life {
			delete(missing, e.sequence)
		}
	}
	parked, _ := w.store.List(context.Background(), w.group, sluice.DeadLetterFilter{Partition: lease.Partition})
	for i := range parked {
		delete(missing, parked[i].Event.Sequence)
	}
	if len(missing) > 0 {
		w.violation("partition %s: %s moves the checkpoint from %v to %v, past %d events that are gone and not done, although it has read others", lease.Partition, p.name, from, to, len(missing))
	}
}

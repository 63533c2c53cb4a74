package sim

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
)

// Bounds of the oracle of progress.
const (
	watchEvery  = 5 * time.Second
	mustReport  = time.Minute     // a stall is reported after this time at most
	mustAdvance = 2 * time.Minute // a partition moves within this time of its last trouble
)

// lane is what the world knows about the progress of one partition.
type lane struct {
	moved    time.Time // the last progress, or when there was nothing to do
	troubled time.Time // when the last trouble of the partition was over
	holder   *process  // at the last look
	heldFrom time.Time // since when the holder holds it and runs
	reported time.Time // the last observation with an error
	halted   bool      // the last report says that an operator must act
	accused  bool      // a violation of the present stall was recorded
	silence  *silence  // of its reader, if it is silent
}

// silence is a reader that returns nothing more.
type silence struct {
	process  *process
	life     int       // number of the topic's incarnation
	read     int64     // the last event before it
	answered time.Time // when the log has answered last about the end, until an answer has shown the silence
	shown    bool      // an answer says that the log has more events
}

// answered notes an answer of the log about a partition's end. One that is out of date shows
// nothing, and none shows that a reader is silent if the log has no further event.
func (p *process) answered(partition string, b driver.Bounds, outOfDate bool) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	s := p.w.laneOf(p.topic(), partition).silence
	if s == nil || s.process != p || s.shown {
		return
	}
	s.answered = time.Now()
	s.shown = !outOfDate && (b.Last.Sequence > s.read || s.life != p.w.life)
}

// laneOf returns a partition's lane. The lock is held.
func (w *world) laneOf(topic, partition string) *lane {
	name := topic + "/" + partition
	l := w.lanes[name]
	if l == nil {
		l = &lane{moved: time.Now()}
		w.lanes[name] = l
	}
	return l
}

// progressed notes that a partition has moved. Its reader may be silent all the same: what moved
// may have been read before.
func (w *world) progressed(topic, partition string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.laneOf(topic, partition)
	l.moved, l.accused = time.Now(), false
}

// trouble notes that a process, or one of its partitions, has trouble until a time. That of a
// process concerns the partitions without an owner too, which it might acquire. Without a
// process all have trouble. The lock is held.
func (w *world) trouble(p *process, partition string, until time.Time) {
	for name, l := range w.lanes {
		topic, of, _ := strings.Cut(name, "/")
		others := partition == "" && l.holder != nil && l.holder != p
		if p != nil && (topic != p.topic() || partition != "" && partition != of || others) {
			continue
		}
		if until.After(l.troubled) {
			l.troubled = until
		}
	}
}

// topic is the topic that a process reads.
func (p *process) topic() string {
	switch {
	case p.secondStage:
		return "onward"
	case p.replays:
		return replayGroup
	}
	return p.w.group.Topic
}

// Observe implements [driver.Observer]: it notes what the process reports.
func (p *process) Observe(o driver.Observation) {
	opened := o.Kind == driver.KindOpened || o.Kind == driver.KindAcquired
	if o.Err == nil && !opened {
		return
	}
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	if opened {
		p.w.laneOf(p.topic(), o.Partition).halted = false
		return
	}
	if o.Partition == "" {
		p.reported = time.Now()
		return
	}
	if o.Err != nil && strings.Contains(o.Err.Error(), "panic outside of the handler") {
		p.w.stale = append(p.w.stale, fmt.Sprintf("partition %s: %s: %v", o.Partition, p.name, o.Err))
	}
	if errors.Is(o.Err, sluice.ErrDedupFull) && !p.w.cfg.Chain.Unreported {
		p.w.fired[dedupFull]++
		p.w.forwarded.full[o.Partition] = true
	}
	p.released(o)
	p.halts(o)
	l := p.w.laneOf(p.topic(), o.Partition)
	p.reports[o.Partition] = time.Now()
	l.reported, l.halted = time.Now(), l.halted || o.Kind == driver.KindHalted
	switch stopped := o.Kind == driver.KindHalted; {
	case stopped && p.secondStage:
		p.w.halted(inSecondStage + o.Partition)
	case stopped && !p.replays:
		p.w.halted(o.Partition)
	}
}

// watch looks for partitions that have work and do not move.
func (w *world) watch() {
	w.mu.Lock()
	w.nextWatch = time.Now().Add(watchEvery)
	w.mu.Unlock()
	for _, g := range w.groups() {
		w.watchGroup(g, g.Topic)
	}
	if w.has(replays) {
		w.watchGroup(w.groupOf(replaying), replayGroup)
		w.mu.Lock()
		w.watchDiscards()
		w.mu.Unlock()
	}
}

// hasEnded reports whether a process was stopped. Its leases may be live for a while.
func (p *process) hasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// watchGroup looks at the partitions of a group, whose lanes have a name.
func (w *world) watchGroup(g sluice.Group, lanes string) {
	ctx := context.Background()
	hub := w.hub
	if g.Topic != w.group.Topic {
		hub = w.nextHub
	}
	position := map[string]int64{}
	if lanes == replayGroup {
		position = w.replayed()
	}
	list, _ := w.storeOf(g).Read(ctx, g)
	for _, c := range list {
		position[c.Partition] = c.Position.Sequence
	}
	owner := map[string]sluice.Lease{}
	leases, _ := w.leaseStore().List(ctx, g)
	for _, l := range leases {
		if l.Live() {
			owner[l.Partition] = l.Lease
		}
	}
	topic, _ := hub.Describe(ctx)
	now := time.Now()
	for _, partition := range topic.Partitions {
		end, _ := hub.Bounds(ctx, partition)
		at, ok := position[partition]
		w.mu.Lock()
		l := w.laneOf(lanes, partition)
		if lanes == replayGroup {
			end.Last.Sequence = w.endOf(partition, end)
		}
		if end.Last.Sequence < end.First || ok && at >= end.Last.Sequence {
			l.moved, l.accused = now, false
		}
		p := w.holderOf(owner[partition])
		if p != nil && (p.dead || p.hasEnded() || now.Before(p.pausedUntil)) {
			p = nil
		}
		if p != l.holder {
			l.holder, l.heldFrom = p, now
		}
		if g == w.group && w.isGone(partition) || lanes == replayGroup && w.isGone(partition) {
			w.judgeGone(l, partition, now)
			w.mu.Unlock()
			continue
		}
		w.judge(l, lanes+"/"+partition, now)
		w.mu.Unlock()
	}
}

// judge records a violation if a partition has not moved for too long, or if nobody was
// notified of it. The lock is held.
func (w *world) judge(l *lane, name string, now time.Time) {
	if l.accused {
		return
	}
	since := l.moved
	if l.troubled.After(since) {
		since = l.troubled
	}
	if still := now.Sub(since); still > mustAdvance {
		l.accused = true
		w.stale = append(w.stale, fmt.Sprintf("partition %s: has work and no trouble, and has not moved for %v", name, still.Round(time.Second)))
		w.note("partition %s does not move", name)
		return
	}
	if l.holder == nil || l.halted {
		return
	}
	since = l.moved
	if l.heldFrom.After(since) {
		since = l.heldFrom
	}
	// Only an answer of the log about its end shows that a reader is silent. If the log does not
	// answer, that is reported.
	if s := l.silence; s != nil && s.process == l.holder && s.answered.After(since) {
		since = s.answered
	}
	// A process whose acquisition had no answer holds a lease that it does not know. It ends later
	// where the store's clock was set back.
	if w.leasesLost.After(since) {
		since = w.leasesLost
	}
	if still := now.Sub(since); still > mustReport && l.reported.Before(since) && l.holder.reported.Before(since) {
		l.accused = true
		w.stale = append(w.stale, fmt.Sprintf("partition %s: %s holds it, has work and has reported nothing for %v", name, l.holder.name, still.Round(time.Second)))
		w.note("partition %s stalls without a report", name)
	}
}

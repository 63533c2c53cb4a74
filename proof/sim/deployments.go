package sim

import (
	"time"

	"github.com/sluice-go/sluice"
)

// settings are what a deployment sets for the processes of the first stage that it starts.
type settings struct {
	transactional bool // the effects are written with the checkpoint, in a world that delivers at least once
	maxBatch      int
	stream        *streaming // of an at-least-once delivery
	others        sluice.Partitions
}

// firstSettings are those that the world begins with.
func (w *world) firstSettings() settings {
	s := settings{maxBatch: w.cfg.MaxBatch, stream: w.cfg.Stream, others: w.cfg.Want}
	if w.has(deployments) && w.cfg.Stream != nil {
		s.transactional = w.rng.IntN(2) == 0
	}
	return s
}

// settingsOf returns the settings for a process. A transactional one has no streaming.
func (w *world) settingsOf(of role) settings {
	w.mu.Lock()
	defer w.mu.Unlock()
	if of != ofFirstStage {
		return settings{maxBatch: w.cfg.MaxBatch}
	}
	s := w.settings
	if s.transactional {
		s.stream = nil
	}
	return s
}

// deploy changes the settings, and stops some of the processes. The others keep the earlier
// ones until they end for another reason, as in a deployment that stands half-way.
func (w *world) deploy() {
	w.mu.Lock()
	s := &w.settings
	s.maxBatch = 1 + w.rng.IntN(12)
	if w.cfg.Want != sluice.Balanced {
		s.others = sluice.Partitions(1 + w.rng.IntN(w.cfg.Partitions))
	}
	if w.cfg.Stream != nil {
		changed := *w.cfg.Stream
		changed.Order = sluice.Ordering(w.rng.IntN(3))
		changed.Events = []int{8, 40, 1000}[w.rng.IntN(3)] * w.cfg.Partitions
		s.stream = &changed
		s.transactional = !s.transactional
	}
	var stopped []*slot
	for _, slot := range w.slots {
		if slot.role == ofFirstStage && slot.process != nil && w.rng.IntN(3) > 0 {
			stopped = append(stopped, slot)
		}
	}
	span := time.Duration(1+w.rng.IntN(30)) * time.Second
	w.note("deployment: batches of %d, %d partitions, transactional %v", s.maxBatch, s.others, s.transactional)
	w.mu.Unlock()
	w.count("deployment")
	for i, slot := range stopped {
		// At no time at which a request of the process, or another process, times out.
		w.stop(slot.process, span+time.Duration(137+i)*time.Microsecond)
		w.vacate(slot, span/10)
	}
}

// deliveredBy notes which delivery has claimed a partition. The lock is held.
func (p *process) deliveredBy(lease sluice.Lease) {
	w := p.w
	if w.cfg.Stream == nil || w.cfg.Chain != nil || p.replays {
		return
	}
	before, known := w.delivery[lease.Partition]
	now := p.stream == nil
	w.delivery[lease.Partition] = now
	switch {
	case !known || before == now:
	case now:
		w.fired["partition changes to Transactional"]++
	default:
		w.fired["partition changes to AtLeastOnce"]++
	}
}

// touch notes that an at-least-once delivery has had an event: it may have written it, or may
// store its dead letter late, when a transactional one has handled it again.
func (w *world) touch(id eventID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.touched[id] = true
}

package sim

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/sluice-go/sluice"
)

// When the partitions are balanced, the memberships of killed processes still
// expire (within expiry), which may move a partition. Afterwards (for rest) none may
// move.
const (
	expiry = 45 * time.Second
	rest   = 30 * time.Second
)

// holders returns the owner of each partition that has one.
func (w *world) holders() map[string]string {
	list, _ := w.leaseStore().List(context.Background(), w.group)
	holders := map[string]string{}
	for _, l := range list {
		if l.Live() && !l.Member() {
			holders[l.Partition] = l.Owner
		}
	}
	return holders
}

// fixNumber has the first process of a balanced group take a fixed number of partitions, or
// all that are free.
func (w *world) fixNumber() {
	s := w.slots[0]
	s.fixed, s.most = true, sluice.Partitions(w.rng.IntN(w.cfg.Partitions))
}

// want is how many partitions a process in a slot takes; nil stands for a command.
func (w *world) want(s *slot) sluice.Partitions {
	if s != nil && s.fixed {
		w.count("process with a fixed number of partitions")
		return s.most
	}
	if w.has(deployments) && w.cfg.Want != sluice.Balanced && s != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		if s.n > 0 {
			return w.settings.others
		}
		return sluice.AllPartitions // what the others leave
	}
	return w.cfg.Want
}

// balanced reports whether all partitions are held, none by too many, and the balanced
// processes' numbers of partitions differ by one at most. Worlds without balancing always are.
func (w *world) balanced() bool {
	if w.cfg.Want != sluice.Balanced {
		return true
	}
	count := map[string]int{}
	for _, owner := range w.holders() {
		count[owner]++
	}
	var shares []int
	total := 0
	for _, s := range w.slots {
		if s.role == replaying {
			continue
		}
		if s.process == nil {
			return false
		}
		n := count[s.process.name]
		total += n
		switch {
		case !s.fixed:
			shares = append(shares, n)
		case s.most > 0 && n > int(s.most):
			return false
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return total == w.present() && slices.Max(shares)-slices.Min(shares) <= 1
}

// checkBalance checks that a world that has settled is balanced, and stays so.
func (w *world) checkBalance() []string {
	if w.cfg.Want != sluice.Balanced {
		return nil
	}
	began := time.Now()
	w.drive(began.Add(expiry))
	for n := 0; n < 5 && w.operates(began); n++ { // the owner of such a partition gives it up
		began = time.Now()
		w.drive(began.Add(expiry))
	}
	before := w.holders()
	if !w.balanced() {
		return []string{fmt.Sprintf("partitions are not balanced: %v", before)}
	}
	w.drive(time.Now().Add(rest))
	if after := w.holders(); !maps.Equal(before, after) {
		return []string{fmt.Sprintf("partitions moved although no process was started or stopped: from %v to %v", before, after)}
	}
	return nil
}

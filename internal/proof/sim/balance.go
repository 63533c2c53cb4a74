package sim

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/sluice-go/sluice"
)

// Once all are shared out, the seats of those who were killed expire, which may
// move a partition more; after that nothing may.
const (
	expiry = 45 * time.Second
	rest   = 30 * time.Second
)

// holders tells who holds each partition that somebody holds.
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

// balanced tells whether all partitions are held and the shares of those who
// balance them differ by one at most. Of others nothing is asked.
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
		if s.process == nil {
			return false
		}
		shares = append(shares, count[s.process.name])
		total += count[s.process.name]
	}
	return total == w.cfg.Partitions && slices.Max(shares)-slices.Min(shares) <= 1
}

// checkBalance sees that a world that has come to rest is even, and stays as
// it is.
func (w *world) checkBalance() []string {
	if w.cfg.Want != sluice.Balanced {
		return nil
	}
	w.drive(time.Now().Add(expiry))
	before := w.holders()
	if !w.balanced() {
		return []string{fmt.Sprintf("partitions are not shared out evenly: %v", before)}
	}
	w.drive(time.Now().Add(rest))
	if after := w.holders(); !maps.Equal(before, after) {
		return []string{fmt.Sprintf("partitions moved without a change: from %v to %v", before, after)}
	}
	return nil
}

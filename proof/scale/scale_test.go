package scale

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// measure returns what n processes of a group ask of the log and the stores without events, after
// they have shared the partitions and three leases have passed.
func measure(t *testing.T, n, partitions int, over time.Duration) (r rates) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, partitions)
		for range n {
			g.start()
		}
		g.settle(n)
		time.Sleep(90 * time.Second)
		g.counts.take(time.Second)
		const window = 10 * time.Second
		most := 0.0
		for range over / window {
			before := g.counts.bounds.Load() + g.counts.describe.Load()
			time.Sleep(window)
			most = max(most, float64(g.counts.bounds.Load()+g.counts.describe.Load()-before)/window.Seconds())
		}
		r = g.counts.take(over)
		r.MostRuntimeInfo = most
		r.Processes, r.Partitions, r.Readers = n, partitions, int(g.opened.Load())
		r.StorePerProcess, r.StorePerPartition = r.store()/float64(n), r.store()/float64(partitions)
		g.stopAll()
	})
	return r
}

func (r *rates) String() string {
	return fmt.Sprintf("%4d × %5d: store %.1f/s (%.2f a process, %.2f a partition): lists %.1f (%.0f rows), renewals %.1f (%.0f rows), redrives %.1f, commits %.1f, reads %.1f, others %.1f; log: %.1f bounds, %.2f describe, %.1f opened, %d readers",
		r.Processes, r.Partitions, r.store(), r.StorePerProcess, r.StorePerPartition, r.List, r.ListedRows, r.Renew, r.RenewedRows, r.Due, r.Commit, r.Read, r.OtherStore+r.Claim+r.Acquire, r.Bounds, r.Describe, r.Open, r.Readers)
}

package scale

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// The budgets of a group of 64 processes that share 1,024 partitions.
const (
	processes, partitions = 64, 1024

	storePerProcess   = 10.0 // requests a second to the stores when idle
	storePerPartition = 2.0
	runtimeInfo       = 10.0 // management requests a second of the whole group
	renewalsAndLists  = 1.0  // a second, of each process
)

// TestBudgets: an idle group of 64 processes and 1,024 partitions asks no more of its stores and of
// the log than it may, in any ten seconds.
func TestBudgets(t *testing.T) {
	r := measure(t, processes, partitions, 3*time.Minute)
	t.Log(&r)
	t.Logf("%.1f management requests a second in the busiest ten seconds", r.MostRuntimeInfo)
	if r.StorePerProcess > storePerProcess || r.StorePerPartition > storePerPartition {
		t.Errorf("%.2f requests to the stores a process and second, %.2f a partition: want at most %v and %v", r.StorePerProcess, r.StorePerPartition, storePerProcess, storePerPartition)
	}
	if r.RuntimeInfo > runtimeInfo || r.MostRuntimeInfo > runtimeInfo {
		t.Errorf("%.2f management requests a second, %.1f in the busiest ten seconds: want at most %v", r.RuntimeInfo, r.MostRuntimeInfo, runtimeInfo)
	}
	if each := (r.List + r.Renew) / processes; each > renewalsAndLists {
		t.Errorf("%.2f listings and renewals a process and second, want at most %v", each, renewalsAndLists)
	}
	if r.Readers != partitions {
		t.Errorf("%d readers are open, want one for each of %d partitions", r.Readers, partitions)
	}
}

// TestTakeover: after one of 64 processes is killed, the others hold all of its partitions 5 s
// after its leases, of 30 s, have ended at the latest.
func TestTakeover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, partitions)
		var mu sync.Mutex
		var killed time.Time
		var taken int          // since then
		var last time.Duration // when the last one was taken
		g.taken = func(string) {
			mu.Lock()
			defer mu.Unlock()
			taken, last = taken+1, time.Since(killed)
		}
		for range processes {
			g.start()
		}
		g.settle(processes)
		for _, after := range []time.Duration{41 * time.Second, 47 * time.Second} {
			time.Sleep(after) // at another age of the leases
			victim := g.alive[0]
			g.alive = g.alive[1:]
			lost := 0
			for _, owner := range g.holders() {
				if owner == victim.name {
					lost++
				}
			}
			mu.Lock()
			killed, taken = time.Now(), 0
			mu.Unlock()
			victim.kill()
			time.Sleep(35 * time.Second)
			synctest.Wait()
			mu.Lock()
			if n := len(g.holders()); n != partitions || taken < lost || lost < partitions/processes {
				t.Errorf("35 s after a kill %d of %d partitions are held; %d were lost and %d taken", n, partitions, lost, taken)
			}
			t.Logf("%d partitions of a process that was killed: the last one taken after %.1f s", lost, last.Seconds())
			mu.Unlock()
			g.start()
			g.settle(processes)
		}
		g.stopAll()
	})
}

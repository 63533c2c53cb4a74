package scale

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicetest"
)

// TestRollingRestart: all processes of a group are stopped and replaced, one after the other, while
// each partition gets an event a second. It prints how late events were handled and how often
// partitions were taken. No event is handled twice, and none is lost.
func TestRollingRestart(t *testing.T) {
	n, partitions := 16, 256
	if full() {
		n, partitions = processes, 1024
	}
	for name, wanted := range map[string]sluice.Partitions{"balanced": sluice.Balanced, "fixed": sluice.Partitions(partitions / n)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGroup(t, partitions)
				g.wanted = wanted
				var mu sync.Mutex
				var late []time.Duration
				takings := map[string]int{}
				g.late = func(age time.Duration) {
					mu.Lock()
					defer mu.Unlock()
					late = append(late, age)
				}
				g.taken = func(partition string) {
					mu.Lock()
					defer mu.Unlock()
					takings[partition]++
				}
				for range n {
					g.start()
				}
				g.settle(n)
				mu.Lock()
				clear(takings)
				mu.Unlock()
				sent := 0
				send := func(seconds int) {
					for range seconds {
						for i := range partitions {
							g.hub.Append(fmt.Sprint(i), sluicetest.Bodies("event")...)
							sent++
						}
						time.Sleep(time.Second)
					}
				}
				// As a deployment does it: one process after the other, a new one every 10 s, which
				// starts 3 s after the one before it has stopped.
				for range n {
					old := g.alive[0]
					g.alive = g.alive[1:]
					if err := old.Stop(t.Context()); err != nil {
						t.Error(err)
					}
					old.end()
					<-old.ended
					send(3)
					g.start()
					send(7)
				}
				send(60)
				g.settle(n)
				rows := g.store.Rows("rows")
				once := map[any]bool{}
				for _, row := range rows {
					once[row] = true
				}
				if len(rows) != sent || len(once) != sent {
					t.Errorf("%d events were sent, %d handled, %d of them different", sent, len(rows), len(once))
				}
				slices.Sort(late)
				most, all := 0, 0
				for _, k := range takings {
					most, all = max(most, k), all+k
				}
				t.Logf("%d processes, %d partitions, %s: %d events, none twice; late by p50 %v, p99 %v, p99.9 %v, at most %v; %.2f takings of a partition, at most %d",
					n, partitions, name, sent, late[len(late)/2].Round(time.Millisecond), late[len(late)*99/100].Round(time.Millisecond), late[len(late)*999/1000].Round(time.Millisecond), late[len(late)-1].Round(time.Millisecond), float64(all)/float64(partitions), most)
				if p99, bound := late[len(late)*99/100], 5*time.Second; p99 > bound {
					t.Errorf("events are late by %v (p99), want at most %v", p99, bound)
				}
				if all > 2*partitions {
					t.Errorf("%d takings of %d partitions", all, partitions)
				}
				g.stopAll()
			})
		})
	}
}

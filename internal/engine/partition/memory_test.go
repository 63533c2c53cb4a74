package partition_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine/enginetest"
	"github.com/sluice-go/sluice/sluicetest"
)

// What the partitions of a process may hold without asking is compared with its budget.
func TestFloorsAboveTheBudget(t *testing.T) {
	for partitions, want := range map[int]int{12: 0, 40: 1} { // of 1.25 MiB each
		stage(t, partitions, func(s *scene) {
			_, stop := s.Run(s.Hub, sluice.Transactional(s.Store, sluice.Each(enginetest.Insert)), sluice.Config{Memory: sluice.NewMemory(16 << 20), AssignBurst: 10})
			time.Sleep(2 * time.Minute)
			stop()
			failed := s.Errors(driver.KindFailed)
			if len(failed) != want || want > 0 && !strings.Contains(failed[0], "more than its memory budget of 16 MiB: raise the budget (Config.Memory, memory_limit), or run more processes") {
				s.T.Errorf("%d partitions: reported %q", partitions, failed)
			}
		})
	}
}

// dueLimits is a store that notes how many dead letters are asked for, and what is charged then.
type dueLimits struct {
	*sluicetest.Store
	memory *sluice.Memory
	mu     sync.Mutex
	most   int
	least  int64 // charged, while so many are asked for
}

func (d *dueLimits) Due(ctx context.Context, g sluice.Group, partition string, limit int) ([]sluice.DeadLetter, error) {
	used, _ := d.memory.Charged()
	d.mu.Lock()
	d.most = max(d.most, limit)
	if need := int64(limit) * (256 << 10); used < need {
		d.least = max(d.least, need-used)
	}
	d.mu.Unlock()
	return d.Store.Due(ctx, g, partition, limit)
}

// The bodies of dead letters that are redriven are charged before they are looked up, and there are
// fewer at a time where there is less memory.
func TestRedrivenBodiesAreCharged(t *testing.T) {
	for _, name := range stored {
		for memory, most := range map[int64]int{16 << 20: 25, 128 << 20: 100} {
			t.Run(name, func(t *testing.T) {
				stage(t, 1, func(s *scene) {
					store := &dueLimits{Store: s.Store, memory: sluice.NewMemory(memory)}
					body := strings.Repeat("x", 200<<10)
					for range 150 {
						s.Send("0", body)
					}
					var bad, peak sync.Map
					bad.Store("bad", true)
					handle := func() error {
						used, _ := store.memory.Charged()
						if before, _ := peak.LoadOrStore("used", used); before.(int64) < used {
							peak.Store("used", used)
						}
						if _, is := bad.Load("bad"); is {
							return driver.Reject(context.Canceled)
						}
						return nil
					}
					deliver := func() sluice.Delivery {
						switch name {
						case transactional:
							return sluice.Transactional(store, sluice.Each(func(context.Context, *sluicetest.Tx, *sluice.Event) error { return handle() }))
						case inBatches:
							return sluice.Batches(store, func(context.Context, sluice.Batch) error { return handle() }, nil)
						}
						records := func(_ context.Context, e *sluice.Event) ([]*sluice.Event, error) {
							return []*sluice.Event{e}, handle()
						}
						return sluice.AtLeastOnce(store, records, enginetest.NewWarehouse(s.T), nil)
					}
					_, stop := s.Run(s.Hub, deliver(), sluice.Config{Memory: store.memory})
					time.Sleep(time.Minute)
					if n := len(s.Letters()); n != 150 {
						s.T.Fatalf("%d dead letters", n)
					}
					bad.Delete("bad")
					peak.Clear()
					s.RedriveAll()
					time.Sleep(5 * time.Minute)
					if n := len(s.Letters()); n != 0 {
						s.T.Errorf("%d dead letters are left", n)
					}
					if store.least > 0 || store.most != most {
						s.T.Errorf("up to %d were looked up, for which up to %d bytes were not charged", store.most, store.least)
					}
					if used, _ := peak.Load("used"); used == nil || used.(int64) < 4*200<<10 {
						s.T.Errorf("%v bytes were charged while they were redriven", used)
					}
					stop()
					if used, _ := store.memory.Charged(); used != 0 {
						s.T.Errorf("%d bytes are charged at the end", used)
					}
				})
			})
		}
	}
}

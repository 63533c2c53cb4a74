package scale

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

// What an idle partition may take of a process, with its part of the hub and of the stores in
// memory.
const (
	goroutinesEach = 8
	bytesEach      = 64 << 10
)

// TestIdleMemory counts the memory and the goroutines of a process with 1,024 partitions without
// events. It counts again, up to three times, if that is too much: new stacks are as large as the
// last garbage collection found others to be on average, whatever their goroutines need.
func TestIdleMemory(t *testing.T) {
	var least idle
	for i := range 3 {
		if now := measureIdle(t); i == 0 || now.heap+now.stacks < least.heap+least.stacks {
			least = now
		}
		if least.heap+least.stacks <= bytesEach {
			break
		}
	}
	if least.heap+least.stacks > bytesEach || least.goroutines > goroutinesEach {
		t.Errorf("want at most %d bytes and %d goroutines", bytesEach, goroutinesEach)
	}
	if least.goroutines < 1 || least.heap == 0 {
		t.Error("nothing was counted")
	}
}

// idle is what an idle partition takes.
type idle struct {
	heap, stacks uint64
	goroutines   float64
}

func measureIdle(t *testing.T) (each idle) {
	synctest.Test(t, func(t *testing.T) {
		look := func() (bytes, stacks uint64, goroutines int) {
			var m runtime.MemStats
			runtime.GC()
			runtime.GC()
			runtime.ReadMemStats(&m)
			return m.HeapAlloc, m.StackInuse, runtime.NumGoroutine()
		}
		g := newGroup(t, partitions)
		heap0, stacks0, goroutines0 := look()
		g.start()
		g.settle(1)
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		heap, stacks, goroutines := look()
		share := func(now, before uint64) uint64 { return (max(now, before) - before) / partitions }
		each = idle{share(heap, heap0), share(stacks, stacks0), float64(goroutines-goroutines0) / partitions}
		t.Logf("an idle partition: %d bytes on the heap, %d bytes of stacks, %.2f goroutines", each.heap, each.stacks, each.goroutines)
		g.stopAll()
	})
	return each
}

package scale

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

// What an idle partition may take of a process, with its part of the hub and of the stores in memory.
const (
	goroutinesEach = 8
	bytesEach      = 64 << 10
)

// TestIdleMemory counts the memory and the goroutines of a process with 1,024 partitions without events.
func TestIdleMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		look := func() (bytes, stacks uint64, goroutines int) {
			var m runtime.MemStats
			runtime.GC()
			runtime.GC()
			runtime.ReadMemStats(&m)
			return m.HeapAlloc, m.StackInuse, runtime.NumGoroutine()
		}
		g := newGroup(t, partitions)
		heap0, stack0, goroutines0 := look()
		g.start()
		g.settle(1)
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		heap, stack, goroutines := look()
		each := func(now, before uint64) uint64 { return (max(now, before) - before) / partitions }
		perHeap, perStack := each(heap, heap0), each(stack, stack0)
		n := float64(goroutines-goroutines0) / partitions
		t.Logf("an idle partition: %d bytes on the heap, %d bytes of stacks, %.2f goroutines", perHeap, perStack, n)
		if perHeap+perStack > bytesEach || n > goroutinesEach {
			t.Errorf("want at most %d bytes and %d goroutines", bytesEach, goroutinesEach)
		}
		if n < 1 || perHeap == 0 {
			t.Error("nothing was counted")
		}
		g.stopAll()
	})
}

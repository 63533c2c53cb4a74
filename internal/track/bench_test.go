package track

import (
	"runtime"
	"strconv"
	"sync"
	"testing"
)

// BenchmarkComplete is what an event costs in all: its arrival, its completion
// by one of eight goroutines, and its part of the frontier's way, in time that
// passes on the wall. Answers come in batches, as a bulk write's do: far apart
// in the list, and not in order.
func BenchmarkComplete(b *testing.B) {
	for _, size := range []int{1_000, 320_000} {
		b.Run(strconv.Itoa(size), func(b *testing.B) { benchmarkComplete(b, size) })
	}
}

func benchmarkComplete(b *testing.B, size int) {
	const workers, batch = 8, 100
	l := New[[2]uint64](size)
	work := make(chan uint64, max(size/batch, 1))
	var done sync.WaitGroup
	for range workers {
		done.Go(func() {
			for first := range work {
				for i := range uint64(batch) {
					l.Done(first + i*37%batch)
				}
			}
		})
	}
	b.ReportAllocs()
	arrived := uint64(0)
	for b.Loop() { // one event
		for {
			if _, ok := l.Arrive([2]uint64{arrived}); ok {
				break
			}
			runtime.Gosched()
		}
		if arrived++; arrived%batch == 0 {
			work <- arrived - batch
			l.Low()
		}
	}
	for rest := arrived % batch; rest > 0; rest-- {
		l.Done(arrived - rest)
	}
	close(work)
	done.Wait()
	if _, n := l.Low(); n != arrived {
		b.Fatalf("%d of %d are complete", n, arrived)
	}
}

// BenchmarkContended is the worst that completing can meet: eight goroutines
// that complete every eighth arrival, all in the same word.
func BenchmarkContended(b *testing.B) {
	const workers = 8
	l := New[uint64](b.N + 1)
	for i := range b.N {
		l.Arrive(uint64(i))
	}
	b.ResetTimer()
	var done sync.WaitGroup
	for w := range uint64(workers) {
		done.Go(func() {
			for slot := w; slot < uint64(b.N); slot += workers {
				l.Done(slot)
			}
		})
	}
	done.Wait()
	if _, n := l.Low(); n != uint64(b.N) {
		b.Fatalf("%d of %d are complete", n, b.N)
	}
}

package worklist

import (
	"runtime"
	"sync"
	"testing"
)

const workers = 8

// BenchmarkComplete is eight goroutines completing what has arrived, and the
// frontier's way over it. They work as bulk writes are answered: a hundred
// events at a time, not in order.
func BenchmarkComplete(b *testing.B) {
	benchmarkDone(b, func(w int, done func(slot uint64)) {
		const batch = 100
		for first := uint64(w * batch); first < uint64(b.N); first += workers * batch {
			for i := range uint64(batch) {
				if slot := first + i*37%batch; slot < uint64(b.N) {
					done(slot)
				}
			}
		}
	})
}

// BenchmarkContended is the worst that completing can meet: each of the eight
// completes every eighth arrival, so that they share every word.
func BenchmarkContended(b *testing.B) {
	benchmarkDone(b, func(w int, done func(slot uint64)) {
		for slot := uint64(w); slot < uint64(b.N); slot += workers {
			done(slot)
		}
	})
}

func benchmarkDone(b *testing.B, work func(w int, done func(slot uint64))) {
	l := New[[2]uint64](b.N)
	for i := range b.N {
		l.Arrive([2]uint64{uint64(i)})
	}
	runtime.GC()
	b.ReportAllocs()
	b.ResetTimer()
	var done sync.WaitGroup
	for w := range workers {
		done.Go(func() { work(w, l.Done) })
	}
	done.Wait()
	if _, n := l.Low(); n != uint64(b.N) {
		b.Fatalf("%d of %d are complete", n, b.N)
	}
}

// BenchmarkEvent is an event's whole way, with the owner adding and asking for
// the frontier while eight goroutines complete, in time that passes on the wall.
func BenchmarkEvent(b *testing.B) {
	const size, batch = 320_000, 100
	l := New[[2]uint64](size)
	work := make(chan uint64, size/batch)
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
	b.ResetTimer()
	events := (b.N + batch - 1) / batch * batch
	for arrived := uint64(0); arrived < uint64(events); {
		if _, ok := l.Arrive([2]uint64{arrived}); !ok {
			runtime.Gosched()
			continue
		}
		if arrived++; arrived%batch == 0 {
			work <- arrived - batch
			l.Low()
		}
	}
	close(work)
	done.Wait()
	if _, n := l.Low(); n != uint64(events) {
		b.Fatalf("%d of %d are complete", n, events)
	}
}

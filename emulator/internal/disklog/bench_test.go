package disklog

import (
	"context"
	"fmt"
	"math"
	"sync"
	"testing"
)

func benchmarkBatch(n, size int) []Message {
	batch := make([]Message, n)
	for i := range batch {
		batch[i] = Message{Key: fmt.Sprintf("aircraft-%d", i), Payload: make([]byte, size)}
		for j := range batch[i].Payload {
			batch[i].Payload[j] = byte(i * j)
		}
	}
	return batch
}

func openBench(b *testing.B, dir string) *Log {
	b.Helper()
	l, err := Open(dir, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := l.Close(); err != nil {
			b.Error(err)
		}
	})
	return l
}

// BenchmarkAppend appends batches of 100 events of 1 KB, each Append durable.
func BenchmarkAppend(b *testing.B) {
	for _, appenders := range []int{1, 8, 32} {
		b.Run(fmt.Sprintf("appenders=%d", appenders), func(b *testing.B) {
			l := openBench(b, b.TempDir())
			batch := benchmarkBatch(100, 1000)
			b.ReportAllocs()
			b.SetBytes(100 * 1000)
			b.ResetTimer()
			var wg sync.WaitGroup
			for a := range appenders {
				wg.Go(func() {
					for i := a; i < b.N; i += appenders {
						if _, err := l.Append(context.Background(), batch); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)*100/b.Elapsed().Seconds(), "events/s")
		})
	}
}

// BenchmarkRead reads 256 MB of events of 1 KB in order, over and over.
func BenchmarkRead(b *testing.B) {
	l := openBench(b, b.TempDir())
	for range 256 {
		if _, err := l.Append(context.Background(), benchmarkBatch(1000, 1000)); err != nil {
			b.Fatal(err)
		}
	}
	for _, events := range []int{1, 10, 300, 1000} {
		for _, again := range []bool{false, true} { // whether memory is used again
			b.Run(fmt.Sprintf("events=%d/again=%v", events, again), func(b *testing.B) {
				b.ReportAllocs()
				b.SetBytes(1000)
				var batch Batch
				var err error
				next := int64(0)
				for i := 0; i < b.N; i += len(batch.Events) {
					if again {
						err = l.ReadInto(&batch, next, events, math.MaxInt)
					} else {
						batch.Events, err = l.Read(next, events, math.MaxInt, batch.Events[:0])
					}
					if err != nil {
						b.Fatal(err)
					}
					next += int64(len(batch.Events))
					if next == l.Info().Last+1 {
						next = 0
					}
				}
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
			})
		}
	}
}

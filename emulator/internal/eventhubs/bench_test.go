package eventhubs

import (
	"context"
	"fmt"
	"sync"
	"testing"
)

// BenchmarkAppend appends with 8 goroutines to 1 or 8 partitions, each with its own
// log, in batches of 1 and 100 events of 1 KB.
func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{1, 100} {
		for _, partitions := range []int{1, 8} {
			b.Run(fmt.Sprintf("batch=%d/partitions=%d", size, partitions), func(b *testing.B) {
				broker, err := Open(b.TempDir(), []Config{{Name: "h", Partitions: partitions}}, nil)
				if err != nil {
					b.Fatal(err)
				}
				defer broker.Close()
				h, _ := broker.Hub("h")
				batch := make([]Message, size)
				for i := range batch {
					batch[i] = Message{Key: "key", Payload: make([]byte, 1000)}
				}
				b.ReportAllocs()
				b.ResetTimer()
				var wg sync.WaitGroup
				for a := range 8 {
					wg.Go(func() {
						p := h.partitions[a%partitions]
						for i := a; i < b.N; i += 8 {
							if _, err := p.Append(context.Background(), batch); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
				b.ReportMetric(float64(b.N*size)/b.Elapsed().Seconds(), "events/s")
			})
		}
	}
}

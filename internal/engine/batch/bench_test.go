package batch_test

import (
	"fmt"
	"testing"

	"github.com/sluice-go/sluice/internal/engine/enginetest"
	"github.com/sluice-go/sluice/sluicetest"
)

// BenchmarkEngine is the engine's own cost per event: a log and a database in
// memory that do next to nothing.
func BenchmarkEngine(b *testing.B) {
	for _, partitions := range []int{1, 4} {
		for _, batch := range []int{100, 1000} {
			b.Run(fmt.Sprintf("partitions=%d/batch=%d", partitions, batch), func(b *testing.B) {
				b.ReportAllocs()
				enginetest.MeasureConsumer(b, &enginetest.EndlessLog{Partitions: partitions}, &sluicetest.Store{}, batch)
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
			})
		}
	}
}

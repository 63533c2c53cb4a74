package limiter

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice/internal/clock"
)

// hurried is the system's clock a thousand times as fast: what is measured is
// the limiter, not its rate.
type hurried struct{ clock.System }

func (c hurried) Elapsed() time.Duration { return c.System.Elapsed() * 1000 }

func (c hurried) Sleep(ctx context.Context, d time.Duration) error {
	return c.System.Sleep(ctx, d/1000)
}

// BenchmarkWait is what a call costs, and a grant, when nobody has to wait.
func BenchmarkWait(b *testing.B) {
	for _, callers := range []int{1, 64} {
		for _, most := range []int{1, 100} {
			b.Run(fmt.Sprintf("callers=%d/most=%d", callers, most), func(b *testing.B) {
				l := mustNew(b, MaxRate, hurried{clock.New()})
				b.ReportAllocs()
				var done sync.WaitGroup
				grants := make([]int, callers)
				for i := range callers {
					done.Go(func() {
						for range b.N / callers {
							n, _ := l.Wait(b.Context(), most)
							grants[i] += n
						}
					})
				}
				done.Wait()
				sum := 0
				for _, n := range grants {
					sum += n
				}
				b.ReportMetric(float64(b.Elapsed())/float64(max(sum, 1)), "ns/grant")
			})
		}
	}
}

// BenchmarkReserve is what a request costs: its reservation and its settlement.
func BenchmarkReserve(b *testing.B) {
	budget := mustBudget(b, 10_000_000, hurried{clock.New()})
	b.ReportAllocs()
	for b.Loop() {
		budget.Reserve(b.Context(), 100)
		budget.Settle(100, 101)
	}
}

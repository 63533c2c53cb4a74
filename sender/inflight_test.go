package sender_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/sluice-go/sluice/sender"
)

// stuckHub answers once it is told to.
type stuckHub struct {
	blindHub
	answer chan struct{}
}

func (h *stuckHub) Send(ctx context.Context, partition string, messages []sender.Message) (sender.Outcome, error) {
	<-h.answer
	return h.blindHub.Send(ctx, partition, messages)
}

// TestInFlight has a service not answer, and a sequence without end: no more is
// drawn than the batches on their way and those that fill.
func TestInFlight(t *testing.T) {
	for name, c := range map[string]struct {
		cfg     sender.Config
		keys    int64
		batches int64 // four partitions fill one each, one more has begun
	}{
		"keys":         {sender.Config{}, 100, 4 + 4 + 1},
		"few":          {sender.Config{InFlight: 2}, 100, 2 + 4 + 1},
		"without keys": {sender.Config{}, 0, 4 + 1 + 1},
		"ordered":      {sender.Config{Ordered: true}, 0, 1 + 1 + 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const limit, size = 50_000, 1000
				h := &stuckHub{blindHub: blindHub{limit: 1 << 20}, answer: make(chan struct{})}
				e, err := sender.NewEstimator(h, &sender.EstimatorConfig{Limit: limit})
				if err != nil {
					t.Fatal(err)
				}
				endless := traffic{keys: c.keys, size: fixed(size)}
				ctx, cancel := context.WithCancel(t.Context())
				drawn := int64(0)
				done := make(chan sender.Report)
				go func() {
					report, err := sender.New(e, &c.cfg).SendAll(ctx, func(yield func(sender.Message) bool) {
						for yield(endless.message(drawn)) {
							drawn++
						}
					})
					if err == nil {
						t.Error("no error after cancelling")
					}
					done <- report
				}()
				synctest.Wait()
				if most := c.batches * limit / size; drawn > most || drawn < limit/size {
					t.Errorf("%d messages were drawn, at most %d may be", drawn, most)
				}
				cancel()
				close(h.answer)
				agree(t, <-done, h.inventory(t, endless))
			})
		})
	}
}

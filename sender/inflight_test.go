package sender_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/sluice-go/sluice/sender"
)

// blockedHub answers once its channel is closed.
type blockedHub struct {
	sizeUnawareHub
	answer chan struct{}
}

func (h *blockedHub) Send(ctx context.Context, partition string, messages []sender.Message) (sender.Outcome, error) {
	<-h.answer
	return h.sizeUnawareHub.Send(ctx, partition, messages)
}

// TestInFlight has a service that doesn't answer and an endless sequence: SendAll
// takes no more messages than fit into the batches in flight and those that are
// filling.
func TestInFlight(t *testing.T) {
	for name, c := range map[string]struct {
		cfg     sender.Config
		keys    int64
		batches int64 // in flight, one that fills for each of four partitions, and one that was just begun
	}{
		"keys":         {sender.Config{}, 100, 4 + 4 + 1},
		"few":          {sender.Config{InFlight: 2}, 100, 2 + 4 + 1},
		"without keys": {sender.Config{}, 0, 4 + 1 + 1},
		"ordered":      {sender.Config{Ordered: true}, 0, 1 + 1 + 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const limit, size = 50_000, 1000
				h := &blockedHub{sizeUnawareHub: sizeUnawareHub{limit: 1 << 20}, answer: make(chan struct{})}
				e, err := sender.NewEstimator(h, &sender.EstimatorConfig{Limit: limit})
				if err != nil {
					t.Fatal(err)
				}
				endless := traffic{keys: c.keys, size: fixed(size)}
				ctx, cancel := context.WithCancel(t.Context())
				taken := int64(0)
				done := make(chan sender.Report)
				go func() {
					report, err := sender.New(e, &c.cfg).SendAll(ctx, func(yield func(sender.Message) bool) {
						for yield(endless.message(taken)) {
							taken++
						}
					})
					if err == nil {
						t.Error("no error after cancelling")
					}
					done <- report
				}()
				synctest.Wait()
				if most := c.batches * limit / size; taken > most || taken < limit/size {
					t.Errorf("%d messages were taken, at most %d may be", taken, most)
				}
				cancel()
				close(h.answer)
				checkReport(t, <-done, h.inventory(t, endless))
			})
		})
	}
}

package autoscale_test

import (
	"context"
	"testing"
	"time"

	"github.com/sluice-go/sluice/autoscale"
	"github.com/sluice-go/sluice/sluicetest"
)

func TestMemoryStore(t *testing.T) {
	sluicetest.TestAutoscaleStore(t, func(testing.TB) autoscale.Store { return autoscale.NewMemoryStore() })
}

func TestMemoryQueue(t *testing.T) {
	sluicetest.TestAutoscaleQueue(t, func(_ testing.TB, lock time.Duration) sluicetest.AutoscaleQueue {
		q := autoscale.NewMemoryQueue(lock)
		return sluicetest.AutoscaleQueue{Queue: q, Aside: func(context.Context) ([]autoscale.Aside, error) { return q.Aside(), nil }}
	})
}

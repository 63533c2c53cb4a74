package autoscale_test

import (
	"context"
	"testing"
	"time"

	"github.com/sluice-go/sluice/autoscale"
	"github.com/sluice-go/sluice/autoscale/autoscaletest"
)

func TestMemoryStore(t *testing.T) {
	autoscaletest.TestStore(t, func(testing.TB) autoscale.Store { return autoscale.NewMemoryStore() })
}

func TestMemoryQueue(t *testing.T) {
	autoscaletest.TestQueue(t, func(_ testing.TB, lock time.Duration) autoscaletest.Queue {
		q := autoscale.NewMemoryQueue(lock)
		return autoscaletest.Queue{Queue: q, DeadLetters: func(context.Context) ([]autoscale.DeadLetter, error) { return q.DeadLetters(), nil }}
	})
}

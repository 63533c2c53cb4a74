package autoscale_test

import (
	"context"
	"testing"
	"time"

	"github.com/sluice-go/sluice/autoscale"
	"github.com/sluice-go/sluice/autoscale/autoscaletest"
	"github.com/sluice-go/sluice/internal/proof/need"
	"github.com/sluice-go/sluice/internal/proof/suite"
)

func TestMemoryStore(t *testing.T) {
	test := func(t *testing.T) {
		autoscaletest.TestStore(t, func(testing.TB) autoscale.Store { return autoscale.NewMemoryStore() })
	}
	t.Run("virtual", func(t *testing.T) { suite.Virtual(t, test) })
	t.Run("real", func(t *testing.T) {
		need.RealTime(t) // leases run out
		test(t)
	})
}

func TestMemoryQueue(t *testing.T) {
	autoscaletest.TestQueue(t, func(_ testing.TB, lock time.Duration) autoscaletest.Queue {
		q := autoscale.NewMemoryQueue(lock)
		return autoscaletest.Queue{Queue: q, DeadLetters: func(context.Context) ([]autoscale.DeadLetter, error) { return q.DeadLetters(), nil }}
	})
}

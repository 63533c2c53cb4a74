package sqlstore

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice/driver"
)

// inTurn spreads calls over several stores of the same leases.
type inTurn struct {
	stores []*Leases
	calls  atomic.Uint64
}

func (s *inTurn) next() *Leases { return s.stores[s.calls.Add(1)%uint64(len(s.stores))] }

func (s *inTurn) Acquire(ctx context.Context, g driver.Group, partition, owner string, ttl time.Duration, above int64) (driver.Lease, error) {
	return s.next().Acquire(ctx, g, partition, owner, ttl, above)
}

func (s *inTurn) Renew(ctx context.Context, l driver.Lease, ttl time.Duration) error {
	return s.next().Renew(ctx, l, ttl)
}

func (s *inTurn) MarkBegan(ctx context.Context, l driver.Lease, incarnation string) error {
	return s.next().MarkBegan(ctx, l, incarnation)
}

func (s *inTurn) Release(ctx context.Context, l driver.Lease) error {
	return s.next().Release(ctx, l)
}

func (s *inTurn) List(ctx context.Context, g driver.Group) ([]driver.LeaseInfo, error) {
	return s.next().List(ctx, g)
}

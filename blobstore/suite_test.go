package blobstore_test

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/sluice-go/sluice/blobstore"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/batchtest"
	"github.com/sluice-go/sluice/internal/proof/tcplink"
	"github.com/sluice-go/sluice/storetest"
)

// parallel lets the cases of a suite wait for leases side by side.
func parallel(t testing.TB) {
	if t, ok := t.(*testing.T); ok {
		t.Parallel()
	}
}

func TestLeases(t *testing.T) {
	storetest.TestLeases(t, func(t testing.TB) driver.LeaseStore {
		parallel(t)
		through, link := newPlace(t).linked(t)
		return linkedLeases{through.open(t).Leases(), link}
	}, &storetest.LeasesConfig{
		TTL: blobstore.MinLease, Long: blobstore.MaxLease,
		Silence: func(t testing.TB, store driver.LeaseStore) func() { return store.(linkedLeases).link.Silence(t) },
	})
}

// linkedLeases are leases behind a link.
type linkedLeases struct {
	*blobstore.Leases
	link *tcplink.Link
}

// features are the same whatever the leases.
var features = storetest.CheckpointFeatures{Ranges: 250}

func TestCheckpointsUnderLeases(t *testing.T) {
	storetest.TestCheckpoints(t, func(t testing.TB) storetest.CheckpointHarness {
		p := newPlace(t)
		store, peer, past := p.open(t), p.open(t), p.client(t)
		return storetest.CheckpointHarness{
			Store: store, Peer: peer, Features: features,
			Lease: func(ctx context.Context, with bool, g driver.Group, partition, owner string, above int64) (driver.Lease, error) {
				s := store
				if with {
					s = peer
				}
				l, err := s.Leases().Acquire(ctx, g, partition, owner, blobstore.MaxLease, above)
				if !errors.Is(err, driver.ErrHeld) {
					return l, err
				}
				// What the suite waits for, the end of the lease in force, would take a minute.
				if err := expire(ctx, past, "ns/flights~2Fx/$Default/partitions/"+partition); err != nil {
					return l, err
				}
				return s.Leases().Acquire(ctx, g, partition, owner, blobstore.MaxLease, above)
			},
		}
	})
}

func TestCheckpointsUnderOtherLeases(t *testing.T) {
	storetest.TestCheckpoints(t, func(t testing.TB) storetest.CheckpointHarness {
		p := newPlace(t)
		through, link := p.linked(t)
		return storetest.CheckpointHarness{Store: through.open(t), Peer: p.open(t), Features: features, Silence: link.Silence}
	})
}

func TestBatches(t *testing.T) {
	s := newPlace(t).open(t)
	batchtest.Run(t, batchtest.Stores{Store: s, Leases: s.Leases(), LeaseFor: blobstore.MinLease})
}

func TestLetters(t *testing.T) {
	storetest.TestDeadLetterQueue(t, func(t testing.TB) storetest.DeadLetterQueueHarness {
		p := newPlace(t)
		through, link := p.linked(t)
		var lose atomic.Bool
		s := through.openThrough(t, &wire{onResponse: func(r *http.Request, _ int) error {
			if r.Method != http.MethodGet && r.Method != http.MethodHead && lose.CompareAndSwap(true, false) {
				return errCut
			}
			return nil
		}}, -1)
		return storetest.DeadLetterQueueHarness{
			Store: s, DeadLetters: s, Peer: p.open(t), Silence: link.Silence,
			LoseAnswer: func(testing.TB) { lose.Store(true) },
		}
	})
}

package storetest

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/suite"
)

// CheckpointHarness is what [TestCheckpoints] works on: a store without
// checkpoints.
type CheckpointHarness struct {
	Store driver.CheckpointStore
	// Peer is another store over the same checkpoints, as another process has
	// it. Nil: Store itself.
	Peer driver.CheckpointStore

	// Lease gets the partition's lease for an owner, in an epoch above `above`
	// and above every earlier one; the lease that was live until then, if any,
	// has expired. With peer it will be used with Peer, else with Store. Nil:
	// the store does not check leases, and the suite
	// makes them up.
	Lease func(ctx context.Context, peer bool, group driver.Group, partition, owner string, above int64) (driver.Lease, error)

	// Silence makes the store's server silent. Nil leaves the case out.
	Silence Silence

	Features CheckpointFeatures
}

// CheckpointFeatures says where a store may differ from others.
type CheckpointFeatures struct {
	// Ranges is how many ranges of what is done after the position the store
	// keeps at least. 0: it need not keep any.
	Ranges int
}

func (h *CheckpointHarness) peer() driver.CheckpointStore {
	if h.Peer != nil {
		return h.Peer
	}
	return h.Store
}

// lease gets a lease of testGroup in this epoch, or in a later one if the
// leases have come further.
func (h *CheckpointHarness) lease(t testing.TB, partition, owner string, epoch int64) driver.Lease {
	t.Helper()
	return h.leaseIn(t, testGroup, partition, owner, epoch)
}

func (h *CheckpointHarness) leaseIn(t testing.TB, group driver.Group, partition, owner string, epoch int64) driver.Lease {
	t.Helper()
	if h.Lease == nil {
		return driver.Lease{Group: group, Partition: partition, Owner: owner, Epoch: epoch}
	}
	l, err := h.Lease(suite.Context(t), false, group, partition, owner, epoch-1)
	suite.NoError(t, fmt.Sprintf("lease of partition %s for %s", partition, owner), err)
	return l
}

// rivalLease gets a lease of partition 0 for b, to be used with peer.
func (h *CheckpointHarness) rivalLease(t testing.TB, epoch int64) driver.Lease {
	t.Helper()
	if h.Lease == nil {
		return leaseOf("0", "b", epoch)
	}
	l, err := h.Lease(suite.Context(t), h.Peer != nil, testGroup, "0", "b", epoch-1)
	suite.NoError(t, "lease of partition 0 for b", err)
	return l
}

// claim claims and stops the test at an error.
func (h *CheckpointHarness) claim(t testing.TB, lease driver.Lease) driver.Checkpoint {
	t.Helper()
	p, err := h.Store.Claim(suite.Context(t), lease, incarnation)
	suite.NoError(t, fmt.Sprintf("claim for %s in epoch %d", lease.Owner, lease.Epoch), err)
	return p
}

// begin claims partition 0 for a in epoch 1 and moves it to position 9.
func (h *CheckpointHarness) begin(t testing.TB) driver.Lease {
	t.Helper()
	l := h.lease(t, "0", "a", 1)
	h.claim(t, l)
	h.advance(t, l, positionAt(9))
	return l
}

func (h *CheckpointHarness) advance(t testing.TB, lease driver.Lease, to driver.Position, done ...driver.SequenceRange) {
	t.Helper()
	h.advanceOf(t, lease, incarnation, to, done...)
}

// advanceOf advances a checkpoint of an incarnation.
func (h *CheckpointHarness) advanceOf(t testing.TB, lease driver.Lease, incarnation string, to driver.Position, done ...driver.SequenceRange) {
	t.Helper()
	suite.NoError(t, fmt.Sprintf("advance to %v in epoch %d", to, lease.Epoch), h.Store.Advance(suite.Context(t), lease, incarnation, to, done))
}

// checkpoint reads a partition's checkpoint without claiming it.
func (h *CheckpointHarness) checkpoint(t testing.TB, partition string) driver.Checkpoint {
	t.Helper()
	list, err := h.Store.Read(suite.Context(t), testGroup)
	suite.NoError(t, "read", err)
	for _, p := range list {
		if p.Partition == partition {
			return p
		}
	}
	t.Fatalf("read: no checkpoint of partition %s in %v", partition, list)
	return driver.Checkpoint{}
}

// wantPosition fails the test for a checkpoint of partition 0 that is not at this position, or
// has not this done after it.
func (h *CheckpointHarness) wantPosition(t testing.TB, want driver.Position, done ...driver.SequenceRange) {
	t.Helper()
	h.wantCheckpoint(t, "read", h.checkpoint(t, "0"), want, done...)
}

// wantCheckpoint fails the test for a checkpoint that is not at this position, or has lost more of
// what is done after it than the store may.
func (h *CheckpointHarness) wantCheckpoint(t testing.TB, what string, p driver.Checkpoint, want driver.Position, done ...driver.SequenceRange) {
	t.Helper()
	if p.Position != want {
		t.Errorf("%s: checkpoint is at %+v, want %+v", what, p.Position, want)
	}
	if len(p.Done) < min(len(done), h.Features.Ranges) {
		t.Errorf("%s: %d of %d ranges that are done are kept, want at least %d", what, len(p.Done), len(done), h.Features.Ranges)
	}
	if len(p.Done) > len(done) || !slices.Equal(p.Done, done[:len(p.Done)]) {
		t.Errorf("%s: done after %v are %s, want the first of %s", what, p.Position, abbreviated(p.Done), abbreviated(done))
	}
}

// abbreviated is what an error shows of ranges.
func abbreviated(ranges []driver.SequenceRange) string {
	const most = 4
	if len(ranges) <= most {
		return fmt.Sprint(ranges)
	}
	return fmt.Sprintf("%v and %d more", ranges[:most], len(ranges)-most)
}

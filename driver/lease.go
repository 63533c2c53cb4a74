package driver

import (
	"context"
	"strings"
	"time"
)

// Lease is the right to read one partition for a consumer group, until it
// expires. Its epoch is higher than that of every lease on the partition
// before it.
type Lease struct {
	Group     Group
	Partition string
	Owner     string // the process that holds it; unique among processes
	Epoch     int64  // at least 1
}

// Member tells whether the lease is on no partition but on a seat ("~0", "~1" and
// so on), by which consumers with [Balanced] partitions know of each other.
// Seats are leased and listed like partitions.
func (l Lease) Member() bool { return strings.HasPrefix(l.Partition, MemberPrefix) }

// MemberPrefix begins the names of seats: no log has partitions of such names.
const MemberPrefix = "~"

// LeaseInfo is a lease as its store sees it.
type LeaseInfo struct {
	Lease
	// Remaining is the time until the lease expires, by the store's own clock;
	// not positive if it has expired or was released.
	Remaining time.Duration
	Renewed   time.Time // when it was taken or last renewed
}

// Live tells whether the lease keeps others away.
func (l LeaseInfo) Live() bool { return l.Remaining > 0 }

// LeaseStore keeps the leases of consumer groups. The store's clock alone
// judges expiry. Implementations are safe for concurrent use.
type LeaseStore interface {
	// Acquire takes the partition's lease if it is free, expired, or already
	// this owner's. The new epoch is above `above` and above every epoch the
	// store has handed out for the partition; it survives Release. It returns
	// an error that is [ErrHeld] while another owner's lease is live.
	Acquire(ctx context.Context, group Group, partition, owner string, ttl time.Duration, above int64) (Lease, error)
	// Renew makes the lease last ttl from now. It returns [ErrFenced] if the
	// lease is no longer this owner's in this epoch, or was released.
	Renew(ctx context.Context, lease Lease, ttl time.Duration) error
	// Release gives the lease back, so that a successor need not wait for
	// expiry. Releasing a lease that has gone to another is not an error and
	// does nothing.
	Release(ctx context.Context, lease Lease) error
	// List returns the newest lease of each partition ever leased for group,
	// live or not, sorted by partition.
	List(ctx context.Context, group Group) ([]LeaseInfo, error)
}

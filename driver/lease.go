package driver

import (
	"context"
	"strings"
	"time"
)

// Lease is the right to process one partition for a consumer group until it expires. Its epoch is
// higher than that of every earlier lease on the partition.
type Lease struct {
	Group     Group
	Partition string
	Owner     string // the process that holds it; unique among processes
	Epoch     int64  // at least 1
	// Began is the incarnation of the topic whose start was stored under this lease or an earlier
	// one on the partition: since then the partition has a checkpoint. Empty: none was.
	Began string
}

// Member reports whether the lease is a membership instead of a partition. Consumers that balance
// the partitions among them hold a lease named "~0", "~1" and so on each, by which they find each
// other. A store leases and lists these names like partitions.
func (l Lease) Member() bool { return strings.HasPrefix(l.Partition, MemberPrefix) }

// LeaseLimiter is implemented by a [LeaseStore] that does not grant leases of every length. A
// consumer with another length is refused when it is made.
type LeaseLimiter interface {
	// LeaseLimits returns the shortest and the longest lease that the store grants.
	LeaseLimits() (shortest, longest time.Duration)
}

// LeaseRenewer is implemented by a [LeaseStore] that renews several leases in one request. A
// consumer then asks once in RenewEvery for all of its partitions. Without it, and after an error,
// it renews each lease by itself.
type LeaseRenewer interface {
	// RenewAll renews leases of one group and one owner as Renew does, each partition once. It
	// returns nil if all of them are renewed. With an error, each of them may be renewed or not;
	// Renew says of each what is wrong with it. A lease that somebody has locked should fail the
	// request instead of delaying the others.
	RenewAll(ctx context.Context, leases []Lease, ttl time.Duration) error
}

// MemberPrefix begins the names of memberships. No log has partitions of such names.
const MemberPrefix = "~"

// LeaseInfo is a lease as its store sees it.
type LeaseInfo struct {
	Lease
	// Remaining is the time until the lease expires, by the store's own clock. It is zero or
	// negative if the lease has expired or was released.
	Remaining time.Duration
	Renewed   time.Time // when the lease was acquired or last renewed
}

// Live reports whether the lease keeps other owners away.
func (l LeaseInfo) Live() bool { return l.Remaining > 0 }

// LeaseStore keeps the leases of consumer groups. Only the store's clock decides whether a lease
// has expired. If that clock was set back, so that a lease was renewed in the future, the lease
// counts as renewed for the same time at the moment when Acquire or List first finds it so: the
// lease of an owner that is gone lasts no longer than it was granted for. Implementations are safe
// for concurrent use.
type LeaseStore interface {
	// Acquire takes the partition's lease if it is free, expired, or already this owner's. The new
	// epoch is higher than above and than every epoch that the store has issued for the partition,
	// also across Release. The error is an [ErrHeld] while another owner's lease is live.
	Acquire(ctx context.Context, group Group, partition, owner string, ttl time.Duration, above int64) (Lease, error)
	// Renew makes the lease expire after ttl from now. It renews an expired lease too, if no other
	// owner has taken it. The error is an [ErrFenced] if the lease is not this owner's in this
	// epoch any more, or was released.
	Renew(ctx context.Context, lease Lease, ttl time.Duration) error
	// MarkBegan records the topic's incarnation as the Began of this lease and of those that
	// follow. The error is an [ErrFenced] if the lease is not this owner's in this epoch any more.
	MarkBegan(ctx context.Context, lease Lease, incarnation string) error
	// Release ends the lease, so that the next owner need not wait until it expires. If another
	// owner or epoch holds the partition, Release does nothing and returns nil.
	Release(ctx context.Context, lease Lease) error
	// List returns the newest lease of each partition that was ever leased for the group, live or
	// not, sorted by partition.
	List(ctx context.Context, group Group) ([]LeaseInfo, error)
}

// Assignment is a partition that a consumer holds.
type Assignment struct {
	Lease Lease
	Done  int64 // all events up to this sequence number are done; -1 before the first one
	Lag   int64 // events in the log that are not done; -1 until the log was asked
}

package group

import (
	"fmt"
	"time"

	"github.com/sluice-go/sluice/driver"
)

// ownLease is what a consumer knows about a lease under its own owner name. A process
// that returns under its name takes over what it held before. But two processes under
// one name take the partitions from each other, without an error in either: each finds
// its leases lost.
type ownLease struct {
	epoch     int64         // the highest that this consumer has acquired; 0: none
	lateUntil time.Duration // an acquisition without an answer may take effect until then, by Clock.Elapsed

	// A lease that this consumer has not acquired, as it was first listed.
	listed  int64 // its epoch
	renewed time.Time
}

func (o *ownLease) acquired(epoch int64) { o.epoch = max(o.epoch, epoch) }

// unknown notes that the outcome of an acquisition is unknown.
func (o *ownLease) unknown(c *Member) { o.lateUntil = c.cfg.Clock.Elapsed() + 2*c.cfg.LeaseFor }

// isForeign reports whether a lease under the own name is another process's: it
// appeared after this consumer had the lease, or somebody renews it.
func (o *ownLease) isForeign(l *driver.LeaseInfo, now time.Duration) bool {
	if l.Epoch <= o.epoch || now < o.lateUntil {
		return false
	}
	if o.epoch > 0 {
		return true
	}
	if o.listed != l.Epoch {
		o.listed, o.renewed = l.Epoch, l.Renewed
	}
	return l.Renewed.After(o.renewed)
}

// checkOwner looks in a listing for leases that another process has acquired under
// this consumer's owner name.
func (c *Member) checkOwner(listed []driver.LeaseInfo) {
	for _, l := range listed {
		if l.Live() && l.Owner == c.cfg.Owner && c.isForeign(&l) {
			c.reportSharedOwner("lease", l.Partition, l.Epoch)
			return
		}
	}
}

func (c *Member) isForeign(l *driver.LeaseInfo) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.takeover[l.Partition]
	foreign := !c.requested[l.Partition] && t.own.isForeign(l, c.cfg.Clock.Elapsed())
	c.takeover[l.Partition] = t
	return foreign
}

// sharedOwnerEvery is how often it is reported that another process uses the owner
// name.
const sharedOwnerEvery = time.Minute

func (c *Member) reportSharedOwner(what, partition string, epoch int64) {
	now := c.cfg.Clock.Elapsed()
	c.mu.Lock()
	due := !c.ownerReported || now-c.ownerReportedAt >= sharedOwnerEvery
	if due {
		c.ownerReported, c.ownerReportedAt = true, now
	}
	c.mu.Unlock()
	if due {
		c.observe(driver.Observation{Kind: driver.KindFailed, Err: fmt.Errorf("%w %q: it has the %s of partition %s in epoch %d: give each process its own owner name, or none for a unique one",
			driver.ErrSharedOwner, c.cfg.Owner, what, partition, epoch)})
	}
}

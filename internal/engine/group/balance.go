package group

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine"
	"github.com/sluice-go/sluice/internal/engine/partition"
)

// balancer is a consumer's part in dividing a topic's partitions evenly. It runs on
// the goroutine that acquires partitions, once every AssignEvery.
//
// Each process holds a member lease beside the leases of its partitions, on the
// lowest number that is free ("~0", "~1", …). So one listing of the leases shows
// which members are alive, also those without a partition, and what each of them
// holds. All members compute the same shares from it and need not talk to each other.
// As many rows stay in the store as there were ever members at the same time.
//
// Shares follow the order of the members; the first ones get one more if the division
// leaves a rest. When a member joins no other share grows, and when one leaves no
// other share shrinks. So a change moves a partition at most once, and only to the
// member that joined or from the one that left.
//
// A member that holds more than its share hands over the partitions that it acquired
// last, as fast as the members with too few can acquire them. So a partition is read
// until another member can read it, and the oldest assignments stay.
//
// A member lease has no goroutine that renews it, as partitions have: a process that
// no longer acquires partitions stops being a member after LeaseFor.
type balancer struct {
	c        *Member
	member   driver.Lease             // this process's member lease; the zero value: none
	renewed  time.Duration            // when it was acquired or renewed, by Clock.Elapsed
	outsider map[string]time.Duration // owners of partitions that are no members: since when
}

func newBalancer(c *Member) (*balancer, error) {
	if c.cfg.AssignEvery > c.cfg.RenewEvery {
		return nil, fmt.Errorf("balanced partitions assigned every %v: must not be above the %v between renewals", c.cfg.AssignEvery, c.cfg.RenewEvery)
	}
	if c.delivery.Store() == nil {
		return nil, errors.New("balanced partitions with Replay, whose partitions must not move: state a number or AllPartitions")
	}
	return &balancer{c: c}, nil
}

// balance renews the member lease, hands over the surplus of partitions, and returns
// how many partitions the consumer has too few, zero or less if none.
func (b *balancer) balance(work context.Context, topic driver.Topic, listed []driver.LeaseInfo) (missing int, err error) {
	i := slices.IndexFunc(listed, func(l driver.LeaseInfo) bool { return l.Lease == b.member && l.Live() })
	if i < 0 {
		return -1, b.join(work, topic.Group, listed)
	}
	if err := b.renewIfDue(work); errors.Is(err, driver.ErrFenced) {
		return 0, err
	} else if err != nil {
		// The membership lasts; meanwhile the partitions are divided.
		b.c.observe(driver.Observation{Kind: driver.KindFailed, Err: err})
	}
	// The time of the listing by the store's clock, from this process's own lease.
	asOf := listed[i].Renewed.Add(b.c.cfg.LeaseFor - listed[i].Remaining)
	m := b.membership(topic, listed, asOf)
	held, draining, requested := b.c.staying()
	surplus := len(held) - m.share(b.c.cfg.Owner)
	for _, a := range held[:max(0, min(surplus, m.demand(b.c.burst(topic))-draining))] {
		a.HandOver()
	}
	return -surplus - requested, nil
}

// settled reports whether every partition has an owner, and this process neither releases nor
// requests one: then nothing is on its way from or to it.
func (b *balancer) settled(topic driver.Topic, listed []driver.LeaseInfo) bool {
	_, draining, requested := b.c.staying()
	return draining+requested == 0 && allOwned(topic, listed)
}

// maxMembers is more processes than any topic has partitions.
const maxMembers = 10_000

// join acquires a member lease: the one that this process had, if the store still has
// it (the answer to an earlier try may have been lost), else the lowest that is free.
func (b *balancer) join(work context.Context, group driver.Group, listed []driver.LeaseInfo) error {
	b.member = driver.Lease{}
	taken := map[string]bool{}
	var own []string
	for _, l := range listed {
		if l.Member() && l.Owner == b.c.cfg.Owner {
			own = append(own, l.Partition)
		} else {
			taken[l.Partition] = l.Live()
		}
	}
	for n := 0; n < maxMembers; {
		var name string
		if len(own) > 0 {
			name, own = own[0], own[1:]
		} else {
			name = fmt.Sprint(driver.MemberPrefix, n)
			n++
		}
		if taken[name] || b.c.resting(name) {
			continue
		}
		began := b.c.cfg.Clock.Elapsed()
		lease, err := b.c.acquireLease(work, group, name)
		if errors.Is(err, driver.ErrHeld) {
			continue
		}
		if err != nil {
			return fmt.Errorf("acquire member lease %s: %w", name, err)
		}
		b.member, b.renewed = lease, began
		return nil
	}
	return fmt.Errorf("acquire a member lease: all %d are held", maxMembers)
}

// renewIfDue renews the member lease when it is RenewEvery old.
func (b *balancer) renewIfDue(work context.Context) error {
	if b.c.cfg.Clock.Elapsed()-b.renewed < b.c.cfg.RenewEvery {
		return nil
	}
	ctx, cancel := context.WithTimeout(work, b.c.cfg.LeaseFor/3)
	defer cancel()
	return b.renew(ctx)
}

func (b *balancer) renew(ctx context.Context) error {
	began := b.c.cfg.Clock.Elapsed()
	if err := engine.CallDriver(func() error { return b.c.leases.Renew(ctx, b.member, b.c.cfg.LeaseFor) }); err != nil {
		return fmt.Errorf("renew member lease %s: %w", b.member.Partition, err)
	}
	b.renewed = began
	return nil
}

// leave releases the member lease. It does so before the partitions are released,
// which may take long. It renews the lease first, so that the others see the time.
func (b *balancer) leave(work context.Context) {
	if b.member == (driver.Lease{}) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(work), min(b.c.cfg.RenewEvery, 5*time.Second))
	defer cancel()
	err := b.renew(ctx)
	if rerr := engine.CallDriver(func() error { return b.c.leases.Release(ctx, b.member) }); rerr != nil {
		err = fmt.Errorf("release member lease %s: %w", b.member.Partition, rerr)
	}
	if err != nil {
		b.c.observe(driver.Observation{Kind: driver.KindFailed, Err: err})
	}
}

// membership is what one listing of the leases says about the members of a group.
type membership struct {
	members []driver.LeaseInfo // by name
	held    map[string]int     // partitions, by owner
	pool    int                // partitions that the members divide
	free    int                // of those, the ones without an owner
}

// membership reads a listing that was made at asOf by the store's clock.
//
// A member that has released its lease counts for another RenewEvery, so that a
// process which restarts gets its share back. Partitions of an owner that is no member
// are divided too for LeaseFor: that owner is about to stop, to join, or it redrives.
// After that it counts as a consumer with a fixed number, and keeps what it holds.
func (b *balancer) membership(topic driver.Topic, listed []driver.LeaseInfo, asOf time.Time) membership {
	m := membership{held: map[string]int{}}
	isMember := map[string]bool{}
	owner := map[string]string{}
	for _, l := range listed {
		switch {
		case !l.Member():
			if l.Live() {
				owner[l.Partition] = l.Owner
			}
		case (l.Live() || asOf.Sub(l.Renewed) < b.c.cfg.RenewEvery) && !isMember[l.Owner]:
			m.members = append(m.members, l)
			isMember[l.Owner] = true
		}
	}
	now := b.c.cfg.Clock.Elapsed()
	outsider := map[string]time.Duration{}
	for _, p := range topic.Partitions {
		owner := owner[p]
		if owner != "" && !isMember[owner] {
			since, known := b.outsider[owner]
			if !known {
				since = now
			}
			outsider[owner] = since
			if now-since >= b.c.cfg.LeaseFor {
				continue
			}
		}
		m.pool++
		m.held[owner]++
	}
	m.free = m.held[""]
	b.outsider = outsider
	return m
}

// share returns how many partitions a member should hold.
func (m *membership) share(owner string) int {
	rank := slices.IndexFunc(m.members, func(l driver.LeaseInfo) bool { return l.Owner == owner })
	return fairShare(m.pool, rank, len(m.members))
}

// fairShare divides the pool by the number of members. The first ones get one more if
// that leaves a rest.
func fairShare(pool, rank, of int) int { return (pool + of - 1 - rank) / of }

// demand returns how many partitions the members with too few would acquire beyond the
// free ones. Each at a time what it acquires in an attempt, and one more, which may be on
// its way meanwhile.
func (m *membership) demand(burst int) int {
	n := -m.free
	for rank, l := range m.members {
		if l.Live() {
			missing := fairShare(m.pool, rank, len(m.members)) - m.held[l.Owner]
			n += max(0, min(burst, missing-1)+1) // burst may be the largest int
		}
	}
	return n
}

// staying returns the assignments that are not being released, the newest first, how
// many are being released, and how many partitions are requested.
func (c *Member) staying() (list []*partition.Assignment, draining, requested int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range c.held {
		if !a.Leaving() {
			list = append(list, a)
		} else {
			draining++
		}
	}
	slices.SortFunc(list, func(a, b *partition.Assignment) int {
		return cmp.Or(cmp.Compare(b.AcquiredAt(), a.AcquiredAt()), cmp.Compare(a.Lease.Partition, b.Lease.Partition))
	})
	return list, draining, len(c.requested)
}

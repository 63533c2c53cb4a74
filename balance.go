package sluice

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-go/sluice/driver"
)

// balancer is a consumer's part in sharing a topic's partitions out evenly. It
// runs on the goroutine that takes partitions, once every AssignEvery.
//
// Each process holds a seat, a lease beside those of the partitions, on the
// lowest number that is free. So one listing of the leases shows who is alive,
// those without a partition too, and who holds what, and all work out the same
// shares from it; nobody asks anybody for anything. The number of rows that
// stay behind is that of the processes that ever lived at once.
//
// Shares go by the order of the seats, one more for the first ones. Where a
// seat is added no other share grows, and where one goes no other shrinks; so a
// change moves a partition once at most, and only to who came or from who went.
//
// Who holds more than its share hands over what it took last, as fast as those
// who are short can take it. So a partition is read until somebody is there to
// read on, and those that have been at home longest stay.
//
// A seat has no goroutine that keeps it, as partitions have: a process that
// has come to take none loses its say after LeaseFor.
type balancer struct {
	c       *Consumer
	seat    Lease                    // the zero value: none
	renewed time.Duration            // when the seat was taken or renewed, by Clock.Elapsed
	loose   map[string]time.Duration // who holds partitions without a seat: since when
}

func newBalancer(c *Consumer) (*balancer, error) {
	if c.cfg.AssignEvery > c.cfg.RenewEvery {
		return nil, fmt.Errorf("balanced partitions assigned every %v: must not be above the %v between renewals", c.cfg.AssignEvery, c.cfg.RenewEvery)
	}
	if _, is := c.delivery.(*replay); is {
		return nil, errors.New("balanced partitions with Replay, whose partitions must not move: state a number or AllPartitions")
	}
	return &balancer{c: c}, nil
}

// balance keeps the seat, hands over what is too much, and tells whether the
// consumer is short of partitions.
func (b *balancer) balance(work context.Context, topic Topic, listed []driver.LeaseInfo) (short bool, err error) {
	i := slices.IndexFunc(listed, func(l driver.LeaseInfo) bool { return l.Lease == b.seat && l.Live() })
	if i < 0 {
		return false, b.sit(work, topic.Group, listed)
	}
	if err := b.keep(work); err != nil {
		return false, err
	}
	// The store's clock, by our own lease.
	asOf := listed[i].Renewed.Add(b.c.cfg.LeaseFor - listed[i].Remaining)
	r := b.roster(topic, listed, asOf)
	held, draining := b.c.staying()
	surplus := len(held) - r.share(b.c.cfg.Owner)
	for _, t := range held[:max(0, min(surplus, r.wanting()-draining))] {
		t.stop()
	}
	return surplus < 0, nil
}

// maxSeats is more processes than any topic has partitions.
const maxSeats = 10_000

// sit takes a seat: the one it had, if that is still there, else the lowest
// that is free. The answer to an earlier try may have been lost.
func (b *balancer) sit(work context.Context, group Group, listed []driver.LeaseInfo) error {
	b.seat = Lease{}
	taken := map[string]bool{}
	var names []string
	for _, l := range listed {
		if l.Member() && l.Owner == b.c.cfg.Owner {
			names = append(names, l.Partition)
		} else {
			taken[l.Partition] = l.Live()
		}
	}
	ctx, cancel := context.WithTimeout(work, b.c.cfg.LeaseFor/3)
	defer cancel()
	for n := 0; n < maxSeats; {
		var name string
		if len(names) > 0 {
			name, names = names[0], names[1:]
		} else {
			name = fmt.Sprint(driver.MemberPrefix, n)
			n++
		}
		if taken[name] {
			continue
		}
		began := b.c.cfg.Clock.Elapsed()
		lease, err := b.c.leases.Acquire(ctx, group, name, b.c.cfg.Owner, b.c.cfg.LeaseFor, 0)
		if errors.Is(err, driver.ErrHeld) {
			continue
		}
		if err != nil {
			return fmt.Errorf("take seat %s: %w", name, err)
		}
		b.seat, b.renewed = lease, began
		return nil
	}
	return fmt.Errorf("take a seat: all %d are taken", maxSeats)
}

// keep renews the seat when it is RenewEvery old.
func (b *balancer) keep(work context.Context) error {
	if b.c.cfg.Clock.Elapsed()-b.renewed < b.c.cfg.RenewEvery {
		return nil
	}
	ctx, cancel := context.WithTimeout(work, b.c.cfg.LeaseFor/3)
	defer cancel()
	return b.renew(ctx)
}

func (b *balancer) renew(ctx context.Context) error {
	began := b.c.cfg.Clock.Elapsed()
	if err := b.c.leases.Renew(ctx, b.seat, b.c.cfg.LeaseFor); err != nil {
		return fmt.Errorf("renew seat %s: %w", b.seat.Partition, err)
	}
	b.renewed = began
	return nil
}

// leave gives the seat up: before the partitions, which may take their time.
// It is renewed first, so that all see when that was.
func (b *balancer) leave(work context.Context) {
	if b.seat == (Lease{}) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(work), min(b.c.cfg.RenewEvery, 5*time.Second))
	defer cancel()
	err := b.renew(ctx)
	if rerr := b.c.leases.Release(ctx, b.seat); rerr != nil {
		err = fmt.Errorf("release seat %s: %w", b.seat.Partition, rerr)
	}
	if err != nil {
		b.c.observe(Observation{Kind: KindFailed, Err: err})
	}
}

// roster is who shares partitions out, by one listing of the leases.
type roster struct {
	seats []driver.LeaseInfo // that count, by name
	held  map[string]int     // partitions, by owner
	pool  int                // partitions that are shared out
	free  int                // of those, the ones that nobody holds
}

// roster reads a listing that was made at asOf by the store's clock.
//
// A seat that was given up counts for another RenewEvery, so that a process
// which restarts finds its share untouched. Partitions of somebody without a
// seat are shared out all the same for LeaseFor: he is about to stop, or to take
// a seat, or he redrives. After that he counts as one who states a number, and
// what he holds is his.
func (b *balancer) roster(topic Topic, listed []driver.LeaseInfo, asOf time.Time) roster {
	r := roster{held: map[string]int{}}
	seated := map[string]bool{}
	holder := map[string]string{}
	for _, l := range listed {
		switch {
		case !l.Member():
			if l.Live() {
				holder[l.Partition] = l.Owner
			}
		case (l.Live() || asOf.Sub(l.Renewed) < b.c.cfg.RenewEvery) && !seated[l.Owner]:
			r.seats = append(r.seats, l)
			seated[l.Owner] = true
		}
	}
	now := b.c.cfg.Clock.Elapsed()
	loose := map[string]time.Duration{}
	for _, p := range topic.Partitions {
		owner := holder[p]
		if owner != "" && !seated[owner] {
			since, known := b.loose[owner]
			if !known {
				since = now
			}
			loose[owner] = since
			if now-since >= b.c.cfg.LeaseFor {
				continue
			}
		}
		r.pool++
		r.held[owner]++
	}
	r.free = r.held[""]
	b.loose = loose
	return r
}

// share is how many partitions an owner of a seat should hold: the pool by the
// number of seats, one more for the first ones where that leaves a rest.
func (r *roster) share(owner string) int {
	rank := slices.IndexFunc(r.seats, func(l driver.LeaseInfo) bool { return l.Owner == owner })
	return fairShare(r.pool, rank, len(r.seats))
}

func fairShare(pool, rank, of int) int { return (pool + of - 1 - rank) / of }

// wanting is how many partitions those who are short would take and don't
// find: two each at a time, since one is on its way while one is taken.
func (r *roster) wanting() int {
	n := -r.free
	for rank, l := range r.seats {
		if l.Live() {
			n += max(0, min(2, fairShare(r.pool, rank, len(r.seats))-r.held[l.Owner]))
		}
	}
	return n
}

// staying are the partitions held that are not being given back, those taken
// last first, and draining is how many are.
func (c *Consumer) staying() (list []*assignment, draining int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.held {
		if t.idle.Err() == nil {
			list = append(list, t)
		} else {
			draining++
		}
	}
	slices.SortFunc(list, func(a, b *assignment) int {
		return cmp.Or(cmp.Compare(b.acquired, a.acquired), cmp.Compare(a.lease.Partition, b.lease.Partition))
	})
	return list, draining
}

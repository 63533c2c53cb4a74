package sluicetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
)

// Leases is a [driver.LeaseStore] in memory. The clocks that a test gives to
// consumers do not affect it. The zero value is ready to use. It is safe for
// concurrent use.
type Leases struct {
	// Now is the store's clock. It is called with a lock held, and must not
	// change while the store is in use. Default: [time.Now].
	Now func() time.Time
	// Unsafe switches protections off. It exists only so that tests can check
	// that these matter, and must not change while the store is in use.
	Unsafe UnsafeLeases

	mu     sync.Mutex
	leases map[place]*lease
}

var (
	_ driver.LeaseStore   = (*Leases)(nil)
	_ driver.LeaseRenewer = (*Leases)(nil)
)

// UnsafeLeases switches protections of [Leases] off.
type UnsafeLeases struct {
	// SameEpoch gives every lease on a partition the epoch of the first one.
	SameEpoch bool
}

// place is where leases and checkpoints are kept: a partition of a group.
type place struct {
	group     sluice.Group
	partition string
}

type lease struct {
	owner   string
	epoch   int64
	renewed time.Time
	expires time.Time // the zero time: released
	began   string
}

// lookup returns a lease, or nil, and the time. A lease that was renewed in the
// future, before the clock was set back, is renewed now. The caller holds the lock.
func (s *Leases) lookup(at place) (*lease, time.Time) {
	now := time.Now()
	if s.Now != nil {
		now = s.Now()
	}
	l := s.leases[at]
	if l != nil && l.renewed.After(now) {
		if !l.expires.IsZero() {
			l.expires = now.Add(l.expires.Sub(l.renewed))
		}
		l.renewed = now
	}
	return l, now
}

// Acquire implements [driver.LeaseStore].
func (s *Leases) Acquire(ctx context.Context, group sluice.Group, partition, owner string, ttl time.Duration, above int64) (sluice.Lease, error) {
	if err := ctx.Err(); err != nil {
		return sluice.Lease{}, err
	}
	if above == math.MaxInt64 {
		return sluice.Lease{}, fmt.Errorf("partition %s: there is no epoch above %d", partition, above)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	at := place{group, partition}
	l, now := s.lookup(at)
	switch {
	case l == nil:
		if s.leases == nil {
			s.leases = make(map[place]*lease)
		}
		l = &lease{}
		s.leases[at] = l
	case l.owner != owner && now.Before(l.expires):
		return sluice.Lease{}, fmt.Errorf("partition %s, held by %s for another %v: %w", partition, l.owner, l.expires.Sub(now), driver.ErrHeld)
	}
	epoch := max(l.epoch, above) + 1
	if s.Unsafe.SameEpoch {
		epoch = max(l.epoch, 1)
	}
	*l = lease{owner: owner, epoch: epoch, renewed: now, expires: now.Add(ttl), began: l.began}
	return sluice.Lease{Group: group, Partition: partition, Owner: owner, Epoch: epoch, Began: l.began}, nil
}

// Renew implements [driver.LeaseStore].
func (s *Leases) Renew(ctx context.Context, lease sluice.Lease, ttl time.Duration) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l, now := s.lookup(place{lease.Group, lease.Partition})
	if !l.is(lease) || l.expires.IsZero() {
		return fmt.Errorf("renew lease on partition %s in epoch %d: %w", lease.Partition, lease.Epoch, sluice.ErrFenced)
	}
	l.renewed, l.expires = now, now.Add(ttl)
	return nil
}

// RenewAll implements [driver.LeaseRenewer].
func (s *Leases) RenewAll(ctx context.Context, leases []sluice.Lease, ttl time.Duration) error {
	var errs []error
	for _, l := range leases {
		errs = append(errs, s.Renew(ctx, l, ttl))
	}
	return errors.Join(errs...)
}

// MarkBegan implements [driver.LeaseStore].
func (s *Leases) MarkBegan(ctx context.Context, lease sluice.Lease, incarnation string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.leases[place{lease.Group, lease.Partition}]
	if !l.is(lease) {
		return fmt.Errorf("mark lease on partition %s in epoch %d: %w", lease.Partition, lease.Epoch, sluice.ErrFenced)
	}
	l.began = incarnation
	return nil
}

// Release implements [driver.LeaseStore].
func (s *Leases) Release(ctx context.Context, lease sluice.Lease) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.leases[place{lease.Group, lease.Partition}]; l.is(lease) {
		l.expires = time.Time{}
	}
	return nil
}

// List implements [driver.LeaseStore].
func (s *Leases) List(ctx context.Context, group sluice.Group) ([]driver.LeaseInfo, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []driver.LeaseInfo
	for at := range s.leases {
		if at.group != group {
			continue
		}
		l, now := s.lookup(at)
		info := driver.LeaseInfo{
			Lease:   sluice.Lease{Group: group, Partition: at.partition, Owner: l.owner, Epoch: l.epoch, Began: l.began},
			Renewed: l.renewed,
		}
		if !l.expires.IsZero() {
			info.Remaining = l.expires.Sub(now)
		}
		list = append(list, info)
	}
	slices.SortFunc(list, func(a, b driver.LeaseInfo) int { return cmp.Compare(a.Partition, b.Partition) })
	return list, nil
}

func (l *lease) is(lease sluice.Lease) bool {
	return l != nil && l.owner == lease.Owner && l.epoch == lease.Epoch
}

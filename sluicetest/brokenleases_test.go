package sluicetest

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/suite"
)

// bentLeases is a lease store whose methods can be replaced.
type bentLeases struct {
	*Leases
	server  *silentServer
	acquire func(ctx context.Context, group sluice.Group, partition, owner string, ttl time.Duration, above int64) (sluice.Lease, error)
	renew   func(ctx context.Context, lease sluice.Lease, ttl time.Duration) error
	release func(ctx context.Context, lease sluice.Lease) error
	list    func(ctx context.Context, group sluice.Group) ([]driver.LeaseInfo, error)
}

func (b *bentLeases) Acquire(ctx context.Context, group sluice.Group, partition, owner string, ttl time.Duration, above int64) (sluice.Lease, error) {
	if b.acquire != nil {
		return b.acquire(ctx, group, partition, owner, ttl, above)
	}
	return b.Leases.Acquire(ctx, group, partition, owner, ttl, above)
}

func (b *bentLeases) Renew(ctx context.Context, lease sluice.Lease, ttl time.Duration) error {
	if b.renew != nil {
		return b.renew(ctx, lease, ttl)
	}
	return b.Leases.Renew(ctx, lease, ttl)
}

func (b *bentLeases) Release(ctx context.Context, lease sluice.Lease) error {
	if b.release != nil {
		return b.release(ctx, lease)
	}
	return b.Leases.Release(ctx, lease)
}

func (b *bentLeases) List(ctx context.Context, group sluice.Group) ([]driver.LeaseInfo, error) {
	if b.list != nil {
		return b.list(ctx, group)
	}
	return b.Leases.List(ctx, group)
}

// row is a lease as it is stored, or an empty one.
func (b *bentLeases) row(group sluice.Group, partition string) (row lease) {
	b.edit(group, partition, func(l *lease) { row = *l })
	return row
}

// edit changes a lease behind the store's back.
func (b *bentLeases) edit(group sluice.Group, partition string, fn func(l *lease)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.leases[place{group, partition}]
	if l == nil {
		l = &lease{}
	}
	fn(l)
}

// free lets a lease run out.
func free(l *lease) { l.expires = time.Time{} }

func TestLeasesSuiteCatches(t *testing.T) {
	var drivers []suite.Broken[driver.LeaseStore]
	add := func(how string, bend func(b *bentLeases, good *Leases)) {
		drivers = append(drivers, suite.Broken[driver.LeaseStore]{How: how, New: func(testing.TB) driver.LeaseStore {
			b := &bentLeases{Leases: new(Leases)}
			bend(b, b.Leases)
			return b
		}})
	}
	add("hands out one epoch only", func(b *bentLeases, good *Leases) { good.Unsafe.SameEpoch = true })
	add("lets live leases be taken", func(b *bentLeases, good *Leases) {
		b.acquire = func(ctx context.Context, group sluice.Group, partition, owner string, ttl time.Duration, above int64) (sluice.Lease, error) {
			b.edit(group, partition, free)
			return good.Acquire(ctx, group, partition, owner, ttl, above)
		}
	})
	add("reports another's lease as fenced", func(b *bentLeases, good *Leases) {
		b.acquire = func(ctx context.Context, group sluice.Group, partition, owner string, ttl time.Duration, above int64) (sluice.Lease, error) {
			l, err := good.Acquire(ctx, group, partition, owner, ttl, above)
			if err != nil {
				err = sluice.ErrFenced
			}
			return l, err
		}
	})
	add("forgets the mark", func(b *bentLeases, good *Leases) {
		b.acquire = func(ctx context.Context, group sluice.Group, partition, owner string, ttl time.Duration, above int64) (sluice.Lease, error) {
			l, err := good.Acquire(ctx, group, partition, owner, ttl, above)
			l.Began = ""
			return l, err
		}
	})
	add("ignores above", func(b *bentLeases, good *Leases) {
		b.acquire = func(ctx context.Context, group sluice.Group, partition, owner string, ttl time.Duration, _ int64) (sluice.Lease, error) {
			return good.Acquire(ctx, group, partition, owner, ttl, 0)
		}
	})
	add("lowers the epoch to above", func(b *bentLeases, good *Leases) {
		b.acquire = func(ctx context.Context, group sluice.Group, partition, owner string, ttl time.Duration, above int64) (sluice.Lease, error) {
			if above > 0 {
				b.edit(group, partition, func(l *lease) { l.epoch = above })
			}
			return good.Acquire(ctx, group, partition, owner, ttl, above)
		}
	})
	add("forgets a lease that is released", func(b *bentLeases, good *Leases) {
		b.release = func(ctx context.Context, held sluice.Lease) error {
			l := b.row(held.Group, held.Partition)
			good.mu.Lock()
			defer good.mu.Unlock()
			if l.is(held) {
				delete(good.leases, place{held.Group, held.Partition})
			}
			return nil
		}
	})
	add("gives the same owner its lease again", func(b *bentLeases, good *Leases) {
		b.acquire = func(ctx context.Context, group sluice.Group, partition, owner string, ttl time.Duration, above int64) (sluice.Lease, error) {
			if l := b.row(group, partition); l.owner == owner {
				return sluice.Lease{Group: group, Partition: partition, Owner: owner, Epoch: l.epoch}, nil
			}
			return good.Acquire(ctx, group, partition, owner, ttl, above)
		}
	})
	add("looks first and takes later", func(b *bentLeases, good *Leases) {
		b.acquire = func(ctx context.Context, group sluice.Group, partition, owner string, ttl time.Duration, above int64) (sluice.Lease, error) {
			l := b.row(group, partition)
			if l.owner != owner && time.Now().Before(l.expires) {
				return sluice.Lease{}, driver.ErrHeld
			}
			<-time.After(time.Millisecond)
			b.edit(group, partition, free)
			return good.Acquire(ctx, group, partition, owner, ttl, above)
		}
	})
	add("raises the epoch in two steps", func(b *bentLeases, good *Leases) {
		b.acquire = func(ctx context.Context, group sluice.Group, partition, owner string, ttl time.Duration, above int64) (sluice.Lease, error) {
			next := b.row(group, partition).epoch + 1
			<-time.After(time.Millisecond)
			l, err := good.Acquire(ctx, group, partition, owner, ttl, above)
			if l.Epoch > above+1 {
				l.Epoch = next
				b.edit(group, partition, func(l *lease) { l.epoch = next })
			}
			return l, err
		}
	})
	add("renews whatever it is asked to", func(b *bentLeases, good *Leases) {
		b.renew = func(ctx context.Context, held sluice.Lease, ttl time.Duration) error {
			_ = good.Renew(ctx, held, ttl)
			return ctx.Err()
		}
	})
	add("renews what was released", func(b *bentLeases, good *Leases) {
		b.renew = func(ctx context.Context, held sluice.Lease, ttl time.Duration) error {
			b.edit(held.Group, held.Partition, func(l *lease) {
				if l.is(held) && l.expires.IsZero() {
					l.expires = time.Now()
				}
			})
			return good.Renew(ctx, held, ttl)
		}
	})
	add("renews by owner alone", func(b *bentLeases, good *Leases) {
		b.renew = func(ctx context.Context, held sluice.Lease, ttl time.Duration) error {
			if l := b.row(held.Group, held.Partition); l.owner == held.Owner && !l.expires.IsZero() {
				held.Epoch = l.epoch
			}
			return good.Renew(ctx, held, ttl)
		}
	})
	add("won't renew what has expired", func(b *bentLeases, good *Leases) {
		b.renew = func(ctx context.Context, held sluice.Lease, ttl time.Duration) error {
			if l := b.row(held.Group, held.Partition); !time.Now().Before(l.expires) {
				return sluice.ErrFenced
			}
			return good.Renew(ctx, held, ttl)
		}
	})
	add("does not extend a lease", func(b *bentLeases, good *Leases) {
		b.renew = func(ctx context.Context, held sluice.Lease, ttl time.Duration) error {
			until := b.row(held.Group, held.Partition).expires
			err := good.Renew(ctx, held, ttl)
			if err == nil {
				b.edit(held.Group, held.Partition, func(l *lease) { l.expires = until })
			}
			return err
		}
	})
	add("does not note the renewal", func(b *bentLeases, good *Leases) {
		b.renew = func(ctx context.Context, held sluice.Lease, ttl time.Duration) error {
			renewed := b.row(held.Group, held.Partition).renewed
			err := good.Renew(ctx, held, ttl)
			b.edit(held.Group, held.Partition, func(l *lease) { l.renewed = renewed })
			return err
		}
	})
	add("adds renewals up", func(b *bentLeases, good *Leases) {
		b.renew = func(ctx context.Context, held sluice.Lease, ttl time.Duration) error {
			until := b.row(held.Group, held.Partition).expires
			err := good.Renew(ctx, held, ttl)
			b.edit(held.Group, held.Partition, func(l *lease) {
				if err == nil && until.After(l.expires) {
					l.expires = until
				}
			})
			return err
		}
	})
	add("takes a cancelled request for a lost lease", func(b *bentLeases, good *Leases) {
		b.renew = func(ctx context.Context, held sluice.Lease, ttl time.Duration) error {
			if good.Renew(ctx, held, ttl) != nil {
				return sluice.ErrFenced
			}
			return nil
		}
	})
	add("acquires after the request was cancelled", func(b *bentLeases, good *Leases) {
		b.acquire = func(ctx context.Context, group sluice.Group, partition, owner string, ttl time.Duration, above int64) (sluice.Lease, error) {
			l, err := good.Acquire(context.WithoutCancel(ctx), group, partition, owner, ttl, above)
			if ctx.Err() != nil {
				return sluice.Lease{}, ctx.Err()
			}
			return l, err
		}
	})
	add("lets anybody release", func(b *bentLeases, good *Leases) {
		b.release = func(ctx context.Context, held sluice.Lease) error {
			b.edit(held.Group, held.Partition, free)
			return nil
		}
	})
	add("releases by owner alone", func(b *bentLeases, good *Leases) {
		b.release = func(ctx context.Context, held sluice.Lease) error {
			if l := b.row(held.Group, held.Partition); l.owner == held.Owner {
				b.edit(held.Group, held.Partition, free)
			}
			return nil
		}
	})
	add("does not release", func(b *bentLeases, good *Leases) {
		b.release = func(context.Context, sluice.Lease) error { return nil }
	})
	add("reports a release that came too late", func(b *bentLeases, good *Leases) {
		b.release = func(ctx context.Context, held sluice.Lease) error {
			if l := b.row(held.Group, held.Partition); !l.is(held) {
				return sluice.ErrFenced
			}
			return good.Release(ctx, held)
		}
	})
	stretch := func(how string, by float64) {
		add(how, func(b *bentLeases, good *Leases) {
			b.acquire = func(ctx context.Context, group sluice.Group, partition, owner string, ttl time.Duration, above int64) (sluice.Lease, error) {
				return good.Acquire(ctx, group, partition, owner, time.Duration(by*float64(ttl)), above)
			}
		})
	}
	stretch("ends leases early", 0.7)
	stretch("never ends leases", 1e4)
	add("lists in any order", func(b *bentLeases, good *Leases) {
		b.list = func(ctx context.Context, group sluice.Group) ([]driver.LeaseInfo, error) {
			list, err := good.List(ctx, group)
			slices.Reverse(list)
			return list, err
		}
	})
	add("lists live leases only", func(b *bentLeases, good *Leases) {
		b.list = func(ctx context.Context, group sluice.Group) ([]driver.LeaseInfo, error) {
			list, err := good.List(ctx, group)
			return slices.DeleteFunc(list, func(l driver.LeaseInfo) bool { return !l.Live() }), err
		}
	})
	for how, key := range map[string]func(g sluice.Group) string{
		"joins names without a mark": func(g sluice.Group) string { return g.String() },
		"folds the case of names":    func(g sluice.Group) string { return g.Namespace + "\x00" + g.Topic + "\x00" + strings.ToLower(g.Name) },
		"keys by consumer group":     func(g sluice.Group) string { return g.Name },
	} {
		add(how, func(b *bentLeases, good *Leases) {
			b.acquire = func(ctx context.Context, group sluice.Group, partition, owner string, ttl time.Duration, above int64) (sluice.Lease, error) {
				l, err := good.Acquire(ctx, sluice.Group{Name: key(group)}, partition, owner, ttl, above)
				l.Group = group
				return l, err
			}
			b.renew = func(ctx context.Context, held sluice.Lease, ttl time.Duration) error {
				held.Group = sluice.Group{Name: key(held.Group)}
				return good.Renew(ctx, held, ttl)
			}
			b.release = func(ctx context.Context, held sluice.Lease) error {
				held.Group = sluice.Group{Name: key(held.Group)}
				return good.Release(ctx, held)
			}
			b.list = func(ctx context.Context, group sluice.Group) ([]driver.LeaseInfo, error) {
				list, err := good.List(ctx, sluice.Group{Name: key(group)})
				for i := range list {
					list[i].Group = group
				}
				return list, err
			}
		})
	}
	add("forgets whose lease it was", func(b *bentLeases, good *Leases) {
		b.acquire = func(ctx context.Context, group sluice.Group, partition, owner string, ttl time.Duration, above int64) (sluice.Lease, error) {
			l, err := good.Acquire(ctx, group, partition, owner, ttl, above)
			l.Owner = ""
			return l, err
		}
	})
	add("ignores its deadline while the server is silent", func(b *bentLeases, good *Leases) {
		b.server = new(silentServer)
		b.renew = func(ctx context.Context, lease sluice.Lease, ttl time.Duration) error {
			b.server.await()
			return good.Renew(ctx, lease, ttl)
		}
	})
	suite.Caught(t, testLeases, drivers)
}

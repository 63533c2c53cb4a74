package blobstore

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"

	"github.com/sluice-go/sluice/driver"
)

// Azure's bounds of a lease that ends by itself:
// https://learn.microsoft.com/rest/api/storageservices/lease-blob
const (
	MinLease = 15 * time.Second
	MaxLease = 60 * time.Second
)

// CheckLease reports whether Azure grants leases of this length. It is for the
// start of a program; Acquire and Renew check the same. Its error is a
// [driver.ErrRefused].
func CheckLease(ttl time.Duration) error {
	if ttl < MinLease || ttl > MaxLease {
		return fmt.Errorf("lease of %v: Azure Blob Storage grants leases of 15 s to 60 s: set the lease's length between them (30 s is the default): %w", ttl, driver.ErrRefused)
	}
	return nil
}

// Leases keeps leases in Blob Storage: real leases on the partitions' blobs.
// They last whole seconds; others are rounded up. It is safe for concurrent
// use.
type Leases struct{ store *Store }

var (
	_ driver.LeaseStore   = (*Leases)(nil)
	_ driver.LeaseLimiter = (*Leases)(nil)
)

// LeaseLimits implements [driver.LeaseLimiter].
func (l *Leases) LeaseLimits() (shortest, longest time.Duration) { return MinLease, MaxLease }

// leaseID returns the ID of the lease on a blob. It is computed from owner and epoch, so that it is
// known wherever these are, and a request that is sent twice asks for the same lease.
func leaseID(name, owner string, epoch int64) string {
	h := sha256.Sum256(fmt.Appendf(nil, "%q %q %d", name, owner, epoch))
	h[6] = h[6]&0x0f | 0x80 // UUID version 8: a format of our own
	h[8] = h[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", h[:4], h[4:6], h[6:8], h[8:10], h[10:16])
}

func (c *partitionBlob) leaseID() string { return leaseID(c.name, c.lease.owner, c.lease.epoch) }

// ifVersion makes a lease operation conditional on the version that was read.
func (c *partitionBlob) ifVersion() *blob.ModifiedAccessConditions {
	return &blob.ModifiedAccessConditions{IfMatch: &c.etag}
}

// leaseClient returns the client for operations on the blob's lease.
func (s *Store) leaseClient(c partitionBlob, id string) (*lease.BlobClient, error) {
	return lease.NewBlobClient(s.client.NewBlobClient(c.name), &lease.BlobClientOptions{LeaseID: &id})
}

// acquireLease takes the lease with this ID for a number of seconds, or renews the one that has the
// ID already. It returns the time of that by the server's clock.
func (s *Store) acquireLease(ctx context.Context, c partitionBlob, id string, seconds int64) (time.Time, error) {
	client, err := s.leaseClient(c, id)
	if err != nil {
		return time.Time{}, err
	}
	got, err := client.AcquireLease(ctx, int32(seconds), &lease.BlobAcquireOptions{ModifiedAccessConditions: c.ifVersion()})
	if err != nil {
		return time.Time{}, safeError(err)
	}
	if got.Date == nil {
		return c.now, nil
	}
	return got.Date.UTC(), nil
}

// Acquire implements [driver.LeaseStore]. It returns once the new epoch is
// written under the new lease. A ttl that Azure does not grant is refused, as
// by [CheckLease].
func (l *Leases) Acquire(ctx context.Context, group driver.Group, partition, owner string, ttl time.Duration, above int64) (driver.Lease, error) {
	a := acquisition{
		store: l.store, epochFloor: above, seconds: wholeSeconds(ttl),
		lease: driver.Lease{Group: group, Partition: partition, Owner: owner},
	}
	err := errors.Join(CheckLease(ttl), fits("the owner's name", owner))
	if err == nil {
		err = l.store.edit(ctx, group, partition, func(c partitionBlob) error { return a.try(ctx, c) })
	}
	if errors.Is(err, errLease) {
		err = driver.ErrHeld // its epoch is not written yet
	}
	if err != nil {
		a.undo(ctx)
		return driver.Lease{}, fmt.Errorf("acquire lease on partition %s: %w", partition, err)
	}
	return a.lease, nil
}

func wholeSeconds(ttl time.Duration) int64 { return int64((ttl + time.Second - 1) / time.Second) }

// acquisition is an Acquire in progress.
type acquisition struct {
	store      *Store
	lease      driver.Lease
	seconds    int64
	epochFloor int64

	asked partitionBlob // the blob whose lease was asked for; its name is empty if none was
	id    string        // of that lease
}

// try takes the lease of a blob as it was read, and writes the new epoch.
func (a *acquisition) try(ctx context.Context, c partitionBlob) error {
	if !c.exists {
		if err := a.store.create(ctx, c.name, record{}); err != nil {
			return err
		}
		return errChanged // by ourselves
	}
	epoch := max(c.lease.epoch, a.epochFloor, 0)
	if c.checkpoint != nil {
		epoch = max(epoch, c.checkpoint.Epoch)
	}
	if epoch == math.MaxInt64 {
		return fmt.Errorf("there is no epoch above %d: %w", epoch, driver.ErrRefused)
	}
	epoch++
	id := leaseID(c.name, a.lease.Owner, epoch)
	if c.leased && a.id != id {
		if err := a.changeLease(ctx, c, id); err != nil {
			return err
		}
	}
	a.asked, a.id = c, id
	since, err := a.store.acquireLease(ctx, c, id, a.seconds)
	if err != nil {
		return err
	}
	r := c.record
	r.lease = leaseRecord{owner: a.lease.Owner, epoch: epoch, seconds: a.seconds, renewed: since, began: c.lease.began}
	if err := a.store.write(ctx, c, id, r); err != nil {
		return err
	}
	a.lease.Epoch, a.lease.Began = epoch, c.lease.began
	return nil
}

// changeLease gives the lease on the blob the new ID, if this call may: the lease is one of this
// call, of the same owner, or one whose owner has recorded its release but has not ended it.
func (a *acquisition) changeLease(ctx context.Context, c partitionBlob, id string) error {
	from := a.id
	if from == "" {
		if c.lease.owner != a.lease.Owner && !c.lease.released() || c.lease.epoch == 0 {
			return fmt.Errorf("held by %s for another %v: %w", cmp.Or(c.lease.owner, "an unknown owner"), c.remaining(), driver.ErrHeld)
		}
		from = c.leaseID()
	}
	client, err := a.store.leaseClient(c, from)
	if err != nil {
		return err
	}
	_, err = client.ChangeLease(ctx, id, &lease.BlobChangeOptions{ModifiedAccessConditions: c.ifVersion()})
	if err == nil {
		a.asked, a.id = c, id
	} else if errors.Is(safeError(err), errLease) {
		a.id = ""
	}
	return safeError(err)
}

// undo releases a lease that may have been taken, so that the next attempt need not wait until it
// expires.
func (a *acquisition) undo(ctx context.Context) {
	if a.id == "" {
		return
	}
	ctx, cancel := cleanUpCtx(ctx)
	defer cancel()
	_ = a.store.releaseLease(ctx, a.asked, a.id, a.asked.ifVersion()) // otherwise it expires
}

// releaseLease ends the lease with this id, if it is there and the condition holds.
func (s *Store) releaseLease(ctx context.Context, c partitionBlob, id string, condition *blob.ModifiedAccessConditions) error {
	client, err := s.leaseClient(c, id)
	if err != nil {
		return err
	}
	_, err = client.ReleaseLease(ctx, &lease.BlobReleaseOptions{ModifiedAccessConditions: condition})
	if err = safeError(err); errors.Is(err, errLease) || errors.Is(err, errChanged) {
		return nil
	}
	return err
}

// Renew implements [driver.LeaseStore].
func (l *Leases) Renew(ctx context.Context, lease driver.Lease, ttl time.Duration) error {
	err := CheckLease(ttl)
	if err == nil {
		err = l.store.edit(ctx, lease.Group, lease.Partition, func(c partitionBlob) error {
			if !c.exists || !c.lease.is(lease) || c.lease.released() {
				return fmt.Errorf("%w: the lease is %s", driver.ErrFenced, c.lease.describe())
			}
			since, err := l.store.acquireLease(ctx, c, c.leaseID(), wholeSeconds(ttl))
			if err != nil {
				return err
			}
			r := c.record
			r.lease.seconds, r.lease.renewed = wholeSeconds(ttl), since
			return l.store.write(ctx, c, c.leaseID(), r)
		})
	}
	if errors.Is(err, errLease) { // another has it, whose epoch is not written yet
		err = fmt.Errorf("%w: %w", driver.ErrFenced, err)
	}
	if err != nil {
		return fmt.Errorf("renew lease on partition %s in epoch %d: %w", lease.Partition, lease.Epoch, err)
	}
	return nil
}

// MarkBegan implements [driver.LeaseStore].
func (l *Leases) MarkBegan(ctx context.Context, lease driver.Lease, incarnation string) error {
	err := fits("the incarnation", incarnation)
	if err == nil {
		err = l.store.edit(ctx, lease.Group, lease.Partition, func(c partitionBlob) error {
			if !c.exists || !c.lease.is(lease) {
				return fmt.Errorf("%w: the lease is %s", driver.ErrFenced, c.lease.describe())
			}
			id := ""
			if c.leased {
				id = c.leaseID()
			}
			r := c.record
			r.lease.began = incarnation
			return l.store.write(ctx, c, id, r)
		})
	}
	if errors.Is(err, errLease) { // another has it, whose epoch is not written yet
		err = fmt.Errorf("%w: %w", driver.ErrFenced, err)
	}
	if err != nil {
		return fmt.Errorf("mark lease on partition %s in epoch %d: %w", lease.Partition, lease.Epoch, err)
	}
	return nil
}

// describe describes the record's lease for an error.
func (l leaseRecord) describe() string {
	switch {
	case l.epoch == 0:
		return "not there"
	case l.released():
		return fmt.Sprintf("released in epoch %d by %s", l.epoch, l.owner)
	}
	return fmt.Sprintf("held by %[2]s in epoch %[1]d", l.epoch, l.owner)
}

// Release implements [driver.LeaseStore]. It first records the release and
// then ends the lease; another owner may take it between the two.
func (l *Leases) Release(ctx context.Context, lease driver.Lease) error {
	err := l.store.edit(ctx, lease.Group, lease.Partition, func(c partitionBlob) error {
		if !c.exists || !c.lease.is(lease) {
			return nil
		}
		id := ""
		if c.leased {
			id = c.leaseID()
		}
		if !c.lease.released() {
			r := c.record
			r.lease.seconds = 0
			if err := l.store.write(ctx, c, id, r); err != nil {
				return err
			}
		}
		if id == "" {
			return nil
		}
		return l.store.releaseLease(ctx, c, id, nil)
	})
	if errors.Is(err, errLease) {
		err = nil // another has it, whose epoch is not written yet
	}
	if err != nil {
		return fmt.Errorf("release lease on partition %s in epoch %d: %w", lease.Partition, lease.Epoch, err)
	}
	return nil
}

// remaining returns the time until the lease expires. It is positive while the server says that the
// lease is held, because the server's times are whole seconds.
func (c *partitionBlob) remaining() time.Duration {
	if !c.leased || c.lease.released() {
		return 0
	}
	left := c.lease.renewed.Add(time.Duration(c.lease.seconds) * time.Second).Sub(c.now)
	return max(left, time.Millisecond)
}

// List implements [driver.LeaseStore].
func (l *Leases) List(ctx context.Context, group driver.Group) ([]driver.LeaseInfo, error) {
	var list []driver.LeaseInfo
	err := l.store.partitionBlobs(ctx, group, func(partition string, c partitionBlob) {
		if c.lease.epoch > 0 {
			list = append(list, driver.LeaseInfo{
				Lease:     driver.Lease{Group: group, Partition: partition, Owner: c.lease.owner, Epoch: c.lease.epoch, Began: c.lease.began},
				Remaining: c.remaining(), Renewed: c.lease.renewed,
			})
		}
	})
	if err != nil {
		return nil, fmt.Errorf("list leases of %v: %w", group, err)
	}
	slices.SortFunc(list, func(a, b driver.LeaseInfo) int { return cmp.Compare(a.Partition, b.Partition) })
	return list, nil
}

// partitionBlobs lists the blobs of a group's partitions.
func (s *Store) partitionBlobs(ctx context.Context, group driver.Group, found func(partition string, c partitionBlob)) error {
	folder, err := s.folder(group, partitionsFolder)
	if err != nil {
		return err
	}
	return s.list(ctx, folder, func(item *container.BlobItem, now time.Time) error {
		partition, ours := unescape((*item.Name)[len(folder):])
		if !ours {
			return nil
		}
		c := partitionBlob{name: *item.Name, exists: true, now: now, etag: *item.Properties.ETag}
		if state := item.Properties.LeaseState; state != nil {
			c.leased = held(*state)
		}
		var err error
		if c.record, err = decode(item.Metadata); err != nil {
			return fmt.Errorf("blob %s: %w", c.name, err)
		}
		found(partition, c)
		return nil
	})
}

// list lists blobs with their metadata, by name; now is the server's clock.
func (s *Store) list(ctx context.Context, prefix string, found func(item *container.BlobItem, now time.Time) error) error {
	pages := s.client.NewListBlobsFlatPager(&container.ListBlobsFlatOptions{Prefix: &prefix, Include: container.ListBlobsInclude{Metadata: true}})
	for pages.More() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return safeError(err)
		}
		if page.Date == nil || page.Segment == nil {
			return errors.New("answer of Azure Storage without the blobs or the time")
		}
		for _, item := range page.Segment.BlobItems {
			if item == nil || item.Name == nil || len(*item.Name) < len(prefix) || item.Properties == nil || item.Properties.ETag == nil {
				continue
			}
			if err := found(item, page.Date.UTC()); err != nil {
				return err
			}
		}
	}
	return nil
}

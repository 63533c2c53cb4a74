package blobstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"

	"github.com/sluice-go/sluice/driver"
)

// Claim implements [driver.CheckpointStore].
func (s *Store) Claim(ctx context.Context, lease driver.Lease, incarnation string) (driver.Checkpoint, error) {
	var p driver.Checkpoint
	err := errors.Join(fits("the owner's name", lease.Owner), fits("the incarnation", incarnation))
	if err == nil {
		err = s.edit(ctx, lease.Group, lease.Partition, func(c partitionBlob) error {
			p = driver.Checkpoint{Incarnation: incarnation, Position: driver.Unset}
			if c.checkpoint != nil {
				p = *c.checkpoint
			}
			if p.Epoch > lease.Epoch || p.Epoch == lease.Epoch && p.Owner != lease.Owner {
				return &driver.FencedError{Partition: lease.Partition, Epoch: p.Epoch, Owner: p.Owner}
			}
			if p.Epoch < lease.Epoch {
				p.Claims++
			}
			p.Owner, p.Epoch = lease.Owner, lease.Epoch
			return s.writeUnder(ctx, c, lease, &p)
		})
	}
	if err != nil {
		return driver.Checkpoint{}, fmt.Errorf("claim partition %s: %w", lease.Partition, refused(err, lease))
	}
	p.Group, p.Partition = lease.Group, lease.Partition
	return p, nil
}

// Advance implements [driver.CheckpointStore].
func (s *Store) Advance(ctx context.Context, lease driver.Lease, incarnation string, to driver.Position, done []driver.SequenceRange) error {
	err := s.editOwn(ctx, lease, func(p *driver.Checkpoint) error {
		switch {
		case p.Incarnation != incarnation:
			return fmt.Errorf("partition %s: its checkpoint is of incarnation %s, not %s: %w", lease.Partition, p.Incarnation, incarnation, driver.ErrFenced)
		case p.Position.Sequence > to.Sequence:
			return fmt.Errorf("partition %s: its checkpoint is at %v, after %v: %w", lease.Partition, p.Position, to, driver.ErrFenced)
		case p.Position.Sequence != to.Sequence:
			p.Claims, p.Attempt = 1, driver.AttemptRecord{}
		}
		p.Position, p.Done = to, done
		return nil
	})
	if err != nil {
		return fmt.Errorf("advance checkpoint of partition %s: %w", lease.Partition, err)
	}
	return nil
}

// Begin implements [driver.CheckpointStore].
func (s *Store) Begin(ctx context.Context, lease driver.Lease, from, to driver.Position) error {
	err := s.editOwn(ctx, lease, func(p *driver.Checkpoint) error {
		if p.Position.Sequence != from.Sequence {
			return notAt(lease, p, from)
		}
		p.Claims, p.Attempt, p.Done = 1, driver.AttemptRecord{}, nil
		p.Position, p.Began = to, driver.Beginning{After: to.Sequence, How: driver.HowStart}
		return nil
	})
	if err != nil {
		return fmt.Errorf("store the start of partition %s: %w", lease.Partition, err)
	}
	return nil
}

// notAt is the error of a checkpoint that is not where its owner expects it.
func notAt(lease driver.Lease, p *driver.Checkpoint, expected driver.Position) error {
	return fmt.Errorf("partition %s: its checkpoint is at %v, not at %v: %w", lease.Partition, p.Position, expected, driver.ErrFenced)
}

// RecordAttempt implements [driver.CheckpointStore]. It cuts an error's text that takes more than
// maxText.
func (s *Store) RecordAttempt(ctx context.Context, lease driver.Lease, at driver.Position, attempt driver.AttemptRecord) error {
	err := s.editOwn(ctx, lease, func(p *driver.Checkpoint) error {
		if p.Position.Sequence != at.Sequence {
			return notAt(lease, p, at)
		}
		p.Attempt = attempt
		return nil
	})
	if err != nil {
		return fmt.Errorf("record attempt on partition %s: %w", lease.Partition, err)
	}
	return nil
}

// editOwn changes a checkpoint that has the lease's owner and epoch.
func (s *Store) editOwn(ctx context.Context, lease driver.Lease, change func(p *driver.Checkpoint) error) error {
	err := s.edit(ctx, lease.Group, lease.Partition, func(c partitionBlob) error {
		switch p := c.checkpoint; {
		case p == nil:
			return fmt.Errorf("partition %s has no checkpoint: %w", lease.Partition, driver.ErrFenced)
		case p.Epoch != lease.Epoch || p.Owner != lease.Owner:
			return &driver.FencedError{Partition: lease.Partition, Epoch: p.Epoch, Owner: p.Owner}
		}
		next := *c.checkpoint
		if err := change(&next); err != nil {
			return err
		}
		return s.writeUnder(ctx, c, lease, &next)
	})
	return refused(err, lease)
}

// Leave implements [driver.CheckpointStore].
func (s *Store) Leave(ctx context.Context, lease driver.Lease) error {
	err := s.edit(ctx, lease.Group, lease.Partition, func(c partitionBlob) error {
		p := c.checkpoint
		if p == nil || p.Epoch != lease.Epoch || p.Owner != lease.Owner || p.Claims == 0 {
			return nil
		}
		next := *p
		next.Claims = 0
		return s.writeUnder(ctx, c, lease, &next)
	})
	if err = refused(err, lease); err != nil && !errors.Is(err, driver.ErrFenced) {
		return fmt.Errorf("leave partition %s: %w", lease.Partition, err)
	}
	return nil
}

// writeUnder writes a checkpoint and its time for a lease. If that is the blob's own lease, the
// write is made under it. A lease of another lease store has no lease on the blob; the write is
// then refused if any lease is on the blob.
func (s *Store) writeUnder(ctx context.Context, c partitionBlob, lease driver.Lease, p *driver.Checkpoint) error {
	id := ""
	switch {
	case c.lease.later(lease):
		return &driver.FencedError{Partition: lease.Partition, Epoch: c.lease.epoch, Owner: c.lease.owner}
	case c.lease.is(lease):
		id = c.leaseID()
	}
	r := c.record
	p.Updated, r.checkpoint = c.now, p
	return s.write(ctx, c, id, r)
}

// refused converts errLease into an [driver.ErrFenced].
func refused(err error, lease driver.Lease) error {
	if errors.Is(err, errLease) {
		return fmt.Errorf("partition %s: epoch %d of %s does not have the lease on its blob: %w: %w", lease.Partition, lease.Epoch, lease.Owner, driver.ErrFenced, err)
	}
	return err
}

// Read implements [driver.CheckpointStore].
func (s *Store) Read(ctx context.Context, group driver.Group) ([]driver.Checkpoint, error) {
	var list []driver.Checkpoint
	err := s.partitionBlobs(ctx, group, func(partition string, c partitionBlob) {
		if p := c.checkpoint; p != nil {
			p.Group, p.Partition = group, partition
			list = append(list, *p)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("read checkpoints of %v: %w", group, err)
	}
	slices.SortFunc(list, func(a, b driver.Checkpoint) int { return cmp.Compare(a.Partition, b.Partition) })
	return list, nil
}

// Reset implements [driver.CheckpointStore]. The new epoch has no owner: no
// lease has that epoch. Reset writes under the lease of the present owner, who keeps it and is
// fenced; a lease whose ID is unknown is broken.
func (s *Store) Reset(ctx context.Context, group driver.Group, partition, incarnation string, to driver.Position, how driver.How) (int64, error) {
	var epoch int64
	err := fits("the incarnation", incarnation)
	if err == nil {
		err = s.edit(ctx, group, partition, func(c partitionBlob) error {
			p := driver.Checkpoint{Incarnation: incarnation, Position: to, Began: driver.Beginning{After: to.Sequence, How: how}, Updated: c.now}
			if c.checkpoint != nil {
				p.Epoch = c.checkpoint.Epoch
			}
			p.Epoch++
			epoch = p.Epoch
			id := ""
			if c.leased && c.lease.epoch > 0 {
				id = c.leaseID()
			}
			r := c.record
			r.checkpoint = &p
			err := s.write(ctx, c, id, r)
			if errors.Is(err, errLease) {
				return s.breakLease(ctx, c)
			}
			return err
		})
	}
	if err != nil {
		return 0, fmt.Errorf("reset checkpoint of partition %s: %w", partition, err)
	}
	return epoch, nil
}

// breakLease ends any lease on the blob, and returns errChanged.
func (s *Store) breakLease(ctx context.Context, c partitionBlob) error {
	client, err := s.leaseClient(c, "")
	if err != nil {
		return err
	}
	now := int32(0) // seconds to wait
	_, err = client.BreakLease(ctx, &lease.BlobBreakOptions{BreakPeriod: &now})
	if err = safeError(err); err != nil && !errors.Is(err, errLease) {
		return err
	}
	return errChanged
}

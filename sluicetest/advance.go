package sluicetest

import (
	"context"
	"fmt"
	"slices"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
)

// Advance implements [driver.CheckpointStore]. It keeps all ranges,
// and refuses ranges that are not ascending.
func (s *Store) Advance(ctx context.Context, lease sluice.Lease, incarnation string, to sluice.Position, done []driver.SequenceRange) error {
	if err := s.begin(ctx, OpAdvance, lease); err != nil {
		return err
	}
	next := to.Sequence + 2 // the event directly after the position is not done
	for _, r := range done {
		if r.First < next || r.Last < r.First {
			return fmt.Errorf("partition %s: the ranges after %v are not ascending: %v", lease.Partition, to, done)
		}
		next = r.Last + 2
	}
	done = slices.Clone(done)
	return s.write(OpAdvance, lease, func() error { return s.advance(lease, incarnation, to, done) })
}

// advance applies an Advance. The lock is held.
func (s *Store) advance(lease sluice.Lease, incarnation string, to sluice.Position, done []driver.SequenceRange) error {
	c := s.checkpoints[place{lease.Group, lease.Partition}]
	switch {
	case c == nil:
		return fmt.Errorf("partition %s has no checkpoint: %w", lease.Partition, sluice.ErrFenced)
	case !s.Unsafe.NoFence && !c.held(lease):
		return c.fenced()
	case c.Incarnation != incarnation:
		return fmt.Errorf("partition %s: its checkpoint is of incarnation %s, not %s: %w", lease.Partition, c.Incarnation, incarnation, sluice.ErrFenced)
	case !s.Unsafe.Backwards && c.Position.Sequence > to.Sequence:
		return fmt.Errorf("partition %s: its checkpoint is at %v already, after %v: %w", lease.Partition, c.Position, to, sluice.ErrFenced)
	}
	c.move(to)
	c.Done = done
	return nil
}

// write applies a change that is not a transaction, through Faults.
func (s *Store) write(op Op, lease sluice.Lease, change func() error) error {
	var way func(apply func() error) error
	if f, found := s.Faults.(WriteFaults); found {
		way = func(apply func() error) error { return f.Write(op, lease, apply) }
	}
	return s.route(way, change)
}

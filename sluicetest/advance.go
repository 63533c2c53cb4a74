package sluicetest

import (
	"context"
	"fmt"
	"slices"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
)

// Advance implements [driver.CheckpointStore]. It keeps all of what is done,
// and refuses ranges that are not in order.
func (s *Store) Advance(ctx context.Context, lease sluice.Lease, to sluice.Position, done []driver.SequenceRange) error {
	if err := s.begin(ctx, OpAdvance, lease); err != nil {
		return err
	}
	next := to.Sequence + 2 // the event right behind the position is not done
	for _, r := range done {
		if r.First < next || r.Last < r.First {
			return fmt.Errorf("partition %s: what is done behind %v is not in order: %v", lease.Partition, to, done)
		}
		next = r.Last + 2
	}
	done = slices.Clone(done)
	return s.write(OpAdvance, lease, func() error { return s.advance(lease, to, done) })
}

// advance is what the database makes of an Advance. The lock is held.
func (s *Store) advance(lease sluice.Lease, to sluice.Position, done []driver.SequenceRange) error {
	c := s.checkpoints[place{lease.Group, lease.Partition}]
	switch {
	case c == nil:
		return fmt.Errorf("partition %s has no checkpoint: %w", lease.Partition, sluice.ErrFenced)
	case !s.Unsafe.NoFence && !c.held(lease):
		return c.fenced()
	case !s.Unsafe.Backwards && c.Position.Sequence > to.Sequence:
		return fmt.Errorf("partition %s: its checkpoint is at %v already, behind %v: %w", lease.Partition, c.Position, to, sluice.ErrFenced)
	}
	c.move(to)
	c.Done = done
	return nil
}

// write takes a change that is no transaction through Faults.
func (s *Store) write(op Op, lease sluice.Lease, change func() error) error {
	var way func(apply func() error) error
	if f, found := s.Faults.(WriteFaults); found {
		way = func(apply func() error) error { return f.Write(op, lease, apply) }
	}
	return s.through(way, change)
}

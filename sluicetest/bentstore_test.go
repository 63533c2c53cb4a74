package sluicetest

import (
	"context"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
)

// handler is what a transaction runs.
type handler = func(ctx context.Context, tx *Tx) error

// bentStore is a store whose methods can be replaced.
type bentStore struct {
	*Store
	claim     func(ctx context.Context, lease sluice.Lease, incarnation string) (sluice.Checkpoint, error)
	start     func(ctx context.Context, lease sluice.Lease, from, to sluice.Position) error
	commit    func(ctx context.Context, step driver.Step, fn handler) error
	record    func(ctx context.Context, lease sluice.Lease, at sluice.Position, attempt driver.AttemptRecord) error
	leave     func(ctx context.Context, lease sluice.Lease) error
	due       func(ctx context.Context, group sluice.Group, partition string, limit int) ([]sluice.DeadLetter, error)
	readDedup func(ctx context.Context, group sluice.Group, partition string) ([]driver.DedupState, error)
	read      func(ctx context.Context, group sluice.Group) ([]sluice.Checkpoint, error)
	reset     func(ctx context.Context, group sluice.Group, partition, incarnation string, to sluice.Position, how driver.How) (int64, error)
}

func (b *bentStore) Claim(ctx context.Context, lease sluice.Lease, incarnation string) (sluice.Checkpoint, error) {
	if b.claim != nil {
		return b.claim(ctx, lease, incarnation)
	}
	return b.Store.Claim(ctx, lease, incarnation)
}

func (b *bentStore) Begin(ctx context.Context, lease sluice.Lease, from, to sluice.Position) error {
	if b.start != nil {
		return b.start(ctx, lease, from, to)
	}
	return b.Store.Begin(ctx, lease, from, to)
}

func (b *bentStore) Commit(ctx context.Context, step driver.Step, fn handler) error {
	if fn == nil {
		fn = func(context.Context, *Tx) error { return nil }
	}
	if b.commit != nil {
		return b.commit(ctx, step, fn)
	}
	return b.Store.Commit(ctx, step, fn)
}

func (b *bentStore) RecordAttempt(ctx context.Context, lease sluice.Lease, at sluice.Position, attempt driver.AttemptRecord) error {
	if b.record != nil {
		return b.record(ctx, lease, at, attempt)
	}
	return b.Store.RecordAttempt(ctx, lease, at, attempt)
}

func (b *bentStore) Leave(ctx context.Context, lease sluice.Lease) error {
	if b.leave != nil {
		return b.leave(ctx, lease)
	}
	return b.Store.Leave(ctx, lease)
}

func (b *bentStore) Due(ctx context.Context, group sluice.Group, partition string, limit int) ([]sluice.DeadLetter, error) {
	if b.due != nil {
		return b.due(ctx, group, partition, limit)
	}
	return b.Store.Due(ctx, group, partition, limit)
}

func (b *bentStore) ReadDedup(ctx context.Context, group sluice.Group, partition string) ([]driver.DedupState, error) {
	if b.readDedup != nil {
		return b.readDedup(ctx, group, partition)
	}
	return b.Store.ReadDedup(ctx, group, partition)
}

func (b *bentStore) Read(ctx context.Context, group sluice.Group) ([]sluice.Checkpoint, error) {
	if b.read != nil {
		return b.read(ctx, group)
	}
	return b.Store.Read(ctx, group)
}

func (b *bentStore) Reset(ctx context.Context, group sluice.Group, partition, incarnation string, to sluice.Position, how driver.How) (int64, error) {
	if b.reset != nil {
		return b.reset(ctx, group, partition, incarnation, to, how)
	}
	return b.Store.Reset(ctx, group, partition, incarnation, to, how)
}

// row is a checkpoint as it is stored, or an empty one.
func (b *bentStore) row(lease sluice.Lease) (row checkpoint) {
	b.edit(lease, func(c *checkpoint) { row = *c })
	return row
}

// edit changes a checkpoint behind the store's back.
func (b *bentStore) edit(lease sluice.Lease, fn func(c *checkpoint)) {
	b.locked(func() {
		c := b.checkpoints[place{lease.Group, lease.Partition}]
		if c == nil {
			c = &checkpoint{}
		}
		fn(c)
	})
}

func (s *Store) locked(fn func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fn()
}

// oneAtATime makes a store a database with one writer, whose transactions wait
// for each other.
func oneAtATime(b *bentStore, good *Store) {
	writer := make(chan struct{}, 1)
	turn := func(ctx context.Context, fn func() error) error {
		select {
		case writer <- struct{}{}:
			defer func() { <-writer }()
			return fn()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	b.commit = func(ctx context.Context, step driver.Step, fn handler) error {
		return turn(ctx, func() error { return good.Commit(ctx, step, fn) })
	}
	b.claim = func(ctx context.Context, lease sluice.Lease, incarnation string) (p sluice.Checkpoint, err error) {
		err = turn(ctx, func() error { p, err = good.Claim(ctx, lease, incarnation); return err })
		return p, err
	}
	b.reset = func(ctx context.Context, group sluice.Group, partition, incarnation string, to sluice.Position, how driver.How) (epoch int64, err error) {
		err = turn(ctx, func() error { epoch, err = good.Reset(ctx, group, partition, incarnation, to, how); return err })
		return epoch, err
	}
}

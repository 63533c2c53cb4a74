package sqlstore

import (
	"context"
	"fmt"
	"slices"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/ranges"
)

// Claim implements [driver.TxStore] and [driver.CheckpointStore]. It waits for a transaction in
// progress on the checkpoint, or in SQLite on the database: until ctx ends if this process runs it, for
// [Config.BusyTimeout] if another one does. What a server does about the session of a paused owner is
// said where the store is opened.
func (s *Store) Claim(ctx context.Context, lease driver.Lease, incarnation string) (driver.Checkpoint, error) {
	c := checkpoint{Checkpoint: driver.Checkpoint{Group: lease.Group, Partition: lease.Partition}}
	of, owner, epoch := key(lease.Group, lease.Partition), clean(lease.Owner), lease.Epoch
	update := write{s.sql.TakeCheckpoint, slices.Concat([]any{epoch, owner, epoch, epoch}, of, []any{epoch, epoch, owner})}
	insert := write{s.sql.AddCheckpoint, slices.Concat(of, []any{clean(incarnation), owner, epoch})}
	read := slices.Concat(of[:3], []any{clean(incarnation), clean(lease.Partition)}, of)
	ours := false
	err := s.seize(ctx, &lease, "claim checkpoint of partition "+lease.Partition, func(ctx context.Context, t *transaction) (err error) {
		if ours, err = s.take(ctx, t, lease, update, insert); err == nil && ours {
			_, err = one(ctx, t, s.sql.Claimed, read, append(c.columns(), &c.DeadLettersBelow)...)
		}
		return err
	})
	switch {
	case err != nil:
		return driver.Checkpoint{}, err
	case !ours:
		return driver.Checkpoint{}, s.fenced(ctx, s.writer, lease, "")
	}
	p, err := c.value()
	if err != nil {
		return p, s.outage(ctx, "read checkpoint of partition "+lease.Partition, err)
	}
	return p, nil
}

// checkpoint is the destination of a row of sluice_checkpoints.
type checkpoint struct {
	driver.Checkpoint
	updated storedTime
	done    string
}

// columns returns the destinations of the columns.
func (c *checkpoint) columns() []any {
	return []any{
		&c.Incarnation, &c.Position.Sequence, &c.Position.Offset, &c.Owner, &c.Epoch, &c.Claims,
		&c.Attempt.Sequence, &c.Attempt.Attempts, &c.Attempt.Error, &c.updated,
		&c.Attempt.DeadLetter, &c.Attempt.Unreturned, &c.done, &c.Began.After, &c.Began.How,
	}
}

// value returns the checkpoint that was scanned.
func (c *checkpoint) value() (p driver.Checkpoint, err error) {
	c.Updated = c.updated.Time
	if !c.Began.Known() {
		c.Began = driver.Beginning{}
	}
	c.Done, err = ranges.Decode(c.Position.Sequence, c.done)
	return c.Checkpoint, err
}

// fenced returns the error for a checkpoint that is not as its owner expects. The statement has
// decided that already; fenced only reads what to say about it. expected is what the owner
// expected, for a checkpoint that is still the lease's.
func (s *Store) fenced(ctx context.Context, q querier, lease driver.Lease, expected string) error {
	var owner string
	var epoch, sequence int64
	found, err := one(ctx, q, s.sql.Holder, key(lease.Group, lease.Partition), &owner, &epoch, &sequence)
	switch {
	case err != nil:
		return fmt.Errorf("partition %s: %w", lease.Partition, driver.ErrFenced)
	case !found:
		return fmt.Errorf("partition %s has no checkpoint: %w", lease.Partition, driver.ErrFenced)
	case expected != "" && epoch == lease.Epoch && owner == clean(lease.Owner):
		return fmt.Errorf("partition %s: checkpoint is at %s, %s: %w", lease.Partition, driver.Position{Sequence: sequence}, expected, driver.ErrFenced)
	}
	return &driver.FencedError{Partition: lease.Partition, Epoch: epoch, Owner: owner}
}

// notAt is what fenced says of a step's position.
func notAt(p driver.Position) string { return "not at " + p.String() }

// Begin implements [driver.TxStore] and [driver.CheckpointStore].
func (s *Store) Begin(ctx context.Context, lease driver.Lease, from, to driver.Position) error {
	args := append([]any{to.Sequence, clean(to.Offset), to.Sequence, string(driver.HowStart)}, leaseArgs(lease)...)
	n, err := s.change(ctx, s.sql.Begin, append(args, from.Sequence)...)
	switch {
	case err != nil:
		return s.outage(ctx, "store the start of partition "+lease.Partition, err)
	case n != 1:
		return s.fenced(ctx, s.writer, lease, notAt(from))
	}
	return nil
}

// RecordAttempt implements [driver.TxStore] and [driver.CheckpointStore].
func (s *Store) RecordAttempt(ctx context.Context, lease driver.Lease, at driver.Position, attempt driver.AttemptRecord) error {
	args := append([]any{attempt.Sequence, attempt.DeadLetter, attempt.Attempts, clean(attempt.Error), attempt.Unreturned}, leaseArgs(lease)...)
	n, err := s.change(ctx, s.sql.Record, append(args, at.Sequence)...)
	switch {
	case err != nil:
		return s.outage(ctx, "record attempt on partition "+lease.Partition, err)
	case n != 1:
		return s.fenced(ctx, s.writer, lease, notAt(at))
	}
	return nil
}

// Leave implements [driver.TxStore] and [driver.CheckpointStore].
func (s *Store) Leave(ctx context.Context, lease driver.Lease) error {
	if _, err := s.change(ctx, s.sql.Leave, leaseArgs(lease)...); err != nil {
		return s.outage(ctx, "leave checkpoint of partition "+lease.Partition, err)
	}
	return nil
}

// Read implements [driver.TxStore] and [driver.CheckpointStore].
func (s *Store) Read(ctx context.Context, group driver.Group) ([]driver.Checkpoint, error) {
	list, err := s.read(ctx, group)
	if err != nil {
		return nil, s.outage(ctx, "read checkpoints of "+group.String(), err)
	}
	return list, nil
}

func (s *Store) read(ctx context.Context, group driver.Group) ([]driver.Checkpoint, error) {
	rows, err := s.reader.QueryContext(ctx, s.sql.Read, key(group, "")[:3]...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []driver.Checkpoint
	for rows.Next() {
		c := checkpoint{Checkpoint: driver.Checkpoint{Group: group}}
		if err := rows.Scan(append([]any{&c.Partition}, c.columns()...)...); err != nil {
			return nil, err
		}
		p, err := c.value()
		if err != nil {
			return nil, fmt.Errorf("partition %s: %w", c.Partition, err)
		}
		list = append(list, p)
	}
	return list, rows.Err()
}

// Reset implements [driver.TxStore] and [driver.CheckpointStore]. The checkpoint then has no owner.
func (s *Store) Reset(ctx context.Context, group driver.Group, partition, incarnation string, to driver.Position, how driver.How) (int64, error) {
	of, position := key(group, partition), []any{clean(incarnation), to.Sequence, clean(to.Offset), to.Sequence, string(how)}
	update, insert := write{s.sql.Reset, slices.Concat(position, of)}, write{s.sql.AddReset, slices.Concat(of, position)}
	var epoch int64
	err := s.seize(ctx, nil, "set checkpoint of partition "+partition, func(ctx context.Context, t *transaction) error {
		if _, err := upsert(ctx, t, s.dialect, update, insert); err != nil {
			return err
		}
		if _, err := changed(ctx, t, s.sql.ResetDedup, slices.Concat(of, []any{to.Sequence})...); err != nil {
			return err
		}
		_, err := one(ctx, t, s.sql.Raised, of, &epoch)
		return err
	})
	return epoch, err
}

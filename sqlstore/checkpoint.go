package sqlstore

import (
	"context"
	"fmt"

	"github.com/sluice-go/sluice"
)

// Claim implements [sluice.TxStore]. A transaction in progress on the database
// is waited for: in this process until ctx ends, in another one for
// [Config.BusyTimeout].
func (s *Store) Claim(ctx context.Context, lease sluice.Lease, incarnation string) (sluice.Progress, error) {
	p := sluice.Progress{Group: lease.Group, Partition: lease.Partition}
	args := append(key(lease.Group, lease.Partition), clean(incarnation), clean(lease.Owner), lease.Epoch)
	var updated storedTime
	ours, err := s.one(ctx, s.sql.claim, args, progressColumns(&p, &updated)...)
	switch {
	case err != nil:
		return sluice.Progress{}, s.outage(ctx, "claim checkpoint of partition "+lease.Partition, err)
	case !ours:
		return sluice.Progress{}, s.fenced(ctx, s.writer, lease, nil)
	}
	p.Updated = updated.Time
	return p, nil
}

// progressColumns are the destinations of a checkpoint's columns.
func progressColumns(p *sluice.Progress, updated *storedTime) []any {
	return []any{
		&p.Incarnation, &p.Position.Sequence, &p.Position.Offset, &p.Owner, &p.Epoch, &p.Claims,
		&p.Trial.Sequence, &p.Trial.Attempts, &p.Trial.Error, updated,
	}
}

// fenced says why a lease's checkpoint is not as its owner expects. The
// refusal itself was the statement's; this only looks for words.
func (s *Store) fenced(ctx context.Context, q querier, lease sluice.Lease, at *sluice.Position) error {
	var owner string
	var epoch, sequence int64
	found, err := one(ctx, q, s.sql.holder, key(lease.Group, lease.Partition), &owner, &epoch, &sequence)
	switch {
	case err != nil:
		return fmt.Errorf("partition %s: %w", lease.Partition, sluice.ErrFenced)
	case !found:
		return fmt.Errorf("partition %s has no checkpoint: %w", lease.Partition, sluice.ErrFenced)
	case at != nil && epoch == lease.Epoch && owner == clean(lease.Owner):
		return fmt.Errorf("partition %s: checkpoint is at %s and not at %s: %w", lease.Partition, sluice.Position{Sequence: sequence}, at, sluice.ErrFenced)
	}
	return &sluice.FencedError{Partition: lease.Partition, Epoch: epoch, Owner: owner}
}

// Record implements [sluice.TxStore].
func (s *Store) Record(ctx context.Context, lease sluice.Lease, at sluice.Position, trial sluice.Trial) error {
	args := append([]any{trial.Sequence, trial.Attempts, clean(trial.Error)}, leaseArgs(lease)...)
	n, err := s.change(ctx, s.sql.record, append(args, at.Sequence)...)
	switch {
	case err != nil:
		return s.outage(ctx, "record attempt on partition "+lease.Partition, err)
	case n != 1:
		return s.fenced(ctx, s.writer, lease, &at)
	}
	return nil
}

// Leave implements [sluice.TxStore].
func (s *Store) Leave(ctx context.Context, lease sluice.Lease) error {
	if _, err := s.change(ctx, s.sql.leave, leaseArgs(lease)...); err != nil {
		return s.outage(ctx, "leave checkpoint of partition "+lease.Partition, err)
	}
	return nil
}

// Read implements [sluice.TxStore].
func (s *Store) Read(ctx context.Context, group sluice.Group) ([]sluice.Progress, error) {
	list, err := s.read(ctx, group)
	if err != nil {
		return nil, s.outage(ctx, "read checkpoints of "+group.String(), err)
	}
	return list, nil
}

func (s *Store) read(ctx context.Context, group sluice.Group) ([]sluice.Progress, error) {
	rows, err := s.reader.QueryContext(ctx, s.sql.read, key(group, "")[:3]...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []sluice.Progress
	for rows.Next() {
		p := sluice.Progress{Group: group}
		var updated storedTime
		if err := rows.Scan(append([]any{&p.Partition}, progressColumns(&p, &updated)...)...); err != nil {
			return nil, err
		}
		p.Updated = updated.Time
		list = append(list, p)
	}
	return list, rows.Err()
}

// Reset implements [sluice.TxStore]. The checkpoint then has no owner.
func (s *Store) Reset(ctx context.Context, group sluice.Group, partition, incarnation string, to sluice.Position) (int64, error) {
	var epoch int64
	args := append(key(group, partition), clean(incarnation), to.Sequence, clean(to.Offset))
	if _, err := s.one(ctx, s.sql.reset, args, &epoch); err != nil {
		return 0, s.outage(ctx, "set checkpoint of partition "+partition, err)
	}
	return epoch, nil
}

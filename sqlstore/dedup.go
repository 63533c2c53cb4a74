package sqlstore

import (
	"context"
	"math"
	"slices"

	"github.com/sluice-go/sluice/driver"
)

// storeDedup stores what a step has seen, and removes what that lets forget.
func (s *Store) storeDedup(ctx context.Context, t *transaction, step driver.Step) error {
	if len(step.Dedup) == 0 && len(step.DedupForgotten) == 0 {
		return nil
	}
	if err := s.writeDedup(ctx, t, step); err != nil {
		return s.outage(ctx, "store causation IDs", err)
	}
	return nil
}

func (s *Store) writeDedup(ctx context.Context, t *transaction, step driver.Step) error {
	of := key(step.Lease.Group, step.Lease.Partition)
	if !step.DedupSince.IsZero() {
		if _, err := changed(ctx, t, s.sql.ExpireDedup, slices.Concat(of, []any{s.dialect.time(step.DedupSince)})...); err != nil {
			return err
		}
	}
	forget, err := t.PrepareContext(ctx, s.sql.ForgetDedup)
	if err != nil {
		return err
	}
	defer forget.Close()
	for _, origin := range step.DedupForgotten {
		if _, err := forget.ExecContext(ctx, slices.Concat(of, []any{clean(origin), int64(math.MaxInt64), step.To.Sequence})...); err != nil {
			return err
		}
	}
	see, err := t.PrepareContext(ctx, s.sql.StoreDedup)
	if err != nil {
		return err
	}
	defer see.Close()
	for i := range step.Dedup {
		seen := &step.Dedup[i]
		origin := clean(seen.Origin)
		if _, err := forget.ExecContext(ctx, slices.Concat(of, []any{origin, seen.Forget, step.To.Sequence})...); err != nil {
			return err
		}
		row := []any{origin, step.To.Sequence, seen.Epoch, seen.Low, seen.Top, s.dialect.time(seen.At), seen.IDs}
		if _, err := see.ExecContext(ctx, slices.Concat(of, row)...); err != nil {
			return err
		}
	}
	return nil
}

// ReadDedup implements [driver.TxStore].
func (s *Store) ReadDedup(ctx context.Context, group driver.Group, partition string) ([]driver.DedupState, error) {
	list, err := s.readDedup(ctx, group, partition)
	if err != nil {
		return nil, s.outage(ctx, "read causation IDs of partition "+partition, err)
	}
	return list, nil
}

func (s *Store) readDedup(ctx context.Context, group driver.Group, partition string) ([]driver.DedupState, error) {
	rows, err := s.reader.QueryContext(ctx, s.sql.ReadDedup, key(group, partition)...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []driver.DedupState
	for rows.Next() {
		var seen driver.DedupState
		var at storedTime
		if err := rows.Scan(&seen.Origin, &seen.Epoch, &seen.Low, &seen.Top, &at, &seen.IDs); err != nil {
			return nil, err
		}
		seen.At = at.Time
		list = append(list, seen)
	}
	return list, rows.Err()
}

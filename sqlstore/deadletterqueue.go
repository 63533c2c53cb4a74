package sqlstore

import (
	"context"
	"fmt"
	"slices"

	"github.com/sluice-go/sluice/driver"
)

// Park implements [driver.DeadLetterQueue], in one transaction.
func (s *Store) Park(ctx context.Context, deadLetters []driver.DeadLetter) error {
	return s.inTransaction(ctx, func(t *transaction) error { return s.park(ctx, t, deadLetters) })
}

// park stores dead letters. Those that are stored already keep their ID and their event.
func (s *Store) park(ctx context.Context, t *transaction, deadLetters []driver.DeadLetter) error {
	if len(deadLetters) == 0 {
		return nil
	}
	stmt, err := t.PrepareContext(ctx, s.sql.park)
	if err != nil {
		return s.outage(ctx, "store dead letters", err)
	}
	defer stmt.Close()
	for i := range deadLetters {
		d := &deadLetters[i]
		what := fmt.Sprintf("store dead letter of event %d", d.Event.Sequence)
		args, err := deadLetterArgs(d)
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		if _, err := stmt.ExecContext(ctx, args...); err != nil {
			return s.outage(ctx, what, err)
		}
	}
	return nil
}

// Settle implements [driver.DeadLetterQueue], in one transaction.
func (s *Store) Settle(ctx context.Context, group driver.Group, redriven []int64, failed []driver.DeadLetter) error {
	of := key(group, "")[:3]
	return s.inTransaction(ctx, func(t *transaction) error {
		if len(redriven) > 0 {
			if _, err := changed(ctx, t, s.sql.settleRedriven, slices.Concat(of, []any{array(redriven)})...); err != nil {
				return s.outage(ctx, "remove dead letters", err)
			}
		}
		for i := range failed {
			d := &failed[i]
			if _, err := changed(ctx, t, s.sql.settleFailed, slices.Concat(failureArgs(d), of, []any{d.ID})...); err != nil {
				return s.outage(ctx, fmt.Sprintf("update dead letter %d after a failed redrive", d.ID), err)
			}
		}
		return nil
	})
}

// inTransaction runs a transaction without a handler.
func (s *Store) inTransaction(ctx context.Context, fn func(t *transaction) error) error {
	t, err := s.begin(ctx)
	if err != nil {
		return s.outage(ctx, "begin transaction", err)
	}
	defer t.end()
	if err := fn(t); err != nil {
		return err
	}
	if !t.detach() {
		return s.outage(ctx, "commit", ctx.Err())
	}
	if err := t.Commit(); err != nil {
		return s.outage(context.WithoutCancel(ctx), "commit", err)
	}
	return nil
}

// Parked implements [driver.DeadLetterQueue].
func (s *Store) Parked(ctx context.Context, group driver.Group, partition, incarnation string, after int64) ([]int64, error) {
	args := append(key(group, "")[:3], clean(incarnation), clean(partition), after)
	numbers, err := collect(ctx, s.reader, func(n *int64) []any { return []any{n} }, s.sql.parked, args)
	if err != nil {
		return nil, s.outage(ctx, "read sequence numbers of dead letters of partition "+partition, err)
	}
	return numbers, nil
}

// Held implements [driver.DeadLetterQueue].
func (s *Store) Held(ctx context.Context, group driver.Group, partition string, except []int64) ([]driver.HeldKey, error) {
	keys, err := collect(ctx, s.reader, func(k *driver.HeldKey) []any { return []any{&k.Key, &k.Incarnation, &k.First} }, s.sql.held, append(key(group, partition), array(except)))
	if err != nil {
		return nil, s.outage(ctx, "read keys of dead letters of partition "+partition, err)
	}
	return keys, nil
}

// collect reads a statement's rows. columns returns what a row's columns are read into.
func collect[T any](ctx context.Context, q querier, columns func(*T) []any, query string, args []any) ([]T, error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []T
	for rows.Next() {
		var v T
		if err := rows.Scan(columns(&v)...); err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, rows.Err()
}

package sqlstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-go/sluice/driver"
)

// Park implements [driver.DeadLetterQueue], in one transaction.
func (s *Store) Park(ctx context.Context, deadLetters []driver.DeadLetter) error {
	return s.inTransaction(ctx, "store dead letters", func(t *transaction) error { return s.park(ctx, t, deadLetters) })
}

// park stores dead letters. Those that are stored already keep their ID and their event.
func (s *Store) park(ctx context.Context, t *transaction, deadLetters []driver.DeadLetter) error {
	if len(deadLetters) == 0 {
		return nil
	}
	ordered := inOrder(deadLetters)
	rows := make([][]any, len(ordered))
	for i, d := range ordered {
		var err error
		if rows[i], err = s.deadLetterArgs(d); err != nil {
			return fmt.Errorf("dead letter of event %d: %w", d.Event.Sequence, err)
		}
	}
	if done, err := s.dialect.park(ctx, t, rows); done || err != nil {
		return err
	}
	stmt, err := t.PrepareContext(ctx, s.sql.Park)
	if err != nil {
		return err
	}
	defer stmt.Close()
	for i, row := range rows {
		if _, err := stmt.ExecContext(ctx, row...); err != nil {
			return fmt.Errorf("dead letter of event %d: %w", ordered[i].Event.Sequence, err)
		}
	}
	return nil
}

// inOrder returns dead letters in the order of their keys, in which every process locks their rows:
// two that store the same ones do not wait for each other.
func inOrder(deadLetters []driver.DeadLetter) []*driver.DeadLetter {
	list := make([]*driver.DeadLetter, len(deadLetters))
	for i := range deadLetters {
		list[i] = &deadLetters[i]
	}
	slices.SortStableFunc(list, func(a, b *driver.DeadLetter) int {
		return cmp.Or(strings.Compare(a.Event.Partition, b.Event.Partition), cmp.Compare(a.Event.Sequence, b.Event.Sequence))
	})
	return list
}

// Settle implements [driver.DeadLetterQueue], in one transaction.
func (s *Store) Settle(ctx context.Context, group driver.Group, redriven []int64, failed []driver.DeadLetter) error {
	of := key(group, "")[:3]
	return s.inTransaction(ctx, "settle redrives", func(t *transaction) error {
		if len(redriven) > 0 {
			if _, err := changed(ctx, t, s.sql.SettleRedriven, slices.Concat(of, []any{array(redriven)})...); err != nil {
				return fmt.Errorf("remove dead letters: %w", err)
			}
		}
		for i := range failed {
			d := &failed[i]
			if _, err := changed(ctx, t, s.sql.SettleFailed, slices.Concat(s.failureArgs(d), of, []any{d.ID})...); err != nil {
				return fmt.Errorf("update dead letter %d after a failed redrive: %w", d.ID, err)
			}
		}
		return nil
	})
}

// Parked implements [driver.DeadLetterQueue].
func (s *Store) Parked(ctx context.Context, group driver.Group, partition, incarnation string, after int64) ([]driver.ParkedEvent, error) {
	parked, err := s.parked(ctx, s.reader, group, partition, incarnation, after)
	if err != nil {
		return nil, s.outage(ctx, "read sequence numbers of dead letters of partition "+partition, err)
	}
	return parked, nil
}

func (s *Store) parked(ctx context.Context, q querier, group driver.Group, partition, incarnation string, after int64) ([]driver.ParkedEvent, error) {
	args := append(key(group, "")[:3], clean(incarnation), clean(partition), after)
	return collect(ctx, q, func(p *driver.ParkedEvent) []any { return []any{&p.ID, &p.Position.Sequence, &p.Position.Offset} }, s.sql.Parked, args)
}

// SetAside implements [driver.DeadLetterQueue] and [driver.TxStore], in one transaction.
func (s *Store) SetAside(ctx context.Context, group driver.Group, partition, incarnation string, lost []driver.ParkedEvent) error {
	if len(lost) == 0 {
		return ctx.Err()
	}
	of := key(group, "")[:3]
	return s.inTransaction(ctx, "set dead letters aside", func(t *transaction) error {
		there, err := s.parked(ctx, t, group, partition, incarnation, driver.Unset.Sequence)
		if err != nil {
			return err
		}
		aside, double := apart(lost, there)
		if len(double) > 0 {
			if _, err := changed(ctx, t, s.sql.Drop, slices.Concat(of, []any{array(double)})...); err != nil {
				return err
			}
		}
		_, err = changed(ctx, t, s.sql.SetAside, slices.Concat([]any{clean(incarnation)}, of, []any{array(aside)})...)
		return err
	})
}

// apart returns the IDs of dead letters to be set aside, and of those whose events have another
// dead letter there.
func apart(lost, there []driver.ParkedEvent) (aside, double []int64) {
	taken := make(map[int64]int64, len(there))
	for _, p := range there {
		taken[p.Position.Sequence] = p.ID
	}
	for _, p := range lost {
		if id, is := taken[p.Position.Sequence]; is && id != p.ID {
			double = append(double, p.ID)
		} else {
			aside = append(aside, p.ID)
		}
	}
	return aside, double
}

// Held implements [driver.DeadLetterQueue].
func (s *Store) Held(ctx context.Context, group driver.Group, partition string, except []int64) ([]driver.HeldKey, error) {
	keys, err := collect(ctx, s.reader, func(k *driver.HeldKey) []any { return []any{&k.Key, &k.Incarnation, &k.First} }, s.sql.Held, append(key(group, partition), array(except)))
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

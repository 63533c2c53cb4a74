package pgstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/sluice-go/sluice/driver"
)

// parkBytes bounds how much is sent at a time: until it is sent, it is in memory twice.
const parkBytes = 8 << 20

// Park implements [driver.DeadLetterQueue], in one transaction, and in one round
// trip unless the bodies are large.
func (s *Store) Park(ctx context.Context, deadLetters []driver.DeadLetter) error {
	if len(deadLetters) == 0 {
		return ctx.Err()
	}
	// In one order, so that two calls that park the same cannot deadlock.
	sorted := make([]*driver.DeadLetter, len(deadLetters))
	for i := range deadLetters {
		sorted[i] = &deadLetters[i]
	}
	slices.SortStableFunc(sorted, byIdentity)
	err := s.batch(ctx, func(b *pgx.Batch, flush func() error) error {
		bytes := 0
		for _, d := range sorted {
			if bytes += len(d.Event.Body); bytes > parkBytes {
				if err := flush(); err != nil {
					return err
				}
				bytes = len(d.Event.Body)
			}
			s.park(b, d.Group, d.Event.Partition, d)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("store %d dead letters: %w", len(deadLetters), err)
	}
	return nil
}

func byIdentity(a, b *driver.DeadLetter) int {
	return cmp.Or(
		cmp.Compare(a.Group.Namespace, b.Group.Namespace), cmp.Compare(a.Group.Topic, b.Group.Topic), cmp.Compare(a.Group.Name, b.Group.Name),
		cmp.Compare(a.Incarnation, b.Incarnation), cmp.Compare(a.Event.Partition, b.Event.Partition), cmp.Compare(a.Event.Sequence, b.Event.Sequence),
	)
}

// batch runs statements in one transaction, sent when all are queued or at a flush. They wait only
// for [Config.LockTimeout] for rows that another session holds: it may be an earlier one whose loss
// the server has not detected yet.
func (s *Store) batch(ctx context.Context, queue func(b *pgx.Batch, flush func() error) error) error {
	conn, err := acquire(ctx, s.pool)
	if err != nil {
		return err
	}
	defer conn.Release() // the pool closes a connection that is still in a transaction
	var b pgx.Batch
	b.BeginTx(readCommitted)
	s.cfg.limits().queue(&b)
	flush := func() error {
		br := conn.SendBatch(ctx, &b)
		for range b.Len() {
			if _, err := br.Exec(); err != nil {
				br.Close()
				return err
			}
		}
		b = pgx.Batch{}
		return br.Close()
	}
	if err := queue(&b, flush); err != nil {
		return err
	}
	b.Queue(`COMMIT`)
	return flush()
}

const (
	settledSQL = `
WHERE namespace = $1 AND topic = $2 AND consumer_group = $3 AND status = 'retry'`
	// lockSQL takes what is to be settled in the order in which commands do.
	lockSQL     = `SELECT FROM @sluice_dead_letters` + settledSQL + ` AND id = ANY ($4) ORDER BY id FOR UPDATE`
	appliedSQL  = `DELETE FROM @sluice_dead_letters` + settledSQL + ` AND id = ANY ($4)`
	returnedSQL = `
UPDATE @sluice_dead_letters
SET failed_at = coalesce($5, clock_timestamp()), error = $6, attempts = $7, status = $8, next_attempt = $9` + settledSQL + ` AND id = $4`
)

// Settle implements [driver.DeadLetterQueue], in one transaction and one round
// trip.
func (s *Store) Settle(ctx context.Context, group driver.Group, redriven []int64, failed []driver.DeadLetter) error {
	if len(redriven)+len(failed) == 0 {
		return ctx.Err()
	}
	err := s.batch(ctx, func(b *pgx.Batch, _ func() error) error {
		ids := append([]int64{}, redriven...)
		for i := range failed {
			ids = append(ids, failed[i].ID)
		}
		b.Queue(s.sql.text(lockSQL), group.Namespace, group.Topic, group.Name, ids)
		b.Queue(s.sql.text(appliedSQL), group.Namespace, group.Topic, group.Name, ids[:len(redriven)])
		for i := range failed {
			d := &failed[i]
			b.Queue(s.sql.text(returnedSQL), group.Namespace, group.Topic, group.Name, d.ID,
				timeOrNull(d.FailedAt), clean(d.Error), d.Attempts, string(d.Status), nextAttempt(d))
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("settle dead letters: %w", err)
	}
	return nil
}

const parkedSQL = `
SELECT id, sequence_number, event_offset FROM @sluice_dead_letters
WHERE namespace = $1 AND topic = $2 AND consumer_group = $3 AND incarnation = $4 AND partition = $5 AND sequence_number > $6
ORDER BY sequence_number`

// Parked implements [driver.DeadLetterQueue].
func (s *Store) Parked(ctx context.Context, group driver.Group, partition, incarnation string, after int64) ([]driver.ParkedEvent, error) {
	parked, err := collect(ctx, s, scanParked, parkedSQL, group.Namespace, group.Topic, group.Name, clean(incarnation), partition, after)
	if err != nil {
		return nil, fmt.Errorf("read what is parked of partition %s: %w", partition, err)
	}
	return parked, nil
}

func scanParked(row pgx.CollectableRow) (p driver.ParkedEvent, err error) {
	return p, row.Scan(&p.ID, &p.Position.Sequence, &p.Position.Offset)
}

const (
	ofLostSQL     = `WHERE d.namespace = $1 AND d.topic = $2 AND d.consumer_group = $3 AND d.partition = $4 AND d.incarnation <> $5 AND d.id = ANY ($6)`
	lockLostSQL   = `SELECT FROM @sluice_dead_letters AS d ` + ofLostSQL + ` ORDER BY d.id FOR UPDATE`
	dropDoubleSQL = `
DELETE FROM @sluice_dead_letters AS d ` + ofLostSQL + ` AND EXISTS (
  SELECT FROM @sluice_dead_letters AS o
  WHERE o.namespace = d.namespace AND o.topic = d.topic AND o.consumer_group = d.consumer_group AND o.partition = d.partition
    AND o.incarnation = $5 AND o.sequence_number = d.sequence_number)`
	setAsideSQL = `UPDATE @sluice_dead_letters AS d SET incarnation = $5 ` + ofLostSQL
)

// SetAside implements [driver.DeadLetterQueue] and [driver.TxStore], in one transaction and one
// round trip.
func (s *Store) SetAside(ctx context.Context, group driver.Group, partition, incarnation string, lost []driver.ParkedEvent) error {
	if len(lost) == 0 {
		return ctx.Err()
	}
	ids := idsOf(lost)
	err := s.batch(ctx, func(b *pgx.Batch, _ func() error) error {
		for _, sql := range []string{lockLostSQL, dropDoubleSQL, setAsideSQL} {
			b.Queue(s.sql.text(sql), group.Namespace, group.Topic, group.Name, partition, clean(incarnation), ids)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("set aside %d dead letters of partition %s: %w", len(lost), partition, err)
	}
	return nil
}

const heldSQL = `
SELECT partition_key, incarnation, min(sequence_number) FROM @sluice_dead_letters
WHERE namespace = $1 AND topic = $2 AND consumer_group = $3 AND partition = $4 AND status <> 'discarded' AND partition_key <> ''
	AND id <> ALL (coalesce($5::bigint[], '{}'))
GROUP BY partition_key, incarnation`

// Held implements [driver.DeadLetterQueue]. An event without a key holds nothing
// back.
func (s *Store) Held(ctx context.Context, group driver.Group, partition string, except []int64) ([]driver.HeldKey, error) {
	keys, err := collect(ctx, s, pgx.RowToStructByPos[driver.HeldKey], heldSQL, group.Namespace, group.Topic, group.Name, partition, except)
	if err != nil {
		return nil, fmt.Errorf("read keys of dead letters of partition %s: %w", partition, err)
	}
	return keys, nil
}

// collect reads a statement's rows.
func collect[T any](ctx context.Context, s *Store, row pgx.RowToFunc[T], sql string, args ...any) ([]T, error) {
	conn, err := acquire(ctx, s.pool)
	if err != nil {
		return nil, err
	}
	defer conn.Release()
	rows, _ := conn.Query(ctx, s.sql.text(sql), args...) // CollectRows returns the error
	return pgx.CollectRows(rows, row)
}

package pgstore

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sluice-go/sluice/driver"
)

const (
	ofSeen    = ` WHERE namespace = $1 AND topic = $2 AND consumer_group = $3 AND partition = $4`
	expireSQL = `DELETE FROM @sluice_seen` + ofSeen + ` AND seen_at < $5`
	// forgetSQL also removes what is after the step: a binary that knows only
	// version 2 of the schema may have moved the checkpoint back.
	forgetSQL = `
DELETE FROM @sluice_seen USING unnest($5::text[], $6::bigint[]) AS forgotten (of, up_to)` + ofSeen + ` AND origin = of AND (top <= up_to OR step >= $7)`
	seeSQL = `
INSERT INTO @sluice_seen (namespace, topic, consumer_group, partition, step, origin, epoch, low, top, seen_at, ids)
SELECT $1, $2, $3, $4, $5, * FROM unnest($6::text[], $7::bigint[], $8::bigint[], $9::bigint[], $10::timestamptz[], $11::text[])
ON CONFLICT (namespace, topic, consumer_group, partition, origin, step) DO UPDATE
SET epoch = excluded.epoch, low = excluded.low, top = excluded.top, seen_at = excluded.seen_at, ids = excluded.ids`
	seenSQL = `SELECT origin, epoch, low, top, seen_at, ids FROM @sluice_seen` + ofSeen + `
AND step <= (SELECT sequence_number FROM @sluice_checkpoints` + ofSeen + `) ORDER BY step`
)

// storeDedup queues the statements that store a step's deduplication state and remove what it
// replaces: three at most, however many origins there are.
func (st *step) storeDedup(b *pgx.Batch) {
	n := len(st.Dedup)
	if n == 0 && len(st.DedupForgotten) == 0 {
		return
	}
	of := func(args ...any) []any { return append(leaseArgs(st.Lease)[:4], args...) }
	if !st.DedupSince.IsZero() {
		b.Queue(st.store.sql.text(expireSQL), of(st.DedupSince)...)
	}
	origins, ids, times := make([]string, n), make([]string, n), make([]time.Time, n)
	epochs, lows, tops, forget := make([]int64, n), make([]int64, n), make([]int64, n), make([]int64, n)
	for i := range st.Dedup {
		s := &st.Dedup[i]
		origins[i], ids[i], times[i] = clean(s.Origin), s.IDs, s.At
		epochs[i], lows[i], tops[i], forget[i] = s.Epoch, s.Low, s.Top, s.Forget
	}
	gone, upTo := slices.Clone(origins), forget
	for _, origin := range st.DedupForgotten {
		gone, upTo = append(gone, clean(origin)), append(upTo, math.MaxInt64)
	}
	b.Queue(st.store.sql.text(forgetSQL), of(gone, upTo, st.To.Sequence)...)
	b.Queue(st.store.sql.text(seeSQL), of(st.To.Sequence, origins, epochs, lows, tops, times, ids)...)
}

// ReadDedup implements [driver.TxStore].
func (s *Store) ReadDedup(ctx context.Context, group driver.Group, partition string) ([]driver.DedupState, error) {
	list, err := s.seen(ctx, group, partition)
	if err != nil {
		return nil, fmt.Errorf("read causation IDs of partition %s: %w", partition, err)
	}
	return list, nil
}

func (s *Store) seen(ctx context.Context, group driver.Group, partition string) ([]driver.DedupState, error) {
	conn, err := acquire(ctx, s.pool)
	if err != nil {
		return nil, err
	}
	defer conn.Release()
	rows, _ := conn.Query(ctx, s.sql.text(seenSQL), group.Namespace, group.Topic, group.Name, partition) // CollectRows returns the error
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (seen driver.DedupState, err error) {
		err = row.Scan(&seen.Origin, &seen.Epoch, &seen.Low, &seen.Top, &seen.At, &seen.IDs)
		return seen, err
	})
}

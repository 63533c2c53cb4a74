package outbox

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/sluice-go/sluice/driver"
)

// numberAll numbers all rows of a partition that were committed before the call, and returns the
// state after the last of them.
func (s *Source) numberAll(ctx context.Context, p int) (state, error) {
	for {
		n, st, err := s.number(ctx, p)
		if err != nil || n < s.cfg.Batch {
			return st, err
		}
	}
}

// number gives the next numbers to rows that have none, at most a batch, and returns how many it
// has numbered and the state after them.
//
// The lock of the partition's row is the fence: it is held from before the rows are read until
// COMMIT, so no two processes read the same rows, and one that was paused holds it or begins again.
// Rows are read in one consistent view and without locks, so that an open transaction of a writer
// delays nothing but its own rows: a row of the same key that was written later is not in the view
// either.
func (s *Source) number(ctx context.Context, p int) (n int, st state, err error) {
	err = s.locked(ctx, p, func(ctx context.Context, tx *sql.Tx, before state) error {
		st = before
		ids, err := s.unnumbered(ctx, tx, p)
		if err != nil || len(ids) == 0 {
			return err
		}
		list, err := json.Marshal(ids)
		if err != nil {
			return err
		}
		next := s.nextTag(before.lastTag)
		changed, err := s.sql.number.exec(ctx, tx, args{"ids": string(list), "head": before.head, "tag": int64(next)})
		if err != nil {
			return err
		}
		if changed != int64(len(ids)) {
			return fmt.Errorf("%d rows got numbers and %d were to get them: something else changed them meanwhile; nothing was numbered", changed, len(ids))
		}
		n, st.head, st.lastTag = len(ids), before.head+int64(len(ids)), next
		return s.advance(ctx, tx, p, before, st)
	})
	if err != nil {
		return 0, st, err
	}
	return n, st, nil
}

// locked runs do in a transaction that holds the lock of a partition's row, and commits it.
func (s *Source) locked(ctx context.Context, p int, do func(ctx context.Context, tx *sql.Tx, st state) error) error {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	tx, err := s.db.BeginTx(ctx, s.dialect.txOptions())
	if err != nil {
		return err
	}
	defer tx.Rollback()
	var st state
	if err := s.sql.lock.one(ctx, tx, args{"part": p}, st.fields()...); err != nil {
		return err
	}
	if err := do(ctx, tx, st); err != nil {
		return err
	}
	if s.beforeCommit != nil {
		s.beforeCommit()
	}
	return tx.Commit()
}

// unnumbered returns the ids of the oldest rows that have no number.
func (s *Source) unnumbered(ctx context.Context, tx *sql.Tx, p int) ([]int64, error) {
	rows, err := s.sql.unnumbered.query(ctx, tx, args{"part": p, "limit": s.cfg.Batch})
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var ids []int64
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}

// advance replaces the state of a partition, if it still is what was locked.
func (s *Source) advance(ctx context.Context, tx *sql.Tx, p int, from, to state) error {
	changed, err := s.sql.advance.exec(ctx, tx, args{
		"part": p, "incarnation": from.incarnation, "oldHead": from.head, "oldFirst": from.first,
		"head": to.head, "first": to.first, "firstTag": int64(to.firstTag), "tag": int64(to.lastTag),
	})
	if err == nil && changed != 1 {
		err = errors.New("its row in the table of partitions changed while it was locked: the transaction has ended; nothing was numbered")
	}
	return err
}

// nextTag returns a tag for a transaction after the one of last.
func (s *Source) nextTag(last tag) tag {
	random := tag(rand.Int64N(1<<randomBits-1) + 1)
	return max(tag(s.clock.Wall().UnixMilli()<<randomBits), last&^(1<<randomBits-1)+1<<randomBits) | random
}

// compare returns what a position shows about the table: nil if the next event to read is the one
// after it. here is the tag of its number, 0 if that is not known.
func (s *Source) compare(ctx context.Context, p int, partition string, at driver.Position, st state, here tag) error {
	known := parseTag(at.Offset)
	switch {
	case at.Sequence >= st.head && known == 0:
		return fmt.Errorf("position %v of partition %s, whose next number is %d: %w", at, partition, st.head, driver.ErrPastEnd)
	case at.Sequence < st.first-1:
		return &driver.RetentionError{Partition: partition, After: at.Sequence, First: st.first}
	case at.Sequence < st.head && (known == 0 || here == 0 || known == here):
		return nil
	}
	// The table was set back. Its rows of a later time than the position's are not the same.
	var n sql.NullInt64
	if err := s.sql.changed.one(ctx, s.db, args{"part": p, "tag": int64(known)}, &n); err != nil {
		return err
	}
	end := min(st.head, at.Sequence)
	if n.Valid {
		end = min(end, n.Int64)
	}
	return &driver.TruncatedError{Partition: partition, Position: at, End: end}
}

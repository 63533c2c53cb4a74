package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"time"

	"github.com/sluice-go/sluice/driver"
)

// tag names the transaction that numbered a row: its time in milliseconds, and random bits below.
// Of two rows of a partition the later one has no lower tag. It is the event's offset, by which a
// position shows whether the table still has what it had. 0: not known.
type tag int64

const randomBits = 20

func (t tag) offset() string {
	if t == 0 {
		return ""
	}
	return fmt.Sprintf("%016x", int64(t))
}

// parseTag returns 0 for an offset of another log.
func parseTag(offset string) tag {
	if len(offset) != 16 {
		return 0
	}
	n, err := strconv.ParseInt(offset, 16, 64)
	if err != nil {
		return 0
	}
	return tag(n)
}

// time is when the row was numbered.
func (t tag) time() time.Time { return time.UnixMilli(int64(t) >> randomBits) }

// state is a partition's row.
type state struct {
	incarnation string
	head        int64 // the next number
	first       int64 // the oldest number that is held
	firstTag    tag   // of the number before first
	lastTag     tag   // of the number before head
}

// fields are the columns of a state, as every statement returns them.
func (st *state) fields() []any {
	return []any{&st.incarnation, &st.head, &st.first, &st.firstTag, &st.lastTag}
}

// Bounds implements [driver.Source]. Committed rows that have no number yet count: the next reader
// numbers them.
func (s *Source) Bounds(ctx context.Context, partition string) (driver.Bounds, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	b, err := s.bounds(ctx, partition)
	return b, s.failed(ctx, "bounds of partition "+partition, err)
}

func (s *Source) bounds(ctx context.Context, partition string) (b driver.Bounds, err error) {
	p, err := s.partition(ctx, partition)
	if err != nil {
		return b, err
	}
	var st state
	var fresh int64
	var enqueued sql.NullInt64
	if err := s.sql.bounds.one(ctx, s.db, args{"part": p}, append(st.fields(), &fresh, &enqueued)...); err != nil {
		return b, err
	}
	b.First, b.Last = st.first, driver.Position{Sequence: st.head - 1 + fresh}
	if fresh == 0 && st.head > 0 {
		b.Last.Offset = st.lastTag.offset()
	}
	if enqueued.Valid {
		b.LastEnqueued = time.UnixMicro(enqueued.Int64).UTC()
	}
	return b, nil
}

// Seek implements [driver.Source]. An offset is a sequence number.
func (s *Source) Seek(ctx context.Context, partition string, start driver.Start, _ int64) (driver.Position, error) {
	position, err := s.seek(ctx, partition, start)
	return position, s.failed(ctx, "seek in partition "+partition, err)
}

func (s *Source) seek(ctx context.Context, partition string, start driver.Start) (at driver.Position, err error) {
	p, err := s.partition(ctx, partition)
	if err != nil {
		return at, err
	}
	st, err := s.numberAll(ctx, p)
	if err != nil {
		return at, err
	}
	bounded, cancel := s.bounded(ctx)
	defer cancel()
	next := st.head
	switch start.Kind {
	case driver.StartEarliest:
		next = st.first
	case driver.StartLatest:
	case driver.StartTime, driver.StartAgo:
		since := start.Time
		if start.Kind == driver.StartAgo {
			since = s.clock.Wall().Add(-start.Ago)
		}
		var n sql.NullInt64
		if err := s.sql.seek.one(bounded, s.db, args{"part": p, "since": s.dialect.time(since)}, &n); err != nil {
			return at, err
		}
		if n.Valid {
			next = n.Int64
		}
	case driver.StartSequence:
		next = min(start.Sequence, st.head)
	case driver.StartOffset:
		n, err := strconv.ParseInt(start.Offset, 10, 64)
		if err != nil || n < 0 {
			return at, fmt.Errorf("%w: offset %q: an offset of an outbox is a sequence number", driver.ErrRefused, start.Offset)
		}
		next = min(n, st.head)
	default:
		return at, fmt.Errorf("%w: start of an unknown kind %d", driver.ErrRefused, start.Kind)
	}
	at.Sequence = max(next, 0) - 1
	t, err := s.tagAt(bounded, p, st, at.Sequence)
	at.Offset = t.offset()
	return at, err
}

// tagAt returns the tag of a number, 0 if it is not known.
func (s *Source) tagAt(ctx context.Context, p int, st state, n int64) (tag, error) {
	switch {
	case n < 0 || n < st.first-1:
		return 0, nil
	case n == st.first-1:
		return st.firstTag, nil
	}
	var t sql.NullInt64
	err := s.sql.tagAt.one(ctx, s.db, args{"part": p, "n": n}, &t)
	return tag(t.Int64), err
}

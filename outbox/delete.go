package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"time"

	"github.com/sluice-go/sluice/driver"
)

// A reader deletes one batch of its partition at a time, so that events wait for no more: the next
// one soon after a full batch, else later.
const (
	deleteSoon  = 100 * time.Millisecond
	deleteLater = 10 * time.Second
)

// Reader is a consumer group of an outbox, and where its checkpoints are.
type Reader struct {
	Group string // name of the group; empty: [Config.ConsumerGroup]
	// Checkpoints are in the store of the group's consumers: a [driver.TxStore] or a
	// [driver.CheckpointStore].
	Checkpoints interface {
		Read(ctx context.Context, group driver.Group) ([]driver.Checkpoint, error)
	}
}

// deletion is what [Source.DeleteAfter] has set.
type deletion struct {
	keep    time.Duration
	readers []Reader
	next    map[int]time.Duration // when rows of a partition are deleted next, on the clock's Elapsed
}

// DeleteAfter has the source's readers delete rows once the checkpoints of all these groups have
// passed them and keep has passed since they got their numbers. Every group that reads the outbox
// must be among them: one that is not loses events, which its partitions report as a
// [driver.RetentionError]. A group without a checkpoint keeps all rows. Rows without a number are
// never deleted. Call it before the source is opened; without it no row is deleted.
func (s *Source) DeleteAfter(keep time.Duration, readers ...Reader) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deletion = deletion{keep: keep, readers: readers, next: map[int]time.Duration{}}
}

// deleteDue deletes rows of a partition if it is time.
func (s *Source) deleteDue(ctx context.Context, p int) error {
	s.mu.Lock()
	d := s.deletion
	now := s.clock.Elapsed()
	next, set := d.next[p]
	due := len(d.readers) > 0 && (!set || now >= next)
	if due {
		d.next[p] = now + deleteLater
	}
	s.mu.Unlock()
	if !due {
		return nil
	}
	wait := deleteLater
	defer func() { // from its end on: it may have taken as long as Timeout
		s.mu.Lock()
		defer s.mu.Unlock()
		d.next[p] = s.clock.Elapsed() + wait
	}()
	end, err := s.allPassed(ctx, p, d.readers)
	if err != nil {
		return fmt.Errorf("which rows may be deleted: %w", err)
	}
	n, err := s.deleteBatch(ctx, p, end, d.keep)
	if err != nil {
		return fmt.Errorf("delete rows that all groups have passed: %w", err)
	}
	if n == int64(s.cfg.Batch) {
		wait = deleteSoon
	}
	return nil
}

// allPassed returns the number before which all groups have passed the events of a partition.
func (s *Source) allPassed(ctx context.Context, p int, readers []Reader) (before int64, err error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	topic, err := s.readTopic(ctx)
	if err != nil {
		return 0, err
	}
	for i, r := range readers {
		group := topic.Group
		if r.Group != "" {
			group.Name = r.Group
		}
		if r.Checkpoints == nil {
			return 0, fmt.Errorf("delete rows: reader %d of %d (group %q) has no Checkpoints", i+1, len(readers), r.Group)
		}
		list, err := r.Checkpoints.Read(ctx, group)
		if err != nil {
			return 0, fmt.Errorf("checkpoints of group %s: %w", group.Name, err)
		}
		passed := int64(0)
		for _, c := range list {
			if c.Partition == strconv.Itoa(p) && c.Incarnation == topic.Incarnation {
				passed = max(c.Position.Sequence+1, 0)
			}
		}
		if i == 0 || passed < before {
			before = passed
		}
	}
	return before, nil
}

// deleteBatch deletes the oldest numbered rows of a partition, at most a batch and none from before
// on, and returns how many. Rows that were numbered less than keep ago stay.
func (s *Source) deleteBatch(ctx context.Context, p int, before int64, keep time.Duration) (deleted int64, err error) {
	err = s.locked(ctx, p, func(ctx context.Context, tx *sql.Tx, st state) error {
		youngest := s.clock.Wall().Add(-keep)
		for n := min(int64(s.cfg.Batch), min(before, st.head)-st.first); n > 0; n /= 2 {
			last := st.first + n - 1
			var t sql.NullInt64
			if err := s.sql.tagAt.one(ctx, tx, args{"part": p, "n": last}, &t); err != nil {
				return err
			}
			if t.Valid && keep > 0 && tag(t.Int64).time().After(youngest) {
				continue
			}
			changed, err := s.sql.delete.exec(ctx, tx, args{"part": p, "first": st.first, "last": last})
			if err != nil {
				return err
			}
			if changed != n {
				return fmt.Errorf("partition %d has %d rows from number %d to %d, not %d: find what deleted or changed them; nothing was deleted", p, changed, st.first, last, n)
			}
			to := st
			to.first, to.firstTag, deleted = last+1, tag(t.Int64), n
			return s.advance(ctx, tx, p, st, to)
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return deleted, nil
}

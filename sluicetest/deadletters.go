package sluicetest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
)

// Due implements [driver.TxStore] and [driver.DeadLetterQueue].
func (s *Store) Due(ctx context.Context, group sluice.Group, partition string, limit int) ([]sluice.DeadLetter, error) {
	if err := s.begin(ctx, OpDue, sluice.Lease{Group: group, Partition: partition}); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	var due []sluice.DeadLetter
	for _, l := range s.deadLetters {
		if l.Group == group && l.Event.Partition == partition && l.Status == sluice.StatusRetry && !l.NextAttempt.After(now) {
			due = append(due, *copyDeadLetter(l))
		}
	}
	slices.SortStableFunc(due, func(a, b sluice.DeadLetter) int { return cmp.Compare(a.Event.Sequence, b.Event.Sequence) })
	return due[:min(max(limit, 0), len(due))], nil
}

// DuePartitions implements [driver.RedriveFinder].
func (s *Store) DuePartitions(ctx context.Context, group sluice.Group, partitions []string) ([]string, error) {
	if err := s.begin(ctx, OpDue, sluice.Lease{Group: group}); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	var due []string
	for _, l := range s.deadLetters {
		if l.Group == group && l.Status == sluice.StatusRetry && !l.NextAttempt.After(now) && slices.Contains(partitions, l.Event.Partition) && !slices.Contains(due, l.Event.Partition) {
			due = append(due, l.Event.Partition)
		}
	}
	return due, nil
}

// List implements [driver.DeadLetterStore].
func (s *Store) List(ctx context.Context, group sluice.Group, filter sluice.DeadLetterFilter) ([]sluice.DeadLetter, error) {
	if err := s.begin(ctx, OpList, sluice.Lease{Group: group}); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []sluice.DeadLetter
	for _, l := range s.selected(group, filter) {
		bare := *l
		clearContent(&bare.Event)
		list = append(list, bare)
	}
	return list, nil
}

// Count implements [driver.DeadLetterStore].
func (s *Store) Count(ctx context.Context, group sluice.Group, filter sluice.DeadLetterFilter) ([]driver.DeadLetterCount, error) {
	if err := s.begin(ctx, OpList, sluice.Lease{Group: group}); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	filter.Limit = 0
	counts := map[driver.DeadLetterCount]int{}
	for _, l := range s.selected(group, filter) {
		counts[driver.DeadLetterCount{Partition: l.Event.Partition, Status: l.Status}]++
	}
	var list []driver.DeadLetterCount
	for c, n := range counts {
		c.Count = n
		list = append(list, c)
	}
	return list, nil
}

// Get implements [driver.DeadLetterStore].
func (s *Store) Get(ctx context.Context, group sluice.Group, id int64) (sluice.DeadLetter, error) {
	if err := s.begin(ctx, OpGet, sluice.Lease{Group: group}); err != nil {
		return sluice.DeadLetter{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.deadLetter(group, id)
	if l == nil {
		return sluice.DeadLetter{}, fmt.Errorf("dead letter %d of %v: %w", id, group, sluice.ErrNotFound)
	}
	return *copyDeadLetter(l), nil
}

// Redrive implements [driver.DeadLetterStore].
func (s *Store) Redrive(ctx context.Context, group sluice.Group, filter sluice.DeadLetterFilter, at time.Time) (int64, error) {
	if at.IsZero() {
		at = time.Now()
	}
	return s.mark(ctx, OpRedrive, group, filter, sluice.StatusRetry, at)
}

// Discard implements [driver.DeadLetterStore].
func (s *Store) Discard(ctx context.Context, group sluice.Group, filter sluice.DeadLetterFilter) (int64, error) {
	return s.mark(ctx, OpDiscard, group, filter, sluice.StatusDiscarded, time.Time{})
}

func (s *Store) mark(ctx context.Context, op Op, group sluice.Group, filter sluice.DeadLetterFilter, status sluice.DeadLetterStatus, next time.Time) (int64, error) {
	if err := s.begin(ctx, op, sluice.Lease{Group: group}); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	marked := s.selected(group, filter)
	for _, l := range marked {
		l.Status, l.NextAttempt = status, next
	}
	return int64(len(marked)), nil
}

// deadLetter finds a dead letter. The lock is held.
func (s *Store) deadLetter(group sluice.Group, id int64) *sluice.DeadLetter {
	i, found := slices.BinarySearchFunc(s.deadLetters, id, func(l *sluice.DeadLetter, id int64) int { return cmp.Compare(l.ID, id) })
	if !found || s.deadLetters[i].Group != group {
		return nil
	}
	return s.deadLetters[i]
}

// selected returns the dead letters that match, lowest id first. The lock is
// held.
func (s *Store) selected(group sluice.Group, filter sluice.DeadLetterFilter) []*sluice.DeadLetter {
	var list []*sluice.DeadLetter
	for _, l := range s.deadLetters {
		if filter.Limit > 0 && len(list) == filter.Limit {
			break
		}
		if l.Group == group && matches(l, &filter) {
			list = append(list, l)
		}
	}
	return list
}

func matches(l *sluice.DeadLetter, f *sluice.DeadLetterFilter) bool {
	return l.ID > f.AfterID &&
		(len(f.IDs) == 0 || slices.Contains(f.IDs, l.ID)) &&
		(f.Partition == "" || l.Event.Partition == f.Partition) &&
		(len(f.Status) == 0 || slices.Contains(f.Status, l.Status)) &&
		(f.Key == "" || l.Event.Key == f.Key) &&
		strings.Contains(strings.ToLower(l.Error), strings.ToLower(f.ErrorContains)) &&
		(f.FailedSince.IsZero() || !l.FailedAt.Before(f.FailedSince)) &&
		(f.FailedBefore.IsZero() || l.FailedAt.Before(f.FailedBefore)) &&
		(f.FirstSequence == nil || l.Event.Sequence >= *f.FirstSequence) &&
		(f.LastSequence == nil || l.Event.Sequence <= *f.LastSequence)
}

// put stores a dead letter, or updates failure and status of the one with the same identity. The
// lock is held.
func (s *Store) put(l *sluice.DeadLetter) {
	for _, o := range s.deadLetters {
		if o.Event.Sequence == l.Event.Sequence && o.Event.Partition == l.Event.Partition && o.Incarnation == l.Incarnation && o.Group == l.Group {
			failed(o, l)
			return
		}
	}
	l = copyDeadLetter(l)
	s.lastID++
	l.ID = s.lastID
	if !l.HasBody {
		clearContent(&l.Event)
	}
	s.deadLetters = append(s.deadLetters, l)
}

// settledBy reports whether a dead letter is of an event that the step decides about in another
// way.
func settledBy(step driver.Step, l *sluice.DeadLetter) bool {
	return step.SettleIncarnation != "" && l.Incarnation == step.SettleIncarnation &&
		l.Group == step.Lease.Group && l.Event.Partition == step.Lease.Partition &&
		l.Event.Sequence > step.From.Sequence && l.Event.Sequence <= step.To.Sequence &&
		!slices.ContainsFunc(step.DeadLetters, func(d sluice.DeadLetter) bool { return d.Event.Sequence == l.Event.Sequence })
}

// failed updates a dead letter that has failed again.
func failed(o, again *sluice.DeadLetter) {
	o.FailedAt, o.Error, o.Attempts, o.Status, o.NextAttempt = again.FailedAt, again.Error, again.Attempts, again.Status, again.NextAttempt
}

// clearContent removes from an event what is stored with its body.
func clearContent(e *sluice.Event) {
	e.Body, e.Properties, e.Headers, e.Created, e.EmptyKey = nil, nil, nil, time.Time{}, false
}

func copyDeadLetter(l *sluice.DeadLetter) *sluice.DeadLetter {
	c := *l
	c.Event = *clone(&l.Event)
	return &c
}

package blobstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/sluice-go/sluice/driver"
)

// matches reports whether a filter selects the dead letter, apart from the filter's limit.
func matches(f *driver.DeadLetterFilter, d *driver.DeadLetter) bool {
	e := &d.Event
	return (len(f.IDs) == 0 || slices.Contains(f.IDs, d.ID)) &&
		(f.Partition == "" || f.Partition == e.Partition) &&
		(len(f.Status) == 0 || slices.Contains(f.Status, d.Status)) &&
		(f.Key == "" || f.Key == e.Key) &&
		strings.Contains(strings.ToLower(d.Error), strings.ToLower(f.ErrorContains)) &&
		(f.FailedSince.IsZero() || !d.FailedAt.Before(f.FailedSince)) &&
		(f.FailedBefore.IsZero() || d.FailedAt.Before(f.FailedBefore)) &&
		(f.FirstSequence == nil || e.Sequence >= *f.FirstSequence) &&
		(f.LastSequence == nil || e.Sequence <= *f.LastSequence) &&
		d.ID > f.AfterID
}

// partitionsOf returns the partitions that dead letters with these ids can be in:
// those that the ids contain, or all that have any.
func (s *Store) partitionsOf(ctx context.Context, group driver.Group, ids []int64) ([]string, error) {
	var list []string
	for _, id := range ids {
		p, ok := partitionOf(id)
		if !ok {
			return s.withIndex(ctx, group)
		}
		list = append(list, p)
	}
	slices.Sort(list)
	return slices.Compact(list), nil
}

// withIndex are the partitions that have an index.
func (s *Store) withIndex(ctx context.Context, group driver.Group) ([]string, error) {
	folder, err := s.folder(group, deadLettersFolder)
	if err != nil {
		return nil, err
	}
	var list []string
	err = s.list(ctx, folder, func(item *container.BlobItem, _ time.Time) error {
		if partition, ours := unescape((*item.Name)[len(folder):]); ours {
			list = append(list, partition)
		}
		return nil
	})
	return list, err
}

// selected are the dead letters that a filter selects, lowest id first.
func (s *Store) selected(ctx context.Context, group driver.Group, f *driver.DeadLetterFilter) ([]driver.DeadLetter, error) {
	among, err := s.partitionsAmong(ctx, group, f)
	if err != nil {
		return nil, err
	}
	found := make([][]driver.DeadLetter, len(among))
	err = forEach(ctx, len(among), func(ctx context.Context, i int) error {
		r, err := s.open(ctx, group, among[i])
		if err != nil {
			return err
		}
		for j := range r.entries {
			if d := r.entries[j].deadLetter(group, r.partition); matches(f, &d) {
				found[i] = append(found[i], d)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	list := slices.Concat(found...)
	slices.SortFunc(list, func(a, b driver.DeadLetter) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Event.Partition, b.Event.Partition))
	})
	if f.Limit > 0 {
		list = list[:min(f.Limit, len(list))]
	}
	return list, nil
}

// partitionsAmong returns the partitions that may have dead letters that a filter selects.
func (s *Store) partitionsAmong(ctx context.Context, group driver.Group, f *driver.DeadLetterFilter) ([]string, error) {
	switch {
	case f.Partition != "":
		return []string{f.Partition}, nil
	case len(f.IDs) > 0:
		return s.partitionsOf(ctx, group, f.IDs)
	}
	return s.withIndex(ctx, group)
}

// Count implements [driver.DeadLetterStore]. It reads the partitions' indexes.
func (s *Store) Count(ctx context.Context, group driver.Group, filter driver.DeadLetterFilter) ([]driver.DeadLetterCount, error) {
	among, err := s.partitionsAmong(ctx, group, &filter)
	if err != nil {
		return nil, fmt.Errorf("count dead letters of %v: %w", group, err)
	}
	found := make([]map[driver.DeadLetterStatus]int, len(among))
	err = forEach(ctx, len(among), func(ctx context.Context, i int) error {
		r, err := s.open(ctx, group, among[i])
		if err != nil {
			return err
		}
		found[i] = map[driver.DeadLetterStatus]int{}
		for j := range r.entries {
			if d := r.entries[j].deadLetter(group, r.partition); matches(&filter, &d) {
				found[i][d.Status]++
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("count dead letters of %v: %w", group, err)
	}
	var list []driver.DeadLetterCount
	for i, partition := range among {
		for status, n := range found[i] {
			list = append(list, driver.DeadLetterCount{Partition: partition, Status: status, Count: n})
		}
	}
	return list, nil
}

// List implements [driver.DeadLetterStore].
func (s *Store) List(ctx context.Context, group driver.Group, filter driver.DeadLetterFilter) ([]driver.DeadLetter, error) {
	list, err := s.selected(ctx, group, &filter)
	if err != nil {
		return nil, fmt.Errorf("list dead letters of %v: %w", group, err)
	}
	return list, nil
}

// Get implements [driver.DeadLetterStore].
func (s *Store) Get(ctx context.Context, group driver.Group, id int64) (driver.DeadLetter, error) {
	d, found, err := s.get(ctx, group, id)
	switch {
	case err != nil:
		return driver.DeadLetter{}, fmt.Errorf("read dead letter %d: %w", id, err)
	case !found:
		return driver.DeadLetter{}, fmt.Errorf("dead letter %d of %v: %w", id, group, driver.ErrNotFound)
	}
	return d, nil
}

func (s *Store) get(ctx context.Context, group driver.Group, id int64) (d driver.DeadLetter, found bool, err error) {
	among, err := s.partitionsOf(ctx, group, []int64{id})
	if err != nil {
		return d, false, err
	}
	for _, partition := range among {
		r, err := s.open(ctx, group, partition)
		if err != nil {
			return d, false, err
		}
		if at := r.findID(id); at >= 0 {
			return s.withBody(ctx, r, r.entries[at])
		}
	}
	return d, false, nil
}

// Redrive implements [driver.DeadLetterStore].
func (s *Store) Redrive(ctx context.Context, group driver.Group, filter driver.DeadLetterFilter, at time.Time) (int64, error) {
	n, err := s.mark(ctx, group, filter, func(e *entry, now time.Time) {
		next := at
		if at.IsZero() {
			next = now
		}
		e.mark(driver.StatusRetry, next)
	})
	if err != nil {
		return n, fmt.Errorf("retry dead letters of %v: %w", group, err)
	}
	return n, nil
}

// Discard implements [driver.DeadLetterStore].
func (s *Store) Discard(ctx context.Context, group driver.Group, filter driver.DeadLetterFilter) (int64, error) {
	n, err := s.mark(ctx, group, filter, func(e *entry, _ time.Time) { e.mark(driver.StatusDiscarded, time.Time{}) })
	if err != nil {
		return n, fmt.Errorf("discard dead letters of %v: %w", group, err)
	}
	return n, nil
}

// mark changes the state of the dead letters that a filter selects, one
// partition after the other. If it fails, it returns how many it has marked.
func (s *Store) mark(ctx context.Context, group driver.Group, filter driver.DeadLetterFilter, set func(e *entry, now time.Time)) (int64, error) {
	list, err := s.selected(ctx, group, &filter)
	if err != nil {
		return 0, err
	}
	of := make(map[string]map[int64]bool)
	var among []string
	for i := range list {
		p := list[i].Event.Partition
		if of[p] == nil {
			of[p] = make(map[int64]bool)
			among = append(among, p)
		}
		of[p][list[i].ID] = true
	}
	total := int64(0)
	for _, partition := range among {
		marked, tried := int64(0), make(map[int64]bool) // what was tried before may have been done
		err := s.change(ctx, group, partition, func(_ context.Context, r *index) (bool, error) {
			marked = 0
			for i := range r.entries {
				e := &r.entries[i]
				if d := e.deadLetter(group, partition); of[partition][e.ID] && (tried[e.ID] || matches(&filter, &d)) {
					set(e, r.now)
					tried[e.ID] = true
					marked++
				}
			}
			return marked > 0, nil
		})
		if err != nil {
			return total, err
		}
		total += marked
	}
	return total, nil
}

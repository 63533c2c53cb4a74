package blobstore

import (
	"context"
	"fmt"
	"slices"

	"github.com/sluice-go/sluice/driver"
)

var _ driver.CopyMarks = (*Store)(nil)

// Uncopied implements [driver.CopyMarks]. It takes one request if all are marked.
func (s *Store) Uncopied(ctx context.Context, group driver.Group, partition string, after int64, limit int) ([]driver.DeadLetter, error) {
	list, err := s.uncopied(ctx, group, partition, after, limit)
	if err != nil {
		return nil, fmt.Errorf("read dead letters to copy of partition %s: %w", partition, err)
	}
	return list, nil
}

func (s *Store) uncopied(ctx context.Context, group driver.Group, partition string, after int64, limit int) ([]driver.DeadLetter, error) {
	f, _, err := s.summary(ctx, group, partition)
	if err != nil || f == nil || f.has("uncopied") && f.number("uncopied") == 0 && f.err == nil {
		return nil, err
	}
	r, err := s.open(ctx, group, partition)
	if err != nil {
		return nil, err
	}
	entries := slices.DeleteFunc(r.entries, func(e entry) bool { return e.Copied || e.ID <= after })
	return s.withBodies(ctx, r, entries[:min(len(entries), max(limit, 0))])
}

// MarkCopied implements [driver.CopyMarks]. An ID may have been given again to another event, so
// the position counts too.
func (s *Store) MarkCopied(ctx context.Context, group driver.Group, partition string, copied []driver.ParkedEvent) error {
	if len(copied) == 0 {
		return ctx.Err()
	}
	err := s.change(ctx, group, partition, func(_ context.Context, r *index) (changed bool, _ error) {
		for i := range r.entries {
			if e := &r.entries[i]; !e.Copied && slices.Contains(copied, e.parked()) {
				e.Copied, changed = true, true
			}
		}
		return changed, nil
	})
	if err != nil {
		return fmt.Errorf("mark %d dead letters as copied of partition %s: %w", len(copied), partition, err)
	}
	return nil
}

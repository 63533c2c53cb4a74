package sluicetest

import (
	"context"
	"slices"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
)

// Uncopied implements [driver.CopyMarks].
func (s *Store) Uncopied(ctx context.Context, group sluice.Group, partition string, after int64, limit int) ([]sluice.DeadLetter, error) {
	if err := s.begin(ctx, OpUncopied, sluice.Lease{Group: group, Partition: partition}); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []sluice.DeadLetter
	for _, l := range s.deadLetters {
		if l.Group == group && l.Event.Partition == partition && l.ID > after && !s.copied[l.ID] && len(list) < limit {
			list = append(list, *copyDeadLetter(l))
		}
	}
	return list, nil
}

// MarkCopied implements [driver.CopyMarks].
func (s *Store) MarkCopied(ctx context.Context, group sluice.Group, partition string, copied []driver.ParkedEvent) error {
	about := sluice.Lease{Group: group, Partition: partition}
	if err := s.begin(ctx, OpMarkCopied, about); err != nil {
		return err
	}
	copied = slices.Clone(copied)
	return s.write(OpMarkCopied, about, func() error {
		if s.copied == nil {
			s.copied = map[int64]bool{}
		}
		for _, c := range copied {
			if l := s.deadLetter(group, c.ID); l != nil && l.Event.Partition == partition {
				s.copied[c.ID] = true
			}
		}
		return nil
	})
}

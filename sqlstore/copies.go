package sqlstore

import (
	"context"

	"github.com/sluice-go/sluice/driver"
)

var _ driver.CopyMarks = (*Store)(nil)

// Uncopied implements [driver.CopyMarks].
func (s *Store) Uncopied(ctx context.Context, group driver.Group, partition string, after int64, limit int) ([]driver.DeadLetter, error) {
	list, err := readDeadLetters(ctx, s.reader, true, s.sql.Uncopied, append(key(group, partition), after, max(limit, 0))...)
	if err != nil {
		return nil, s.outage(ctx, "read dead letters to copy of partition "+partition, err)
	}
	return list, nil
}

// MarkCopied implements [driver.CopyMarks]. IDs are never used again.
func (s *Store) MarkCopied(ctx context.Context, group driver.Group, partition string, copied []driver.ParkedEvent) error {
	if len(copied) == 0 {
		return ctx.Err()
	}
	ids := make([]int64, len(copied))
	for i := range copied {
		ids[i] = copied[i].ID
	}
	if _, err := s.change(ctx, s.sql.MarkCopied, append(key(group, partition), array(ids))...); err != nil {
		return s.outage(ctx, "mark dead letters as copied of partition "+partition, err)
	}
	return nil
}

package pgstore

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/sluice-go/sluice/driver"
)

var _ driver.CopyMarks = (*Store)(nil)

const uncopiedSQL = `
SELECT ` + contentColumns + ` FROM @sluice_dead_letters
WHERE namespace = $1 AND topic = $2 AND consumer_group = $3 AND partition = $4 AND NOT copied AND id > $5
ORDER BY id LIMIT $6`

// Uncopied implements [driver.CopyMarks].
func (s *Store) Uncopied(ctx context.Context, group driver.Group, partition string, after int64, limit int) ([]driver.DeadLetter, error) {
	list, err := s.query(ctx, group, uncopiedSQL, group.Namespace, group.Topic, group.Name, partition, after, max(limit, 0))
	if err != nil {
		return nil, fmt.Errorf("read dead letters to copy of partition %s: %w", partition, err)
	}
	return list, nil
}

const (
	ofCopiedSQL   = ` WHERE namespace = $1 AND topic = $2 AND consumer_group = $3 AND partition = $4 AND id = ANY ($5)`
	lockCopiedSQL = `SELECT FROM @sluice_dead_letters` + ofCopiedSQL + ` ORDER BY id FOR UPDATE`
	markCopiedSQL = `UPDATE @sluice_dead_letters SET copied = true` + ofCopiedSQL
)

// MarkCopied implements [driver.CopyMarks], in one transaction and one round trip. It locks in the
// order in which commands do. IDs are never used again.
func (s *Store) MarkCopied(ctx context.Context, group driver.Group, partition string, copied []driver.ParkedEvent) error {
	if len(copied) == 0 {
		return ctx.Err()
	}
	ids := idsOf(copied)
	err := s.batch(ctx, func(b *pgx.Batch, _ func() error) error {
		for _, sql := range []string{lockCopiedSQL, markCopiedSQL} {
			b.Queue(s.sql.text(sql), group.Namespace, group.Topic, group.Name, partition, ids)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("mark %d dead letters as copied of partition %s: %w", len(copied), partition, err)
	}
	return nil
}

func idsOf(events []driver.ParkedEvent) []int64 {
	ids := make([]int64, len(events))
	for i := range events {
		ids[i] = events[i].ID
	}
	return ids
}

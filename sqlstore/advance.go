package sqlstore

import (
	"context"
	"fmt"
	"slices"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/ranges"
)

// doneRanges is how many ranges after a position are kept: about 100 KB, which every Advance
// writes.
const doneRanges = 10_000

// Advance implements [driver.CheckpointStore]. It keeps the first 10,000 ranges. Like every write
// it waits for a transaction in progress on the database, see [Store.Claim].
func (s *Store) Advance(ctx context.Context, lease driver.Lease, incarnation string, to driver.Position, done []driver.SequenceRange) error {
	what := "advance checkpoint of partition " + lease.Partition
	text, err := ranges.Encode(to.Sequence, done[:min(len(done), doneRanges)])
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	args := slices.Concat(slices.Repeat([]any{to.Sequence}, 7), []any{clean(to.Offset), text}, leaseArgs(lease), []any{to.Sequence, clean(incarnation)})
	n, err := s.change(ctx, s.sql.Advance, args...)
	switch {
	case err != nil:
		return s.outage(ctx, what, err)
	case n != 1:
		return s.fenced(ctx, s.writer, lease, fmt.Sprintf("and cannot move to %v of incarnation %s", to, incarnation))
	}
	return nil
}

package pgstore

import (
	"context"
	"fmt"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/ranges"
)

// doneRanges is how many ranges after a position are kept: about 100 KB, which every Advance
// writes.
const doneRanges = 10_000

const advanceSQL = `
UPDATE @sluice_checkpoints
SET sequence_number = $7, event_offset = $8, done = $9, done_epoch = epoch, updated_at = clock_timestamp(),
    claims            = CASE WHEN $7 = sequence_number THEN claims ELSE 1 END,
    trial_sequence    = CASE WHEN $7 = sequence_number THEN trial_sequence ELSE 0 END,
    trial_dead_letter = CASE WHEN $7 = sequence_number THEN trial_dead_letter ELSE 0 END,
    trial_attempts    = CASE WHEN $7 = sequence_number THEN trial_attempts ELSE 0 END,
    trial_error       = CASE WHEN $7 = sequence_number THEN trial_error ELSE '' END,
    trial_unreturned  = CASE WHEN $7 = sequence_number THEN trial_unreturned ELSE 0 END
WHERE namespace = $1 AND topic = $2 AND consumer_group = $3 AND partition = $4 AND owner = $5 AND epoch = $6 AND sequence_number <= $7 AND incarnation = $10`

// Advance implements [driver.CheckpointStore], in one round trip. It keeps the
// first 10,000 ranges.
func (s *Store) Advance(ctx context.Context, lease driver.Lease, incarnation string, to driver.Position, done []driver.SequenceRange) error {
	err := s.advance(ctx, lease, incarnation, to, done)
	if err != nil {
		return fmt.Errorf("advance partition %s: %w", lease.Partition, err)
	}
	return nil
}

func (s *Store) advance(ctx context.Context, lease driver.Lease, incarnation string, to driver.Position, done []driver.SequenceRange) error {
	text, err := ranges.Encode(to.Sequence, done[:min(len(done), doneRanges)])
	if err != nil {
		return err
	}
	conn, err := acquire(ctx, s.pool)
	if err != nil {
		return err
	}
	defer conn.Release()
	args := append(leaseArgs(lease), to.Sequence, clean(to.Offset), text, clean(incarnation))
	tag, err := once(ctx, conn.Conn(), s.cfg.limits(), s.sql.text(advanceSQL), args)
	if err == nil && tag.RowsAffected() == 0 {
		err = s.fenced(ctx, conn.Conn(), lease, fmt.Sprintf("and cannot move to %v of incarnation %s", to, incarnation))
	}
	return err
}

package checkpoint

import (
	"context"
	"fmt"

	"github.com/sluice-go/sluice/driver"

	"github.com/sluice-go/sluice"
)

// Foreign is a checkpoint that another processor has left: everything up to
// the event it names is done.
type Foreign struct {
	Partition string
	Sequence  int64  // of that event; -1 if only the offset is known
	Offset    string // likewise; empty if not known
	Owner     string // the other processor, if it is still at work
}

// ExistsError says that a partition has a checkpoint already.
type ExistsError struct {
	Partition string
	At        sluice.Position
}

func (e *ExistsError) Error() string {
	return fmt.Sprintf("partition %s has a checkpoint already, at %v: to have it replaced use --force", e.Partition, e.At)
}

// AtWorkError says that the other processor still reads a partition.
type AtWorkError struct{ Partition, Owner string }

func (e *AtWorkError) Error() string {
	return fmt.Sprintf("partition %s is still processed by %s: stop that processor and wait a minute, or go ahead with --force", e.Partition, e.Owner)
}

// PlanImport works out an import without making it.
func (t *Table) PlanImport(ctx context.Context, f Foreign, force bool) (Move, error) {
	return t.planned(ctx, f.Partition, f.aim(force), force)
}

// Import moves a partition's checkpoint to where another processor was. Beyond
// what [Table.Set] refuses, it refuses without force where that processor is at
// work, where there is a checkpoint already, and where events behind the other
// one have passed retention; with force it goes on at the oldest event then.
func (t *Table) Import(ctx context.Context, f Foreign, force bool) (Move, error) {
	return t.move(ctx, f.Partition, f.aim(force), force, "checkpoints-import")
}

func (f Foreign) aim(force bool) aim {
	return func(ctx context.Context, t *Table, s state, b driver.Bounds, epoch int64) (sluice.Position, error) {
		to := sluice.Position{Sequence: f.Sequence, Offset: f.Offset}
		switch {
		case f.Owner != "" && !force:
			return to, &AtWorkError{Partition: s.partition, Owner: f.Owner}
		case s.progress.Position != driver.Unset && !force:
			return to, &ExistsError{Partition: s.partition, At: s.progress.Position}
		case f.Sequence < 0:
			return f.find(ctx, t, b, epoch)
		case f.Sequence > b.Last.Sequence:
			return to, fmt.Errorf("partition %s: the checkpoint is at %d, and the newest event of %s is %d: it is of another hub, or of this one before it was recreated",
				s.partition, f.Sequence, s.topic.Topic, b.Last.Sequence)
		case f.Sequence < b.First-1 && !force:
			return to, fmt.Errorf("partition %s: events %d to %d have passed retention unread: look for what else recorded them, then go on at the oldest event held with --force",
				s.partition, f.Sequence+1, b.First-1)
		case f.Sequence < b.First-1:
			return t.Source.Seek(ctx, s.partition, sluice.Earliest(), epoch)
		}
		return to, nil
	}
}

// find is the position of an event of which the offset alone is known: right
// behind it, or before it where it may have passed retention.
func (f Foreign) find(ctx context.Context, t *Table, b driver.Bounds, epoch int64) (sluice.Position, error) {
	before, err := t.Source.Seek(ctx, f.Partition, sluice.FromOffset(f.Offset), epoch)
	if err != nil {
		return before, fmt.Errorf("seek offset %s in partition %s: %w", f.Offset, f.Partition, err)
	}
	if before.Sequence < b.First || before.Sequence >= b.Last.Sequence {
		return before, nil
	}
	return sluice.Position{Sequence: before.Sequence + 1, Offset: f.Offset}, nil
}

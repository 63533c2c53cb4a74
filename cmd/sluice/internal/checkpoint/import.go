package checkpoint

import (
	"context"
	"fmt"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
)

// Foreign is a checkpoint of another event processor: all events up to the one that it names are
// processed.
type Foreign struct {
	Partition string
	Sequence  int64  // of that event; -1 if only the offset is known, or Origin is true
	Offset    string // likewise; empty if not known
	Origin    bool   // no event is processed yet
	Owner     string // the other processor, if it still reads the partition
}

// ExistsError is returned for a partition that has a checkpoint already.
type ExistsError struct {
	Partition string
	At        sluice.Position
}

func (e *ExistsError) Error() string {
	return fmt.Sprintf("partition %s has a checkpoint already, at %v: to replace it use --force", e.Partition, e.At)
}

// ActiveError is returned for a partition that the other processor still reads.
type ActiveError struct{ Partition, Owner string }

func (e *ActiveError) Error() string {
	return fmt.Sprintf("partition %s is still read by %s: stop that processor and wait a minute, or use --force", e.Partition, e.Owner)
}

// PlanImport returns what an import would do, without doing it.
func (t *Table) PlanImport(ctx context.Context, f Foreign, force bool) (Move, error) {
	if err := f.checkActive(force); err != nil {
		return Move{}, err
	}
	return t.planned(ctx, f.Partition, f.aim(force), force, f.Owner)
}

// Import moves the checkpoint of a partition to where another processor was. Without force it
// refuses what [Table.Set] refuses, and also a partition that the other processor still reads, one
// that has a checkpoint already, and one where events after the other checkpoint have passed
// retention. With force, it continues at the oldest event in that case.
func (t *Table) Import(ctx context.Context, f Foreign, force bool) (Move, error) {
	if err := f.checkActive(force); err != nil {
		return Move{}, err
	}
	return t.move(ctx, f.Partition, f.aim(force), force, driver.HowImport)
}

// checkActive refuses a partition that the other processor still reads, before a link to it
// ends that processor's.
func (f Foreign) checkActive(force bool) error {
	if f.Owner == "" || force {
		return nil
	}
	return &ActiveError{Partition: f.Partition, Owner: f.Owner}
}

func (f Foreign) aim(force bool) aim {
	return func(ctx context.Context, t *Table, s state, b driver.Bounds, epoch int64) (sluice.Position, error) {
		to := sluice.Position{Sequence: f.Sequence, Offset: f.Offset}
		switch {
		case s.progress.Position != driver.Unset && !force:
			return to, &ExistsError{Partition: s.partition, At: s.progress.Position}
		case f.Sequence < 0 && !f.Origin:
			return f.find(ctx, t, b, epoch)
		case f.Sequence > b.Last.Sequence:
			return to, fmt.Errorf("partition %s: the checkpoint is at %d, but the newest event of %s is %d: the checkpoint belongs to another hub or topic, or to this one before it was recreated",
				s.partition, f.Sequence, s.topic.Topic, b.Last.Sequence)
		case f.Sequence >= b.First-1:
			return to, nil
		}
		oldest, err := t.Source.Seek(ctx, s.partition, sluice.Earliest(), epoch)
		switch {
		case err != nil:
			return to, fmt.Errorf("seek the oldest event of partition %s: %w", s.partition, err)
		case f.Sequence >= oldest.Sequence:
			return to, nil
		case !force:
			return to, fmt.Errorf("partition %s: events %d to %d have passed retention and cannot be read any more: check whether they are recorded elsewhere, then continue at the oldest event with --force",
				s.partition, f.Sequence+1, oldest.Sequence)
		}
		return oldest, nil
	}
}

// find returns the position of an event of which only the offset is known: after the event, or
// before it if it may have passed retention.
func (f Foreign) find(ctx context.Context, t *Table, b driver.Bounds, epoch int64) (sluice.Position, error) {
	before, err := t.Source.Seek(ctx, f.Partition, sluice.FromOffset(f.Offset), epoch)
	if err != nil {
		return before, fmt.Errorf("seek offset %s in partition %s: %w", f.Offset, f.Partition, err)
	}
	oldest, err := t.Source.Seek(ctx, f.Partition, sluice.Earliest(), epoch) // b may be inexact
	if err != nil {
		return before, fmt.Errorf("seek the oldest event of partition %s: %w", f.Partition, err)
	}
	if before.Sequence <= oldest.Sequence || before.Sequence >= b.Last.Sequence {
		return before, nil
	}
	return sluice.Position{Sequence: before.Sequence + 1, Offset: f.Offset}, nil
}

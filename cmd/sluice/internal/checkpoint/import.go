package checkpoint

import (
	"context"
	"fmt"
	"time"

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
	// Exact refuses, without force, an offset whose event has passed retention: events after it may
	// be gone too.
	Exact bool
	// Onward replaces a checkpoint of this pipeline that is not after the other one, also without
	// force: the other consumer has continued since.
	Onward bool
}

// ExistsError is returned for a partition that has a checkpoint already.
type ExistsError struct {
	Partition string
	Position  sluice.Position
}

func (e *ExistsError) Error() string {
	return fmt.Sprintf("partition %s has a checkpoint already, at %v: to replace it use --force", e.Partition, e.Position)
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
		begun := s.progress.Position != driver.Unset && !force
		exists := &ExistsError{Partition: s.partition, Position: s.progress.Position}
		if begun && (!f.Onward || s.progress.Incarnation != s.topic.Incarnation) {
			return s.progress.Position, exists
		}
		to, err := f.target(ctx, t, s, b, epoch, force)
		if err == nil && begun && to.Sequence < s.progress.Position.Sequence {
			err = exists
		}
		return to, err
	}
}

// target returns the position of the other checkpoint in the log.
func (f Foreign) target(ctx context.Context, t *Table, s state, b driver.Bounds, epoch int64, force bool) (sluice.Position, error) {
	to := sluice.Position{Sequence: f.Sequence, Offset: f.Offset}
	switch {
	case f.Sequence < 0 && !f.Origin:
		return f.find(ctx, t, b, epoch, force)
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

// find returns the position of an event of which only the offset is known. The log shows that it
// has this event: it is read. If retention has removed it, reading continues with the oldest event.
func (f Foreign) find(ctx context.Context, t *Table, b driver.Bounds, epoch int64, force bool) (sluice.Position, error) {
	before, err := t.Source.Seek(ctx, f.Partition, sluice.FromOffset(f.Offset), epoch)
	if err != nil {
		return before, fmt.Errorf("seek offset %s in partition %s: %w", f.Offset, f.Partition, err)
	}
	if before.Sequence >= b.Last.Sequence {
		if b.First > b.Last.Sequence && force { // empty: the event cannot be read
			return before, nil
		}
		return before, fmt.Errorf("partition %s: no event is at or after the offset %s of the checkpoint: it belongs to another hub, to this one before it was recreated, or retention has removed all events; continue at the end with --force if the partition is empty",
			f.Partition, f.Offset)
	}
	event, err := ReadEvent(ctx, t.Source, f.Partition, before.Sequence+1, epoch)
	if err != nil {
		return before, fmt.Errorf("read the event at offset %s in partition %s: %w", f.Offset, f.Partition, err)
	}
	if event.Offset == f.Offset {
		return event.Position(), nil
	}
	oldest, err := t.Source.Seek(ctx, f.Partition, sluice.Earliest(), epoch) // b may be inexact
	switch {
	case err != nil:
		return before, fmt.Errorf("seek the oldest event of partition %s: %w", f.Partition, err)
	case before.Sequence > oldest.Sequence:
		return before, fmt.Errorf("partition %s: no event has the offset %s of the checkpoint, the next one is event %d at %s: the checkpoint belongs to another hub, or to this one before it was recreated",
			f.Partition, f.Offset, event.Sequence, event.Offset)
	case f.Exact && !force:
		return before, fmt.Errorf("partition %s: the event at the offset %s of the checkpoint has passed retention, and so may have events after it: check whether they are recorded elsewhere, then continue at the oldest event, %d, with --force",
			f.Partition, f.Offset, event.Sequence)
	}
	return before, nil
}

// ReadEvent reads one event of a partition. It waits for it as long as ctx allows. The error is an
// ErrRetention if the log does not hold it any more.
func ReadEvent(ctx context.Context, source driver.Source, partition string, sequence, epoch int64) (event *driver.Event, err error) {
	r, err := source.Open(ctx, partition, driver.Position{Sequence: sequence - 1}, epoch)
	if err != nil {
		return nil, err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_ = r.Close(closing)
	}()
	events, err := r.Read(ctx, 1)
	switch {
	case err != nil:
		return nil, err
	case len(events) == 0 || events[0].Sequence != sequence || events[0].Control:
		return nil, fmt.Errorf("event %d: %w", sequence, driver.ErrRetention)
	}
	return events[0], nil
}

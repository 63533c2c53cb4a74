package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/ownername"

	"github.com/sluice-go/sluice"
)

// Move is a change of one checkpoint.
type Move struct {
	Partition string
	Begun     bool // there was a checkpoint with a position
	From, To  sluice.Position
	Recreated bool   // From was of an earlier incarnation of the hub
	Repeated  int64  // events that will be delivered again
	Skipped   int64  // events that will not be delivered
	Fenced    string // the live owner that was overridden
	Epoch     int64  // of the checkpoint from now on; 0 if only planned
}

// HeldError says that a partition has a live owner. It is a [sluice.ErrHeld].
type HeldError struct {
	Partition, Owner string
	Left             time.Duration // until the lease expires
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("partition %s is owned by %s (lease for another %v): stop that process first, or override it with --force",
		e.Partition, e.Owner, e.Left.Round(time.Second))
}

// Is makes a HeldError an [sluice.ErrHeld].
func (e *HeldError) Is(target error) bool { return target == driver.ErrHeld }

// leaseFor is how long a partition is kept from consumers while its checkpoint
// is moved, and so how long that may take.
const leaseFor = 30 * time.Second

// aim finds where a move goes.
type aim func(ctx context.Context, t *Table, s state, b driver.Bounds, epoch int64) (sluice.Position, error)

// aimAt makes an aim of a start.
func aimAt(start sluice.Start) aim {
	return func(ctx context.Context, t *Table, s state, b driver.Bounds, epoch int64) (sluice.Position, error) {
		if start.Kind == driver.StartSequence && start.Sequence < b.First {
			return sluice.Position{}, fmt.Errorf("partition %s: event %d has passed retention: the oldest held is %d, so set to sequence %d or earliest",
				s.partition, start.Sequence, b.First, b.First)
		}
		to, err := t.Source.Seek(ctx, s.partition, start, epoch)
		if err != nil {
			return to, fmt.Errorf("seek %s in partition %s: %w", start, s.partition, err)
		}
		return to, nil
	}
}

// Plan works out a move without making it.
func (t *Table) Plan(ctx context.Context, partition string, start sluice.Start, force bool) (Move, error) {
	return t.planned(ctx, partition, aimAt(start), force)
}

func (t *Table) planned(ctx context.Context, partition string, to aim, force bool) (Move, error) {
	s, err := t.look(ctx, partition)
	if err != nil {
		return Move{}, err
	}
	if s.holder.Live() && !force {
		return Move{}, &HeldError{Partition: partition, Owner: s.holder.Owner, Left: s.holder.Remaining}
	}
	return t.plan(ctx, s, to, max(s.progress.Epoch, s.holder.Epoch)+1)
}

// Set moves a partition's checkpoint to start. It holds the partition's lease
// meanwhile, so that no consumer takes it; with force it leaves a live owner
// its lease, and fences it off by the new epoch.
func (t *Table) Set(ctx context.Context, partition string, start sluice.Start, force bool) (Move, error) {
	return t.move(ctx, partition, aimAt(start), force, "checkpoints-set")
}

func (t *Table) move(ctx context.Context, partition string, to aim, force bool, verb string) (Move, error) {
	ctx, cancel := context.WithTimeout(ctx, leaseFor)
	defer cancel()
	s, err := t.look(ctx, partition)
	if err != nil {
		return Move{}, err
	}
	epoch := max(s.progress.Epoch, s.holder.Epoch) + 1
	lease, err := t.Leases.Acquire(ctx, t.Group, partition, verb+"-"+ownername.New(), leaseFor, s.progress.Epoch)
	switch {
	case err == nil:
		epoch = lease.Epoch
		defer t.release(ctx, lease)
	case !errors.Is(err, driver.ErrHeld):
		return Move{}, fmt.Errorf("acquire lease of partition %s: %w", partition, err)
	case !force:
		return Move{}, t.held(ctx, partition)
	}
	m, err := t.plan(ctx, s, to, epoch)
	if err != nil {
		return Move{}, err
	}
	m.Epoch, err = t.Checkpoints.Reset(ctx, t.Group, partition, s.topic.Incarnation, m.To)
	if err != nil {
		return Move{}, fmt.Errorf("set checkpoint of partition %s: %w", partition, err)
	}
	return m, nil
}

// release is for a lease that was taken here; if it fails, the lease expires.
func (t *Table) release(ctx context.Context, lease sluice.Lease) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_ = t.Leases.Release(ctx, lease)
}

func (t *Table) held(ctx context.Context, partition string) error {
	holder, err := t.holder(ctx, partition)
	if err != nil {
		return err
	}
	return &HeldError{Partition: partition, Owner: holder.Owner, Left: holder.Remaining}
}

// state is what a move starts from.
type state struct {
	topic     sluice.Topic
	partition string
	progress  sluice.Checkpoint // zero but for Position, which is Unset, if there is no checkpoint
	holder    driver.LeaseInfo
}

func (t *Table) look(ctx context.Context, partition string) (state, error) {
	s := state{partition: partition, progress: sluice.Checkpoint{Position: driver.Unset}}
	var err error
	if s.topic, err = t.Source.Describe(ctx); err != nil {
		return s, fmt.Errorf("describe topic: %w", err)
	}
	if err := known(s.topic, partition); err != nil {
		return s, err
	}
	if s.holder, err = t.holder(ctx, partition); err != nil {
		return s, err
	}
	all, err := t.Checkpoints.Read(ctx, t.Group)
	if err != nil {
		return s, err
	}
	for _, p := range all {
		if p.Partition == partition {
			s.progress = p
		}
	}
	return s, nil
}

func known(topic sluice.Topic, partition string) error {
	for _, p := range topic.Partitions {
		if p == partition {
			return nil
		}
	}
	return fmt.Errorf("hub %s has no partition %s: it has %s", topic.Topic, partition, strings.Join(topic.Partitions, ", "))
}

func (t *Table) holder(ctx context.Context, partition string) (driver.LeaseInfo, error) {
	leases, err := t.Leases.List(ctx, t.Group)
	if err != nil {
		return driver.LeaseInfo{}, err
	}
	for _, l := range leases {
		if l.Partition == partition {
			return l, nil
		}
	}
	return driver.LeaseInfo{}, nil
}

// plan finds the position that a move goes to, and what that does to whom.
func (t *Table) plan(ctx context.Context, s state, to aim, epoch int64) (Move, error) {
	m := Move{Partition: s.partition, From: s.progress.Position, Begun: s.progress.Position != driver.Unset}
	if s.holder.Live() {
		m.Fenced = s.holder.Owner
	}
	m.Recreated = s.progress.Incarnation != "" && s.progress.Incarnation != s.topic.Incarnation
	b, err := t.Source.Bounds(ctx, s.partition)
	if err != nil {
		return m, fmt.Errorf("ends of partition %s: %w", s.partition, err)
	}
	if m.To, err = to(ctx, t, s, b, epoch); err != nil {
		return m, err
	}
	oldest := b.First - 1
	from := oldest
	if m.Begun && !m.Recreated {
		from = max(m.From.Sequence, oldest)
		m.Repeated = max(min(from, b.Last.Sequence)-m.To.Sequence, 0)
	}
	m.Skipped = max(m.To.Sequence-from, 0)
	return m, nil
}

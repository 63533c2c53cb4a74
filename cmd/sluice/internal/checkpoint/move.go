package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/ownername"
)

// Move is a change of one checkpoint.
type Move struct {
	Partition string
	Begun     bool // there was a checkpoint with a position
	From, To  sluice.Position
	Recreated bool  // From belongs to an earlier incarnation of the hub
	Repeated  int64 // events that will be delivered again
	// DeadLetters is how many of the events between To and From are dead letters that are not
	// discarded. With AtLeastOnce they are not in Repeated: they are marked for a retry. Otherwise
	// they are: what becomes of the event replaces its dead letter, or with InBatches leaves it as
	// it is.
	DeadLetters int64
	// Discarded is how many are discarded dead letters. With AtLeastOnce they are not in Repeated.
	Discarded int64
	// AtLeastOnce and InBatches are those of the [Table].
	AtLeastOnce, InBatches bool

	End     int64  // sequence number of the newest event when the move was planned
	Skipped int64  // events that will not be delivered
	Fenced  string // the live owner that was fenced
	Epoch   int64  // of the checkpoint from now on; 0 if only planned
}

// HeldError is returned for a partition with a live owner. It is a [sluice.ErrHeld].
type HeldError struct {
	Partition, Owner string
	Left             time.Duration // until the lease expires
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("partition %s is owned by %s (lease expires in %v): stop that process first, or fence it with --force",
		e.Partition, e.Owner, e.Left.Round(time.Second))
}

// Is makes a HeldError an [sluice.ErrHeld].
func (e *HeldError) Is(target error) bool { return target == driver.ErrHeld }

// leaseFor is the duration of the lease that keeps consumers away while a checkpoint is moved. The
// move must end within it.
const leaseFor = 30 * time.Second

// aim finds the position that a checkpoint moves to.
type aim func(ctx context.Context, t *Table, s state, b driver.Bounds, epoch int64) (sluice.Position, error)

// aimAt makes an aim from a start.
func aimAt(start sluice.Start) aim {
	return func(ctx context.Context, t *Table, s state, b driver.Bounds, epoch int64) (sluice.Position, error) {
		if start.Kind == driver.StartSequence && start.Sequence < b.First {
			oldest, err := t.Source.Seek(ctx, s.partition, sluice.Earliest(), epoch) // b may be inexact
			if err == nil && start.Sequence <= oldest.Sequence {
				err = fmt.Errorf("event %d has passed retention: the oldest event is %d: use sequence %d or earliest", start.Sequence, oldest.Sequence+1, oldest.Sequence+1)
			}
			if err != nil {
				return sluice.Position{}, fmt.Errorf("partition %s: %w", s.partition, err)
			}
		}
		to, err := t.Source.Seek(ctx, s.partition, start, epoch)
		if err != nil {
			return to, fmt.Errorf("seek %s in partition %s: %w", start, s.partition, err)
		}
		return to, nil
	}
}

// Plan returns what a move would do, without doing it.
func (t *Table) Plan(ctx context.Context, partition string, start sluice.Start, force bool) (Move, error) {
	return t.planned(ctx, partition, aimAt(start), force, "")
}

// planned plans a move of a partition that another processor may read; reader is its name, or
// empty.
func (t *Table) planned(ctx context.Context, partition string, to aim, force bool, reader string) (Move, error) {
	s, err := t.look(ctx, partition)
	if err != nil {
		return Move{}, err
	}
	if s.holder.Live() && !force {
		return Move{}, &HeldError{Partition: partition, Owner: s.holder.Owner, Left: s.holder.Remaining}
	}
	if s.holder.Live() {
		reader = s.holder.Owner
	}
	if t.DryRun && !t.ManyReaders {
		quiet := *t
		quiet.Source = quietSource{t.Source, reader}
		t = &quiet
	}
	m, _, err := t.plan(ctx, s, to, max(s.progress.Epoch, s.holder.Epoch)+1)
	return m, err
}

// quietSource is a source whose seeks end no other reader's link. A partition without a lease may
// have a reader all the same: one whose lease has expired while its store does not answer, another
// event processor, or an owner since a moment ago. So links have no epoch, and where the log
// refuses one, or the owner is known, the partition's bounds are used instead.
type quietSource struct {
	driver.Source
	owner string // empty if none is known
}

func (q quietSource) Seek(ctx context.Context, partition string, start sluice.Start, _ int64) (sluice.Position, error) {
	if q.owner == "" {
		at, err := q.Source.Seek(ctx, partition, start, driver.NoEpoch)
		if !errors.Is(err, driver.ErrStolen) {
			return at, err
		}
		q.owner = "another process"
	}
	b, err := q.Bounds(ctx, partition)
	if err != nil {
		return sluice.Position{}, err
	}
	switch start.Kind {
	case driver.StartEarliest:
		return sluice.Position{Sequence: b.First - 1}, nil
	case driver.StartLatest:
		return b.Last, nil
	case driver.StartSequence:
		return sluice.Position{Sequence: min(max(start.Sequence, b.First)-1, b.Last.Sequence)}, nil
	}
	return sluice.Position{}, fmt.Errorf("a dry run cannot look for a time or an offset while %s owns the partition, because that would end its link: stop that process first", q.owner)
}

// Open implements [driver.Source].
func (q quietSource) Open(ctx context.Context, partition string, after sluice.Position, _ int64) (driver.Reader, error) {
	if q.owner != "" {
		return nil, fmt.Errorf("a dry run cannot read an event while %s owns the partition, because that would end its link: stop that process first", q.owner)
	}
	return q.Source.Open(ctx, partition, after, driver.NoEpoch)
}

// Set moves the checkpoint of a partition to start. It holds the partition's lease meanwhile, so
// that no consumer acquires it. With force, a live owner keeps its lease, and the new epoch fences
// it.
func (t *Table) Set(ctx context.Context, partition string, start sluice.Start, force bool) (Move, error) {
	return t.move(ctx, partition, aimAt(start), force, driver.HowSet)
}

func (t *Table) move(ctx context.Context, partition string, to aim, force bool, how driver.How) (Move, error) {
	ctx, cancel := context.WithTimeout(ctx, leaseFor)
	defer cancel()
	s, err := t.look(ctx, partition)
	if err != nil {
		return Move{}, err
	}
	epoch := max(s.progress.Epoch, s.holder.Epoch) + 1
	lease, err := t.Leases.Acquire(ctx, t.Group, partition, "checkpoints-"+string(how)+"-"+ownername.New(), leaseFor, s.progress.Epoch)
	switch {
	case err == nil:
		epoch = lease.Epoch
		defer t.release(ctx, lease)
	case !errors.Is(err, driver.ErrHeld):
		return Move{}, fmt.Errorf("acquire lease of partition %s: %w", partition, err)
	case !force:
		return Move{}, t.held(ctx, partition)
	}
	m, letters, err := t.plan(ctx, s, to, epoch)
	if err != nil {
		return Move{}, err
	}
	m.Epoch, err = t.Checkpoints.Reset(ctx, t.Group, partition, s.topic.Incarnation, m.To, how)
	if err != nil {
		return Move{}, fmt.Errorf("set checkpoint of partition %s: %w", partition, err)
	}
	if t.AtLeastOnce {
		if err := t.retry(ctx, letters); err != nil {
			return Move{}, fmt.Errorf("the checkpoint of partition %s is set, but not all of its %d dead letters are marked for a retry: %w: mark them with `sluice deadletters retry`", partition, len(letters), err)
		}
	}
	return m, nil
}

// retry marks dead letters. At-least-once delivery passes over their events when it reads them
// again, because after a restart they count as done.
func (t *Table) retry(ctx context.Context, letters []int64) error {
	for ids := range slices.Chunk(letters, markPage) {
		if _, err := t.DeadLetters.Redrive(ctx, t.Group, sluice.DeadLetterFilter{IDs: ids}, time.Time{}); err != nil {
			return err
		}
	}
	return nil
}

// release releases a lease of ours. If it fails, the lease expires.
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

// state is the state of a partition before a move.
type state struct {
	topic     sluice.Topic
	partition string
	progress  sluice.Checkpoint // if there is no checkpoint: zero, with Position Unset
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
	return fmt.Errorf("%s has no partition %s: its partitions are %s", topic.Topic, partition, strings.Join(topic.Partitions, ", "))
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

// plan finds the position that a checkpoint moves to, the consequences, and the IDs of the dead
// letters in [Move].DeadLetters.
func (t *Table) plan(ctx context.Context, s state, to aim, epoch int64) (m Move, letters []int64, err error) {
	m = Move{Partition: s.partition, AtLeastOnce: t.AtLeastOnce, InBatches: t.InBatches, From: s.progress.Position, Begun: s.progress.Position != driver.Unset}
	if s.holder.Live() {
		m.Fenced = s.holder.Owner
	}
	m.Recreated = s.progress.Incarnation != "" && s.progress.Incarnation != s.topic.Incarnation
	b, err := t.bounds(ctx, s.partition, epoch)
	if err != nil {
		return m, nil, err
	}
	m.End = b.Last.Sequence
	if m.To, err = to(ctx, t, s, b, epoch); err != nil {
		return m, nil, err
	}
	oldest := b.First - 1
	from := oldest
	if m.Begun && !m.Recreated {
		from = max(m.From.Sequence, oldest)
		last := min(from, b.Last.Sequence)
		if m.Repeated = max(last-m.To.Sequence, 0); m.Repeated > 0 {
			if letters, m.Discarded, err = t.lettersBetween(ctx, s, m.To.Sequence+1, last); err != nil {
				return m, nil, err
			}
			m.DeadLetters = int64(len(letters))
		}
		if t.AtLeastOnce {
			m.Repeated -= m.DeadLetters + m.Discarded
		}
	}
	m.Skipped = max(m.To.Sequence-from, 0)
	return m, letters, nil
}

// bounds returns a partition's bounds with the end that the log itself gives, because Bounds may
// be out of date.
func (t *Table) bounds(ctx context.Context, partition string, epoch int64) (driver.Bounds, error) {
	b, err := t.Source.Bounds(ctx, partition)
	if err != nil {
		return b, fmt.Errorf("bounds of partition %s: %w", partition, err)
	}
	end, err := t.Source.Seek(ctx, partition, sluice.Latest(), epoch)
	if err != nil {
		return b, fmt.Errorf("seek the end of partition %s: %w", partition, err)
	}
	if end.Sequence > b.Last.Sequence {
		b.Last = end
	}
	return b, nil
}

const (
	// listPage is how many dead letters are listed in one request, markPage how many are marked.
	listPage = 1000
	markPage = 500
)

// lettersBetween returns the IDs of the dead letters of the partition's events between two, and how
// many others are discarded.
func (t *Table) lettersBetween(ctx context.Context, s state, first, last int64) (ids []int64, discarded int64, err error) {
	filter := sluice.DeadLetterFilter{Partition: s.partition, FirstSequence: &first, LastSequence: &last, Limit: listPage}
	for {
		page, err := t.DeadLetters.List(ctx, t.Group, filter)
		if err != nil {
			return nil, 0, fmt.Errorf("list the dead letters of partition %s: %w", s.partition, err)
		}
		for i := range page {
			switch {
			case page[i].Incarnation != s.topic.Incarnation:
			case page[i].Status == sluice.StatusDiscarded:
				discarded++
			default:
				ids = append(ids, page[i].ID)
			}
		}
		if len(page) < listPage {
			return ids, discarded, nil
		}
		filter.AfterID = page[len(page)-1].ID
	}
}

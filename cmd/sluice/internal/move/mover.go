package move

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/cmd/sluice/internal/checkpoint"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/azurecheckpoints"
	"github.com/sluice-go/sluice/internal/humanize"
)

// Parker is the part of a [driver.DeadLetterQueue] that stores dead letters.
type Parker interface {
	Park(ctx context.Context, deadLetters []sluice.DeadLetter) error
}

// Mover moves a consumer to a pipeline. It may be killed at any moment and run again: dead letters
// are stored before the checkpoint of their partition, and the checkpoint's beginning records
// that its partition has moved. It is for one goroutine.
type Mover struct {
	Table   *checkpoint.Table
	Source  Source
	Parker  Parker        // nil: the store keeps no dead letters
	Effects *Effects      // nil: unknown
	Every   time.Duration // between two looks at the other consumer
	Limit   time.Duration // how long to wait until it has stopped; 0: not at all
	Apply   bool          // change something
	// Force moves partitions that the other consumer or the pipeline still reads, replaces
	// checkpoints of the pipeline, and passes events that are gone.
	Force bool
	Log   func(text string, args ...any) // progress; nil: none

	topic  sluice.Topic
	letter map[string][]letter // by partition
}

func (m *Mover) say(text string, args ...any) {
	if m.Log != nil {
		m.Log(text, args...)
	}
}

// partition is a partition on its way.
type partition struct {
	id    string
	old   azurecheckpoints.Checkpoint
	ours  sluice.Checkpoint // zero, with Position Unset, if there is none
	moved bool              // by an earlier run
	doubt string            // why moved is not certain
	seam  *Seam
}

// Run moves the partitions of which the other consumer has a checkpoint, or plans to. The report is
// complete where err is nil; after an error it has what is known, if it is not nil.
func (m *Mover) Run(ctx context.Context) (*Report, error) {
	var err error
	if m.topic, err = m.Table.Source.Describe(ctx); err != nil {
		return nil, err
	}
	seen, alive, err := m.settle(ctx)
	if err != nil {
		return nil, err
	}
	if len(seen.found.Checkpoints) == 0 {
		return nil, m.Source.None(m.Table.Group, seen.found.Others)
	}
	r := &Report{
		Direction: "to sluice", Other: m.Source.String(), Group: m.Table.Group.String(), Applied: m.Apply, Time: time.Now().UTC(),
		Consumer: alive, Waited: m.Limit > 0, Missing: m.missing(seen.found.Checkpoints),
	}
	if err := m.awaitOwnLeases(ctx); err != nil {
		return nil, err
	}
	partitions, err := m.partitions(ctx, seen)
	if err != nil {
		return nil, err
	}
	unplaced := m.findLetters(ctx, partitions)
	if err := errors.Join(m.plan(ctx, partitions), unplaced); err != nil {
		return nil, err
	}
	for _, p := range partitions {
		r.Seams = append(r.Seams, p.seam)
		if e := p.seam.Effects; e != nil && e.Later > 0 && !p.moved {
			r.Notes = append(r.Notes, fmt.Sprintf("partition %s: the table has %s of events after the old checkpoint: the old consumer did more than it recorded, and these events come again", p.id, humanize.Plural(e.Later, "row", "rows")))
		}
	}
	if !m.Apply {
		return r, nil
	}
	for i, p := range partitions {
		if err := m.move(ctx, p); err != nil {
			return r, fmt.Errorf("%w (%s moved before: run this again, it continues)", err, humanize.Plural(i, "partition was", "partitions were"))
		}
	}
	err = errors.Join(m.readBack(ctx, partitions), m.checkStill(ctx, seen))
	r.conclude()
	return r, err
}

// missing lists the log's partitions without a checkpoint of the other consumer.
func (m *Mover) missing(found []azurecheckpoints.Checkpoint) []string {
	return slices.DeleteFunc(slices.Clone(m.topic.Partitions), func(p string) bool {
		return slices.ContainsFunc(found, func(c azurecheckpoints.Checkpoint) bool { return c.Partition == p })
	})
}

// ownLease is how a lease begins that a run of this command holds while it moves a partition.
const ownLease = "checkpoints-" + string(driver.HowImport) + "-"

// awaitOwnLeases waits until the leases of runs that were killed have expired, 30 seconds at most.
func (m *Mover) awaitOwnLeases(ctx context.Context) error {
	leases, err := m.Table.Leases.List(ctx, m.Table.Group)
	if err != nil {
		return err
	}
	for _, l := range leases {
		if l.Live() && strings.HasPrefix(l.Owner, ownLease) {
			m.say("waiting for the lease of a run that ended", "partition", l.Partition, "left", l.Remaining.Round(time.Second))
			if err := pause(ctx, l.Remaining+time.Second); err != nil {
				return err
			}
		}
	}
	return nil
}

// partitions reads the pipeline's own checkpoints, and which partitions an earlier run has moved.
func (m *Mover) partitions(ctx context.Context, seen look) ([]*partition, error) {
	ours, err := m.Table.Checkpoints.Read(ctx, m.Table.Group)
	if err != nil {
		return nil, err
	}
	list := make([]*partition, len(seen.found.Checkpoints))
	for i, c := range seen.found.Checkpoints {
		p := &partition{id: c.Partition, old: c, ours: sluice.Checkpoint{Position: driver.Unset}}
		for _, o := range ours {
			if o.Partition == c.Partition && o.Incarnation == m.topic.Incarnation {
				p.ours = o
			}
		}
		p.seam = newSeam(c, seen.ends[c.Partition].Sequence)
		if p.ours.Began.How == driver.HowImport && p.ours.Position != driver.Unset {
			p.moved, p.doubt = m.movedFrom(ctx, p)
		}
		list[i] = p
	}
	return list, nil
}

// movedFrom reports whether the pipeline's checkpoint began at the other one. It disturbs no
// reader.
func (m *Mover) movedFrom(ctx context.Context, p *partition) (is bool, doubt string) {
	if p.old.Sequence >= 0 || p.old.Origin {
		return p.ours.Began.After == p.old.Sequence, ""
	}
	quiet := *m.Table
	quiet.DryRun = true
	planned, err := quiet.PlanImport(ctx, m.foreign(p), true)
	if err != nil {
		return true, fmt.Sprintf("whether it began at %s cannot be read now: %v", place(p.old), err)
	}
	return planned.To.Sequence == p.ours.Began.After, ""
}

func (m *Mover) foreign(p *partition) checkpoint.Foreign {
	owner := p.old.Owner
	return checkpoint.Foreign{
		Partition: p.id, Sequence: p.old.Sequence, Offset: p.old.Offset, Origin: p.old.Origin,
		Owner: humanize.Shorten(owner, 100), Exact: true, Onward: p.ours.Began.How == driver.HowImport, // moved, moved back, and now again
	}
}

// plan plans each move before the first is made.
func (m *Mover) plan(ctx context.Context, partitions []*partition) error {
	var refused []error
	for _, p := range partitions {
		if p.moved {
			p.seam.already(p)
		} else if planned, err := m.Table.PlanImport(ctx, m.foreign(p), m.Force); err != nil {
			refused = append(refused, err)
		} else if err := m.otherLog(ctx, p); err != nil {
			refused = append(refused, err)
		} else {
			p.seam.planned(planned)
		}
		p.seam.count(m.letter[p.id])
		m.Effects.look(ctx, p.seam)
	}
	return errors.Join(refused...)
}

// otherLog returns an error if the checkpoint's event has another offset in the log of a hub: a hub
// that was recreated and has grown past the checkpoint. An event that cannot be read shows nothing.
func (m *Mover) otherLog(ctx context.Context, p *partition) error {
	if m.Force || m.topic.Sparse || p.old.Sequence < 0 || p.old.Offset == "" {
		return nil
	}
	if e, err := m.readEvent(ctx, p, p.old.Sequence); err == nil && e.Offset != p.old.Offset {
		return fmt.Errorf("partition %s: the checkpoint has the offset %s at event %d, and that event has %s: it is of another hub, or of this one before it was recreated: delete it, or use --force",
			p.id, p.old.Offset, p.old.Sequence, e.Offset)
	}
	return nil
}

// move moves one partition: its dead letters, then its checkpoint.
func (m *Mover) move(ctx context.Context, p *partition) error {
	if p.moved {
		return nil
	}
	if err := m.park(ctx, p); err != nil {
		return err
	}
	done, err := m.Table.Import(ctx, m.foreign(p), m.Force)
	if err == nil {
		p.seam.planned(done)
	}
	return err
}

// readBack reads what was stored. What is not there is an error.
func (m *Mover) readBack(ctx context.Context, partitions []*partition) error {
	ours, err := m.Table.Checkpoints.Read(ctx, m.Table.Group)
	if err != nil {
		return fmt.Errorf("read the checkpoints back: %w", err)
	}
	for _, p := range partitions {
		i := slices.IndexFunc(ours, func(o sluice.Checkpoint) bool {
			return o.Partition == p.id && o.Incarnation == m.topic.Incarnation
		})
		switch {
		case i < 0:
			return fmt.Errorf("partition %s: the checkpoint that was set is not there: see `sluice checkpoints list`", p.id)
		case ours[i].Began != driver.Beginning{After: p.seam.Start - 1, How: driver.HowImport}:
			return fmt.Errorf("partition %s: the checkpoint begins after %d by %q, not after %d by import: another program has set it meanwhile: see `sluice checkpoints list`",
				p.id, ours[i].Began.After, ours[i].Began.How, p.seam.Start-1)
		}
		p.seam.stored(p, ours[i])
	}
	return nil
}

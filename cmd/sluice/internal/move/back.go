package move

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/blobstore"
	"github.com/sluice-go/sluice/cmd/sluice/internal/checkpoint"
	"github.com/sluice-go/sluice/cmd/sluice/internal/usage"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/azurecheckpoints"
	"github.com/sluice-go/sluice/internal/humanize"
)

// back is the direction of a report from the pipeline to another consumer.
const back = "back"

// Target is where another consumer reads its positions. Writing them again is harmless.
type Target interface {
	Source
	// Write stores positions for the table's group. It refuses what an active consumer owns.
	Write(ctx context.Context, t *checkpoint.Table, list []sluice.Checkpoint) error
}

// OpenTarget returns the target that exactly one of the flags names; the table is that of rows. It
// does not connect. The caller closes it.
func OpenTarget(group, blob, database string, rows Origin) (Target, error) {
	switch {
	case group != "":
		return groupSource{group, true}, nil
	case database != "":
		rows.Database, rows.DeadLetters = database, NoTable
		source, err := rows.rows("--to-table", true)
		if err != nil {
			return nil, err
		}
		return source.(tableSource), nil
	}
	client, err := Container("--to-blob", blob)
	if err != nil {
		return nil, err
	}
	return blobSource{client, blob, ""}, nil
}

// Write implements [Target].
func (s groupSource) Write(ctx context.Context, t *checkpoint.Table, list []sluice.Checkpoint) error {
	log, ok := kafkaLogOf(t)
	if !ok {
		return usage.Errorf("--to-group is for topics of Kafka, and the pipeline reads a hub: pass --to-blob")
	}
	positions := make(map[string]sluice.Position, len(list))
	for _, c := range list {
		positions[c.Partition] = c.Position
	}
	return log.CommitOffsets(ctx, s.name, positions)
}

// Write implements [Target]: a partition whose checkpoint is that of a fixed-partition processor
// gets another one of that kind, any other one of the current SDKs.
func (s blobSource) Write(ctx context.Context, t *checkpoint.Table, list []sluice.Checkpoint) error {
	if t.ManyReaders {
		return usage.Errorf("--to-blob is for event hubs, and the pipeline reads a topic of Kafka: pass --to-group")
	}
	found, err := s.Read(ctx, t)
	if err != nil {
		return err
	}
	var mirrored []sluice.Checkpoint
	for _, c := range list {
		i := slices.IndexFunc(found.Checkpoints, func(o azurecheckpoints.Checkpoint) bool { return o.Partition == c.Partition })
		if i < 0 || !found.Checkpoints[i].Fixed {
			mirrored = append(mirrored, c)
			continue
		}
		// An owner's lease refuses the write.
		content := streaming.NopCloser(strings.NewReader(cmp.Or(c.Position.Offset, "-1"))) // -1: none
		if _, err := s.client.NewBlockBlobClient(found.Checkpoints[i].Blob).Upload(ctx, content, nil); err != nil {
			return fmt.Errorf("write blob %s: %w", found.Checkpoints[i].Blob, blobstore.SafeError(err))
		}
	}
	if len(mirrored) == 0 {
		return nil
	}
	return blobstore.WriteCheckpoints(ctx, s.client, t.SDKGroup, mirrored)
}

// Write implements [Target].
func (s tableSource) Write(ctx context.Context, t *checkpoint.Table, list []sluice.Checkpoint) error {
	if t.ManyReaders {
		return usage.Errorf("--to-table is for event hubs, and the pipeline reads a topic of Kafka: pass --to-group")
	}
	rows := make([]azurecheckpoints.Checkpoint, len(list))
	for i, c := range list {
		if c.Position.Sequence == 0 && c.Position.Offset == "" {
			return fmt.Errorf("partition %s: event 0 alone is done, and retention has removed it with its offset: a row of the table cannot say that: wait until another event is done", c.Partition)
		}
		rows[i] = azurecheckpoints.Checkpoint{Partition: c.Partition, Sequence: c.Position.Sequence, Offset: c.Position.Offset}
	}
	return azurecheckpoints.WriteTable(ctx, s.db, s.words, s.table, cmp.Or(s.topic, t.Group.Topic), rows)
}

// Backer moves a consumer from a pipeline to another system. It may be killed at any moment and run
// again. It is for one goroutine.
type Backer struct {
	Table  *checkpoint.Table
	Target Target
	Apply  bool // change something
	Force  bool // replace checkpoints of the other consumer that are after the pipeline's
}

// Run moves the partitions of which the pipeline has a checkpoint, or plans to. After an error the
// report has what is known, if it is not nil.
func (m *Backer) Run(ctx context.Context) (*Report, error) {
	topic, err := m.Table.Source.Describe(ctx)
	if err != nil {
		return nil, err
	}
	if err := m.checkStopped(ctx); err != nil {
		return nil, err
	}
	list, err := m.checkpoints(ctx, topic)
	if err != nil {
		return nil, err
	}
	r := &Report{
		Direction: back, Other: m.Target.String(), Group: m.Table.Group.String(), Applied: m.Apply, Time: time.Now().UTC(),
		Consumer: Liveness{Stopped, "no process holds a lease"},
	}
	for _, p := range topic.Partitions {
		if !slices.ContainsFunc(list, func(c sluice.Checkpoint) bool { return c.Partition == p }) {
			r.Missing = append(r.Missing, p)
		}
	}
	if r.Seams, err = m.seams(ctx, list); err != nil {
		return nil, err
	}
	if err := m.notes(ctx, r, list); err != nil {
		return nil, err
	}
	if err := m.checkTarget(ctx, list); err != nil || !m.Apply {
		return r, err
	}
	if err := m.Target.Write(ctx, m.Table, list); err != nil {
		return r, fmt.Errorf("%w: run this again, it continues", err)
	}
	if err := m.readBack(ctx, list, r.Seams, topic.Sparse); err != nil {
		return r, err
	}
	return r, m.checkUnmoved(ctx, topic, list)
}

// checkStopped refuses while a process of the pipeline holds a partition.
func (m *Backer) checkStopped(ctx context.Context) error {
	leases, err := m.Table.Leases.List(ctx, m.Table.Group)
	if err != nil {
		return err
	}
	for _, l := range leases {
		if l.Live() && !l.Member() {
			return fmt.Errorf("partition %s is owned by %s (lease expires in %v): stop the pipeline first, it stores its checkpoints and releases its partitions", l.Partition, l.Owner, l.Remaining.Round(time.Second))
		}
	}
	return nil
}

// checkpoints reads the pipeline's checkpoints, and the offsets that they lack from the log:
// Azure's processors start by the offset.
func (m *Backer) checkpoints(ctx context.Context, topic sluice.Topic) ([]sluice.Checkpoint, error) {
	all, err := m.Table.Checkpoints.Read(ctx, m.Table.Group)
	if err != nil {
		return nil, err
	}
	list := slices.DeleteFunc(all, func(c sluice.Checkpoint) bool {
		return c.Position == driver.Unset || c.Incarnation != topic.Incarnation
	})
	if len(list) == 0 {
		return nil, fmt.Errorf("the pipeline has no checkpoints of %v: there is nothing to move back", m.Table.Group)
	}
	for i := range list {
		c := &list[i]
		if c.Position.Offset != "" || c.Position.Sequence < 0 || topic.Sparse {
			continue
		}
		reading, cancel := context.WithTimeout(ctx, readWithin)
		e, err := checkpoint.ReadEvent(reading, m.Table.Source, c.Partition, c.Position.Sequence, driver.NoEpoch)
		cancel()
		switch {
		case err == nil:
			c.Position = e.Position()
		case !errors.Is(err, driver.ErrRetention):
			return nil, fmt.Errorf("read the offset of event %d of partition %s: %w", c.Position.Sequence, c.Partition, err)
		}
	}
	return list, nil
}

func (m *Backer) seams(ctx context.Context, list []sluice.Checkpoint) ([]*Seam, error) {
	seams := make([]*Seam, len(list))
	for i, c := range list {
		b, err := m.Table.Source.Bounds(ctx, c.Partition)
		if err != nil {
			return nil, fmt.Errorf("bounds of partition %s: %w", c.Partition, err)
		}
		seams[i] = &Seam{Partition: c.Partition, Old: &list[i].Position.Sequence, OldOffset: c.Position.Offset, OldAt: &list[i].Updated, End: b.Last.Sequence, Start: c.Position.Sequence + 1, Verdict: planned}
		if n := ahead(c); n > 0 {
			seams[i].doubt(humanize.Plural(n, "event after the checkpoint is done already and comes", "events after the checkpoint are done already and come") + " again")
		}
	}
	return seams, nil
}

// ahead is how many events after a checkpoint are done.
func ahead(c sluice.Checkpoint) (n int64) {
	for _, r := range c.Done {
		n += r.Last - r.First + 1
	}
	return n
}

// notes counts the open dead letters, which stay.
func (m *Backer) notes(ctx context.Context, r *Report, list []sluice.Checkpoint) error {
	counts, err := m.Table.DeadLetters.Count(ctx, m.Table.Group, sluice.DeadLetterFilter{Status: []sluice.DeadLetterStatus{sluice.StatusDead, sluice.StatusRetry}})
	if err != nil {
		return err
	}
	total := 0
	for _, c := range counts {
		total += c.Count
		for _, s := range r.Seams {
			if s.Partition == c.Partition {
				s.Letters.Open += int64(c.Count)
			}
		}
	}
	if total > 0 {
		r.Notes = append(r.Notes, humanize.Plural(total, "dead letter stays", "dead letters stay")+" in Sluice's store, and the other consumer does not see them: redrive them before the move (`sluice deadletters retry`), or keep them")
	}
	return nil
}

// checkTarget refuses while the other consumer runs, and where it is further than the pipeline.
func (m *Backer) checkTarget(ctx context.Context, list []sluice.Checkpoint) error {
	found, err := m.Target.Read(ctx, m.Table)
	if err != nil {
		return err
	}
	for p, owner := range found.Owners {
		return fmt.Errorf("partition %s is already read by %s: stop the other consumer and wait a minute: it starts after the move", p, owner)
	}
	for _, theirs := range found.Checkpoints {
		for _, ours := range list {
			if ours.Partition == theirs.Partition && theirs.Sequence > ours.Position.Sequence && !m.Force {
				return fmt.Errorf("the other consumer's checkpoint of partition %s is at %d, after the pipeline's at %d: it has continued since: move to sluice first, or replace it with --force", theirs.Partition, theirs.Sequence, ours.Position.Sequence)
			}
		}
	}
	return nil
}

// readBack reads what was written. What is not there is an error.
func (m *Backer) readBack(ctx context.Context, list []sluice.Checkpoint, seams []*Seam, sparse bool) error {
	found, err := m.Target.Read(ctx, m.Table)
	if err != nil {
		return fmt.Errorf("the checkpoints are written, and cannot be read back: %w", err)
	}
	for i, ours := range list {
		at := slices.IndexFunc(found.Checkpoints, func(c azurecheckpoints.Checkpoint) bool { return c.Partition == ours.Partition })
		switch {
		case at < 0 && ours.Position.Sequence < 0: // it starts with the first event
			seams[i].doubt("no event is done, so the other consumer starts where its own setting says")
		case at < 0:
			return fmt.Errorf("partition %s: the checkpoint that was written is not there: run this again", ours.Partition)
		default:
			theirs := found.Checkpoints[at]
			// Processors of hubs start by the offset; a group of Kafka has another text for it.
			otherOffset := !m.Table.ManyReaders && theirs.Offset != "" && ours.Position.Offset != "" && theirs.Offset != ours.Position.Offset
			if otherOffset || theirs.Sequence != ours.Position.Sequence && (theirs.Sequence >= 0 || theirs.Offset != ours.Position.Offset) {
				return fmt.Errorf("partition %s: the checkpoint that was written at %s is at %s: another program writes there: stop it and run this again", ours.Partition, ours.Position, place(theirs))
			}
			if theirs.Fixed {
				seams[i].doubt("a fixed-partition processor starts with the event at its offset, so the last event comes again")
			}
		}
		if ours.Position.Offset == "" && ours.Position.Sequence >= 0 && !sparse {
			seams[i].doubt("retention has removed the event of the checkpoint, so its offset is unknown, and a processor that starts by the offset reads the partition from its oldest event")
		}
		if !m.Target.ShowsOwners() {
			seams[i].doubt(fmt.Sprintf("the %s shows no owners, so whether the other consumer has stopped is unknown", m.Target))
		}
		if seams[i].Verdict = proved; len(seams[i].Why) > 0 {
			seams[i].Verdict = notKnown
		}
	}
	return nil
}

// checkUnmoved compares the pipeline's checkpoints with those that were moved.
func (m *Backer) checkUnmoved(ctx context.Context, topic sluice.Topic, list []sluice.Checkpoint) error {
	if err := m.checkStopped(ctx); err != nil {
		return fmt.Errorf("the pipeline has started meanwhile: %w, and run this again before the other consumer starts", err)
	}
	now, err := m.checkpoints(ctx, topic)
	if err != nil {
		return err
	}
	for _, c := range list {
		i := slices.IndexFunc(now, func(o sluice.Checkpoint) bool { return o.Partition == c.Partition })
		if i < 0 || now[i].Position.Sequence != c.Position.Sequence || now[i].Epoch != c.Epoch {
			return fmt.Errorf("the pipeline's checkpoint of partition %s changed during the move: stop the pipeline, and run this again before the other consumer starts", c.Partition)
		}
	}
	return nil
}

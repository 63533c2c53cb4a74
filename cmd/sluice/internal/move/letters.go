package move

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/cmd/sluice/internal/checkpoint"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/azurecheckpoints"
	"github.com/sluice-go/sluice/internal/humanize"
	"github.com/sluice-go/sluice/internal/partitionkey"
)

// fate is what becomes of a dead letter of the other consumer.
type fate int

const (
	fateImport  fate = iota // it is stored with its event
	fatePointer             // it is stored without its event, which retention has removed
	fateThere               // the pipeline has it
	fateSettled             // an earlier run has moved the partition, and the pipeline does not have it
	fateAgain               // its event is after the checkpoint, so the pipeline reads it
)

// letter is a dead letter of the other consumer.
type letter struct {
	row   azurecheckpoints.DeadLetter
	fate  fate
	event *driver.Event // with fateImport
}

const (
	readWithin = 30 * time.Second // bounds the reading of one event
	parkPage   = 100              // dead letters that are stored at once
)

// findLetters reads the dead letters of the other consumer, and decides what becomes of each.
func (m *Mover) findLetters(ctx context.Context, partitions []*partition) error {
	rows, err := m.Source.DeadLetters(ctx, m.Table.Group.Topic)
	if err != nil || len(rows) == 0 {
		return err
	}
	if m.Parker == nil && m.Apply {
		return fmt.Errorf("the other consumer has %s, and the pipeline's store keeps none: settle them first, or pass --dead-letters-table %s", humanize.Plural(len(rows), "dead letter", "dead letters"), NoTable)
	}
	m.letter = make(map[string][]letter)
	var refused []error
	for _, row := range rows {
		p, l, err := m.place(ctx, partitions, row)
		if err != nil {
			refused = append(refused, fmt.Errorf("dead letter of event %d, partition or key %q: %w", row.Sequence, row.PartitionOrKey, err))
			continue
		}
		m.letter[p.id] = append(m.letter[p.id], l)
	}
	return errors.Join(refused...)
}

// place finds the partition of a dead letter. The published code stores the event's partition key
// as PartitionID, so the log must show that the event is there.
func (m *Mover) place(ctx context.Context, partitions []*partition, row azurecheckpoints.DeadLetter) (*partition, letter, error) {
	var possible []*partition
	for _, id := range m.candidates(row.PartitionOrKey) {
		if i := slices.IndexFunc(partitions, func(p *partition) bool { return p.id == id }); i >= 0 {
			possible = append(possible, partitions[i])
		}
	}
	var found *partition
	var l letter
	var failed error
	for _, p := range possible {
		fits, isHere, err := m.fate(ctx, p, row, len(possible) == 1)
		switch {
		case err != nil:
			failed = err
		case isHere && found != nil:
			return nil, l, fmt.Errorf("partitions %s and %s both have such an event: correct PartitionID in the row", found.id, p.id)
		case isHere:
			found, l = p, fits
		}
	}
	if found == nil {
		return nil, l, cmp.Or(failed, errors.New("no partition with a checkpoint has such an event: correct the row, or delete it if its event is settled"))
	}
	return found, l, nil
}

// candidates are the partitions that a row can mean: the one of that name, and that of the key.
func (m *Mover) candidates(name string) []string {
	var list []string
	if slices.Contains(m.topic.Partitions, name) {
		list = append(list, name)
	}
	if n := len(m.topic.Partitions); !m.topic.Sparse && n > 0 { // a hub
		if of := strconv.Itoa(partitionkey.EventHubsPartition(name, n)); !slices.Contains(list, of) {
			list = append(list, of)
		}
	}
	return list
}

// fate decides what becomes of a row if its event is of partition p. Here is false if it is not.
func (m *Mover) fate(ctx context.Context, p *partition, row azurecheckpoints.DeadLetter, only bool) (l letter, here bool, err error) {
	l.row = row
	there, err := m.stored(ctx, p.id, row.Sequence)
	if err != nil {
		return l, false, err
	}
	event, err := m.readEvent(ctx, p, row.Sequence)
	gone := errors.Is(err, driver.ErrRetention)
	switch {
	case err != nil && !gone && (there || p.moved && (only || p.id == row.PartitionOrKey)): // the pipeline reads it
	case err != nil && !gone:
		return l, false, err
	case gone && !only && p.id != row.PartitionOrKey:
		return l, false, nil
	case event != nil && p.id != row.PartitionOrKey && event.Key != row.PartitionOrKey:
		return l, false, nil
	case event != nil && row.Offset != "" && event.Offset != row.Offset:
		return l, false, fmt.Errorf("it has the offset %s, and that event of partition %s has %s: the row is of another hub, or of this one before it was recreated: correct or delete it", row.Offset, p.id, event.Offset)
	}
	switch {
	case there:
		l.fate = fateThere
	case p.ours.Began.How == driver.HowImport && row.Sequence <= p.ours.Began.After:
		l.fate = fateSettled
	case (p.old.Sequence >= 0 || p.old.Origin) && row.Sequence > p.old.Sequence:
		l.fate = fateAgain
	case gone:
		l.fate = fatePointer
	default:
		l.event = event
	}
	return l, true, nil
}

// stored reports whether the pipeline has a dead letter of an event.
func (m *Mover) stored(ctx context.Context, partition string, sequence int64) (bool, error) {
	list, err := m.Table.DeadLetters.List(ctx, m.Table.Group, sluice.DeadLetterFilter{Partition: partition, FirstSequence: &sequence, LastSequence: &sequence})
	return slices.ContainsFunc(list, func(d sluice.DeadLetter) bool { return d.Incarnation == m.topic.Incarnation }), err
}

// readEvent reads an event, without what a dead letter does not store, and without ending another
// reader's link.
func (m *Mover) readEvent(ctx context.Context, p *partition, sequence int64) (*driver.Event, error) {
	if sequence > p.seam.End {
		return nil, fmt.Errorf("the newest event of partition %s is %d: the row belongs to another hub, or to this one before it was recreated: delete it", p.id, p.seam.End)
	}
	ctx, cancel := context.WithTimeout(ctx, readWithin)
	defer cancel()
	e, err := checkpoint.ReadEvent(ctx, m.Table.Source, p.id, sequence, driver.NoEpoch)
	if err != nil {
		return nil, err
	}
	light := *e
	light.Body, light.Properties, light.Headers = nil, nil, nil
	return &light, nil
}

// park stores the dead letters of a partition. Each of them is there then, or there is an error.
func (m *Mover) park(ctx context.Context, p *partition) error {
	var list []sluice.DeadLetter
	for _, l := range m.letter[p.id] {
		if l.fate == fateImport || l.fate == fatePointer {
			list = append(list, m.deadLetter(p.id, l))
		}
	}
	for page := range slices.Chunk(list, parkPage) {
		if err := m.Parker.Park(ctx, page); err != nil {
			return fmt.Errorf("store dead letters of partition %s: %w", p.id, err)
		}
	}
	for _, d := range list {
		if there, err := m.stored(ctx, p.id, d.Event.Sequence); err != nil || !there {
			return fmt.Errorf("partition %s: the dead letter of event %d was stored and is not there: %w", p.id, d.Event.Sequence, cmp.Or(err, driver.ErrNotFound))
		}
	}
	return nil
}

// deadLetter makes a dead letter without a body, as the row is one: a redrive reads the log.
func (m *Mover) deadLetter(partition string, l letter) sluice.DeadLetter {
	d := sluice.DeadLetter{
		Group: m.Table.Group, Incarnation: m.topic.Incarnation, FailedAt: l.row.FailedAt, Attempts: 1, Status: sluice.StatusDead,
		Error: cmp.Or(l.row.Error, "imported: the other consumer recorded no error"),
	}
	if d.FailedAt.IsZero() {
		d.FailedAt = time.Now().UTC()
	}
	if d.Event = (sluice.Event{Partition: partition, Sequence: l.row.Sequence, Offset: l.row.Offset}); l.event != nil {
		d.Event = *l.event
	}
	return d
}

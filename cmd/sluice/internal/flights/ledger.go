package flights

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strconv"

	"github.com/sluice-go/sluice/audit"
	"github.com/sluice-go/sluice/driver"
)

// ledger is the ledger of a demo whose effects are in no table: all effects of its events,
// read once.
type ledger struct {
	progress map[string]driver.Checkpoint // by partition
	entries  map[string][]audit.Entry     // sorted
}

// Found records the effect of an event.
type Found func(partition string, sequence int64)

// HubAudit compares what the hub holds, read by a consumer group of the
// audit's own, with the effects, which read finds, and the dead letters. The
// demo can run at the same time. It closes source, which reads as that group.
func (s *Scenario) HubAudit(ctx context.Context, source Source, progress func(events int64), read func(context.Context, Found) error) (*audit.Report, error) {
	defer source.Close(context.WithoutCancel(ctx))
	topic, err := s.Source.Describe(ctx)
	if err != nil {
		return nil, err
	}
	b, err := s.readLedger(ctx, topic.Group, read)
	if err != nil {
		return nil, err
	}
	return audit.Run(ctx, source, b, topic.Group, &audit.Config{Progress: progress})
}

// readLedger reads checkpoints, effects and dead letters. Checkpoints come first:
// what they have passed was done before, so the reads after them find it.
func (s *Scenario) readLedger(ctx context.Context, group driver.Group, read func(context.Context, Found) error) (*ledger, error) {
	b := &ledger{progress: map[string]driver.Checkpoint{}, entries: map[string][]audit.Entry{}}
	list, err := s.Checkpoints.Read(ctx, group)
	if err != nil {
		return nil, fmt.Errorf("read the checkpoints: %w", err)
	}
	for _, p := range list {
		b.progress[p.Partition] = p
	}
	deadLetters, err := s.DeadLetters.List(ctx, group, driver.DeadLetterFilter{})
	if err != nil {
		return nil, fmt.Errorf("read the dead letters: %w", err)
	}
	for _, d := range deadLetters {
		b.entries[d.Event.Partition] = append(b.entries[d.Event.Partition], audit.Entry{Sequence: d.Event.Sequence, DeadLetter: true})
	}
	err = read(ctx, func(partition string, sequence int64) {
		b.entries[partition] = append(b.entries[partition], audit.Entry{Sequence: sequence})
	})
	if err != nil {
		return nil, err
	}
	for partition, entries := range b.entries {
		if p, err := strconv.Atoi(partition); err != nil || p < 0 || p >= Partitions {
			return nil, fmt.Errorf("there is an effect of event %d of partition %s, which the hub does not have", entries[0].Sequence, partition)
		}
		slices.SortFunc(entries, func(a, b audit.Entry) int { return cmp.Compare(a.Sequence, b.Sequence) })
	}
	return b, nil
}

// Open implements [audit.Ledger].
func (b *ledger) Open(_ context.Context, _ driver.Topic, partition string) (audit.View, error) {
	return partitionLedger{b, partition}, nil
}

// partitionLedger is the part of a ledger that belongs to one partition.
type partitionLedger struct {
	*ledger
	partition string
}

// Checkpoint implements [audit.View].
func (p partitionLedger) Checkpoint(context.Context) (driver.Checkpoint, bool, error) {
	progress, there := p.progress[p.partition]
	return progress, there, nil
}

// Entries implements [audit.View].
func (p partitionLedger) Entries(context.Context) iter.Seq2[audit.Entry, error] {
	return func(yield func(audit.Entry, error) bool) {
		for _, e := range p.entries[p.partition] {
			if !yield(e, nil) {
				return
			}
		}
	}
}

// Close implements [audit.View].
func (p partitionLedger) Close() error { return nil }

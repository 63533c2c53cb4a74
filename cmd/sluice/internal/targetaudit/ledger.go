package targetaudit

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/audit"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/pipeline"
)

// storeLedger has the checkpoints and dead letters of a pipeline's store. Its views read them
// first, and what the target has afterwards: what is missing then was not written.
type storeLedger struct {
	parts *pipeline.Parts
	// find asks the target for events. Nil: list lists what it has.
	find func(ctx context.Context, topic sluice.Topic, events []*sluice.Event) ([]pipeline.Found, error)
	// list yields the sequence numbers of a partition whose effects the target has, ascending, up to
	// the checkpoint.
	list func(ctx context.Context, topic sluice.Topic, partition string, checkpoint int64) iter.Seq2[int64, error]
}

// maxDeadLetters bounds the dead letters of a partition that are kept in memory.
const maxDeadLetters = 10_000_000

// deadLetterPage is how many dead letters are read at once.
const deadLetterPage = 10_000

// Open implements [audit.Ledger].
func (l *storeLedger) Open(_ context.Context, topic sluice.Topic, partition string) (audit.View, error) {
	v := &storeView{storeLedger: l, topic: topic, partition: partition, checkpoint: driver.Unset.Sequence}
	if l.find != nil {
		return &askingView{v}, nil
	}
	return v, nil
}

// storeView is the view of a target that lists what it has.
type storeView struct {
	*storeLedger
	topic      sluice.Topic
	partition  string
	checkpoint int64
}

// Close implements [audit.View].
func (v *storeView) Close() error { return nil }

// Checkpoint implements [audit.View].
func (v *storeView) Checkpoint(ctx context.Context) (sluice.Checkpoint, bool, error) {
	list, err := v.parts.Checkpoints.Read(ctx, v.topic.Group)
	if err != nil {
		return sluice.Checkpoint{}, false, fmt.Errorf("read the checkpoints: %w", err)
	}
	for _, c := range list {
		if c.Partition == v.partition {
			v.checkpoint = c.Position.Sequence
			return c, true, nil
		}
	}
	return sluice.Checkpoint{}, false, nil
}

// deadLetters returns the sequence numbers of the partition's dead letters, ascending.
func (v *storeView) deadLetters(ctx context.Context) ([]int64, error) {
	var numbers []int64
	filter := driver.DeadLetterFilter{Partition: v.partition, Limit: deadLetterPage}
	for {
		page, err := v.parts.DeadLetters.List(ctx, v.topic.Group, filter)
		if err != nil {
			return nil, fmt.Errorf("read the dead letters: %w", err)
		}
		for i := range page {
			if page[i].Incarnation == v.topic.Incarnation {
				numbers = append(numbers, page[i].Event.Sequence)
			}
		}
		switch {
		case len(numbers) > maxDeadLetters:
			return nil, fmt.Errorf("more than %d dead letters in partition %s: discard or redrive them first: %w", maxDeadLetters, v.partition, audit.ErrUndecided)
		case len(page) < deadLetterPage:
			slices.Sort(numbers)
			return numbers, nil
		}
		filter.AfterID = page[len(page)-1].ID
	}
}

// isDeadLetter reports whether an event has a dead letter now.
func (v *storeView) isDeadLetter(ctx context.Context, sequence int64) (bool, error) {
	list, err := v.parts.DeadLetters.List(ctx, v.topic.Group, driver.DeadLetterFilter{Partition: v.partition, FirstSequence: &sequence, LastSequence: &sequence})
	if err != nil {
		return false, fmt.Errorf("read the dead letter of event %d: %w", sequence, err)
	}
	return slices.ContainsFunc(list, func(l driver.DeadLetter) bool { return l.Incarnation == v.topic.Incarnation }), nil
}

// Entries implements [audit.View].
func (v *storeView) Entries(ctx context.Context) iter.Seq2[audit.Entry, error] {
	return func(yield func(audit.Entry, error) bool) {
		dead, err := v.deadLetters(ctx)
		if err != nil {
			yield(audit.Entry{}, err)
			return
		}
		if v.list != nil {
			var more bool
			if dead, more = v.merge(ctx, dead, yield); !more {
				return
			}
		}
		for _, number := range dead {
			if !yield(audit.Entry{Sequence: number, DeadLetter: true}, nil) {
				return
			}
		}
	}
}

// merge yields what the target lists and the dead letters before it. It returns the other dead letters, and
// whether to go on.
func (v *storeView) merge(ctx context.Context, dead []int64, yield func(audit.Entry, error) bool) ([]int64, bool) {
	for number, err := range v.list(ctx, v.topic, v.partition, v.checkpoint) {
		if err != nil {
			return nil, yield(audit.Entry{}, err) && false
		}
		for len(dead) > 0 && dead[0] <= number {
			is := true
			if dead[0] == number { // it may have been redriven since it was read
				if is, err = v.isDeadLetter(ctx, number); err != nil {
					return nil, yield(audit.Entry{}, err) && false
				}
			}
			if is && !yield(audit.Entry{Sequence: dead[0], DeadLetter: true}, nil) {
				return nil, false
			}
			dead = dead[1:]
		}
		if !yield(audit.Entry{Sequence: number}, nil) {
			return nil, false
		}
	}
	return dead, true
}

// askingView is the view of a target that is asked for events.
type askingView struct{ *storeView }

var _ audit.Finder = (*askingView)(nil)

// Find implements [audit.Finder].
func (v *askingView) Find(ctx context.Context, events []*sluice.Event) ([]audit.Effect, error) {
	found, err := v.find(ctx, v.topic, events)
	if err != nil {
		return nil, err
	}
	effects := make([]audit.Effect, len(found))
	for i, f := range found {
		effects[i] = audit.Effect(f)
	}
	return effects, nil
}

// IsDeadLetter implements [audit.Finder].
func (v *askingView) IsDeadLetter(ctx context.Context, sequence int64) (bool, error) {
	return v.isDeadLetter(ctx, sequence)
}

package targetaudit

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/audit"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/pipeline"
)

// storeLedger has the checkpoints and dead letters of a pipeline's store. It reads them once, and
// what the target has afterwards: what is missing then was not written.
type storeLedger struct {
	parts *pipeline.Parts
	// prepare reads what the target has, once. Nil: find or list read it when they are called.
	prepare func(ctx context.Context) error
	// find asks the target for events. Nil: list lists what it has.
	find func(ctx context.Context, topic sluice.Topic, events []*sluice.Event) ([]pipeline.Found, error)
	// list yields the sequence numbers of a partition whose effects the target has, ascending, up
	// to the last one.
	list func(ctx context.Context, topic sluice.Topic, partition string, last int64) iter.Seq2[int64, error]

	mu     sync.Mutex
	stored map[string]*stored // by partition; nil: not read yet
}

// stored is what the store has of a partition.
type stored struct {
	checkpoint sluice.Checkpoint
	found      bool    // the checkpoint
	last       int64   // the last event that is done: later dead letters may be of events that are newer than the audit
	dead       []int64 // the sequence numbers of the dead letters up to it, ascending
}

// maxDeadLetters bounds the dead letters that are kept in memory.
const maxDeadLetters = 10_000_000

// deadLetterPage is how many dead letters are read at once.
const deadLetterPage = 10_000

// Open implements [audit.Ledger].
func (l *storeLedger) Open(ctx context.Context, topic sluice.Topic, partition string) (audit.View, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stored == nil {
		if err := l.read(ctx, topic); err != nil {
			return nil, err
		}
	}
	v := &storeView{l, topic, partition, l.stored[partition]}
	if l.find != nil {
		return &askingView{v}, nil
	}
	return v, nil
}

// read reads the checkpoints, then the dead letters, then what the target has.
func (l *storeLedger) read(ctx context.Context, topic sluice.Topic) error {
	list, err := l.parts.Checkpoints.Read(ctx, topic.Group)
	if err != nil {
		return fmt.Errorf("read the checkpoints: %w", err)
	}
	all := map[string]*stored{}
	for _, partition := range topic.Partitions {
		all[partition] = &stored{last: driver.Unset.Sequence}
	}
	for _, c := range list {
		if s := all[c.Partition]; s != nil {
			s.checkpoint, s.found, s.last = c, true, c.Position.Sequence
			if n := len(c.Done); n > 0 {
				s.last = c.Done[n-1].Last
			}
		}
	}
	if err := l.readDeadLetters(ctx, topic, all); err != nil {
		return err
	}
	if l.prepare != nil {
		if err := l.prepare(ctx); err != nil {
			return err
		}
	}
	l.stored = all
	return nil
}

func (l *storeLedger) readDeadLetters(ctx context.Context, topic sluice.Topic, all map[string]*stored) error {
	filter := driver.DeadLetterFilter{Limit: deadLetterPage}
	for n := 0; ; {
		page, err := l.parts.DeadLetters.List(ctx, topic.Group, filter)
		if err != nil {
			return fmt.Errorf("read the dead letters: %w", err)
		}
		for i := range page {
			s := all[page[i].Event.Partition]
			if s != nil && page[i].Incarnation == topic.Incarnation && page[i].Event.Sequence <= s.last {
				s.dead = append(s.dead, page[i].Event.Sequence)
				n++
			}
		}
		if n > maxDeadLetters {
			return fmt.Errorf("more than %d dead letters: redrive them first: %w", maxDeadLetters, audit.ErrUndecided)
		}
		if len(page) < deadLetterPage {
			break
		}
		filter.AfterID = page[len(page)-1].ID
	}
	for _, s := range all {
		slices.Sort(s.dead)
	}
	return nil
}

// storeView is the view of a target that lists what it has.
type storeView struct {
	*storeLedger
	topic     sluice.Topic
	partition string
	*stored
}

// Close implements [audit.View].
func (v *storeView) Close() error { return nil }

// Checkpoint implements [audit.View].
func (v *storeView) Checkpoint(context.Context) (sluice.Checkpoint, bool, error) {
	return v.checkpoint, v.found, nil
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
		dead := v.dead
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

// merge yields what the target lists and the dead letters before it. It returns the other dead
// letters, and whether to go on.
func (v *storeView) merge(ctx context.Context, dead []int64, yield func(audit.Entry, error) bool) ([]int64, bool) {
	for number, err := range v.list(ctx, v.topic, v.partition, v.last) {
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

// Groups implements [driver.GroupLister]: the pipeline has been opened, and knows its group.
func (l *storeLedger) Groups(context.Context, sluice.Group) ([]sluice.Group, error) {
	return []sluice.Group{l.parts.Group}, nil
}

package targetaudit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/audit"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/humanize"
	"github.com/sluice-go/sluice/internal/idset"
	"github.com/sluice-go/sluice/pipeline"
	"github.com/sluice-go/sluice/stamp"
)

// messages are the messages of a pipeline that its target has, by the ids of their events.
type messages struct {
	stamps *stamp.Reader
	sets   map[origin]*idset.Set
	words  int
	copies map[message]int // those that are there more than once, with how often

	read int64     // messages so far
	dead int64     // of those, in the dead-letter queue of the target
	held time.Time // messages that were sent from then on are all there
	gone string    // why a message that is not there is not known to be lost; empty: it is lost if it was sent after held
}

// origin is the partition that messages come from.
type origin struct{ source, partition string }

// message is one message of an origin.
type message struct {
	origin
	id idset.ID
}

const (
	// maxWords bounds the ids that are remembered: 96 MiB, with up to 64 ids in a word.
	maxWords = 4 << 20
	// maxCopies bounds the messages that are there more than once.
	maxCopies = 1 << 20
	// clockMargin is how much the clocks of two namespaces or clusters may differ.
	clockMargin = 5 * time.Minute
)

// openMessages sets how the messages of the target are read, and reports whether the pipeline sends
// messages.
func (a *runner) openMessages(ledger *storeLedger) bool {
	if !slices.Contains([]string{"eventhub", "kafka", "queue", "topic"}, a.pipeline.Kind()) {
		return false
	}
	m := &messages{stamps: a.pipeline.SentStamps(), sets: map[origin]*idset.Set{}, copies: map[message]int{}}
	a.cfg.Audit.Effect, a.cfg.Audit.MayRepeat = "message", true
	ledger.find = func(_ context.Context, topic sluice.Topic, events []*sluice.Event) ([]pipeline.Found, error) {
		return m.find(&topic, events), nil
	}
	ledger.prepare = func(ctx context.Context) error { return a.readMessages(ctx, m) }
	a.notes = m.notes
	if progress := a.cfg.Audit.Progress; progress != nil {
		a.cfg.Audit.Progress = func(events int64) { progress(m.read + events) }
	}
	return true
}

// readMessages reads the target's log, or peeks at its queue.
func (a *runner) readMessages(ctx context.Context, m *messages) error {
	log, err := a.pipeline.TargetLog(cmp.Or(a.cfg.TargetGroup, a.cfg.ConsumerGroup))
	if err != nil {
		return err
	}
	if log != nil {
		a.onClose(log.Close)
		return a.readLog(ctx, log, m)
	}
	_, err = a.pipeline.Peek(ctx, a.cfg.Subscription, func(properties map[string]any, dead bool) error {
		if dead {
			m.dead++
		}
		return m.add(properties)
	})
	switch {
	case errors.Is(err, pipeline.ErrSubscription):
		m.gone = "a topic of Service Bus shows its messages through a subscription only: name one with --subscription"
		return nil
	case err != nil:
		return err
	}
	m.gone = "its message is not in the queue: it was received, has expired, or is lost"
	return nil
}

// readLog reads the target's log from the time of the source's oldest event on.
func (a *runner) readLog(ctx context.Context, log pipeline.Source, m *messages) error {
	topic, err := log.Describe(ctx)
	if err != nil {
		return fmt.Errorf("target: %w", err)
	}
	if compactable, ok := log.(interface {
		Compacted(ctx context.Context) (bool, error)
	}); ok {
		switch compacted, err := compactable.Compacted(ctx); {
		case err != nil:
			return fmt.Errorf("target %s: %w", topic.Topic, err)
		case compacted:
			m.gone = "its message is not in the target topic, which is compacted"
		}
	}
	since, err := a.oldest(ctx)
	if err != nil {
		return err
	}
	for _, partition := range topic.Partitions {
		if err := m.readPartition(ctx, log, partition, since.Add(-clockMargin), a.cfg.Audit.Progress); err != nil {
			return fmt.Errorf("target %s, partition %s: %w", topic.Topic, partition, err)
		}
	}
	return nil
}

// oldest returns when the oldest event of the source was enqueued: its messages are not older.
func (a *runner) oldest(ctx context.Context) (time.Time, error) {
	topic, err := a.source.Describe(ctx)
	if err != nil {
		return time.Time{}, err
	}
	at := time.Now()
	for _, partition := range topic.Partitions {
		first, err := a.source.Seek(ctx, partition, sluice.Earliest(), driver.NoEpoch)
		if err != nil {
			return at, err
		}
		last, err := a.source.Seek(ctx, partition, sluice.Latest(), driver.NoEpoch)
		if err != nil {
			return at, err
		}
		err = each(ctx, a.source, partition, first, last.Sequence, func(e *sluice.Event) (bool, error) {
			if !e.Control && e.Enqueued.Before(at) {
				at = e.Enqueued
			}
			return e.Control, nil
		})
		if err != nil {
			return at, fmt.Errorf("read the oldest event of partition %s: %w", partition, err)
		}
	}
	return at, nil
}

// readPartition reads a partition of the target, from a time to its present end.
func (m *messages) readPartition(ctx context.Context, log pipeline.Source, partition string, since time.Time, progress func(int64)) error {
	first, err := log.Seek(ctx, partition, sluice.Earliest(), driver.NoEpoch)
	if err != nil {
		return err
	}
	from, err := log.Seek(ctx, partition, driver.Start{Kind: driver.StartTime, Time: since}, driver.NoEpoch)
	if err != nil {
		return err
	}
	last, err := log.Seek(ctx, partition, sluice.Latest(), driver.NoEpoch)
	if err != nil {
		return err
	}
	// What retention has removed may be of that time too, unless older messages are still there.
	removed := first.Sequence >= 0 && from.Sequence <= first.Sequence
	if removed && last.Sequence <= first.Sequence {
		m.held = time.Now()
	}
	return each(ctx, log, partition, from, last.Sequence, func(e *sluice.Event) (bool, error) {
		if e.Control {
			return true, nil
		}
		if removed {
			removed = false
			if e.Enqueued.After(m.held) {
				m.held = e.Enqueued
			}
		}
		if progress != nil && m.read%1000 == 0 {
			progress(0)
		}
		return true, m.add(e.Properties)
	})
}

const (
	// maxReadFailures is how often in a row reading is repeated without a new event.
	maxReadFailures = 5
	// readBatch is the most events of one read, readWait how long one may take.
	readBatch = 1000
	readWait  = 15 * time.Second
)

// each calls yield with the events after a position, up to a number, until it returns false.
func each(ctx context.Context, source driver.Source, partition string, after sluice.Position, last int64, yield func(*sluice.Event) (bool, error)) error {
	for failures := 0; after.Sequence < last; failures++ {
		from := after.Sequence
		var more bool
		var readErr, err error
		after, more, readErr, err = eachRead(ctx, source, partition, after, last, yield)
		switch {
		case err != nil || !more && readErr == nil:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case after.Sequence > from:
			failures = 0
		case failures == maxReadFailures || errors.Is(readErr, sluice.ErrRefused):
			return readErr
		}
		timer := time.NewTimer(200 * time.Millisecond << failures)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
	return nil
}

// eachRead is each with one reader. readErr is a failure of the log, after which another attempt
// may help.
func eachRead(ctx context.Context, source driver.Source, partition string, after sluice.Position, last int64, yield func(*sluice.Event) (bool, error)) (reached sluice.Position, more bool, readErr, err error) {
	reader, readErr := source.Open(ctx, partition, after, driver.NoEpoch)
	if readErr != nil {
		return after, true, readErr, nil
	}
	defer reader.Close(context.WithoutCancel(ctx))
	for after.Sequence < last {
		bound, cancel := context.WithTimeout(ctx, readWait)
		events, readErr := reader.Read(bound, readBatch)
		cancel()
		if readErr != nil {
			return after, true, readErr, nil
		}
		for _, e := range events {
			if e.Sequence > last {
				return after, false, nil, nil
			}
			after = e.Position()
			if more, err := yield(e); !more || err != nil {
				return after, false, nil, err
			}
		}
	}
	return after, false, nil, nil
}

// add adds a message of the target. Those without a stamp of the pipeline are of others.
func (m *messages) add(properties map[string]any) error {
	m.read++
	stamp, is, err := m.stamps.Read(properties)
	if !is || err != nil {
		return nil //nolint:nilerr // another stage's
	}
	of := origin{stamp.ID.Source, stamp.ID.Partition}
	set := m.sets[of]
	if set == nil {
		set = &idset.Set{}
		m.sets[of] = set
		m.words++ // so that empty sets are bounded too
	}
	id := idset.ID{Sequence: stamp.ID.Sequence, N: int32(stamp.ID.N)}
	if set.Has(id) {
		m.copies[message{of, id}]++
	}
	before := set.Words()
	set.Add(id)
	m.words += set.Words() - before
	if m.words > maxWords || len(m.copies) > maxCopies {
		return fmt.Errorf("the target has too many messages to remember their ids: %w", audit.ErrUndecided)
	}
	return nil
}

// find returns what the target has of each event.
func (m *messages) find(topic *sluice.Topic, events []*sluice.Event) []pipeline.Found {
	found := make([]pipeline.Found, len(events))
	for i, e := range events {
		of, id := origin{stamp.CausationSource(topic, e), e.Partition}, idset.ID{Sequence: e.Sequence}
		set := m.sets[of]
		switch {
		case set != nil && set.Has(id):
			found[i].Copies = 1 + m.copies[message{of, id}]
		case m.gone != "":
			found[i].Unknown = m.gone
		case e.Enqueued.Before(m.held.Add(clockMargin)) && !m.held.IsZero():
			found[i].Unknown = "the target's retention has removed messages of its time"
		}
	}
	return found
}

// notes says what the target's dead-letter queue holds.
func (m *messages) notes() []string {
	if m.dead == 0 {
		return nil
	}
	return []string{humanize.Plural(m.dead, "message", "messages") + " of the target in its own dead-letter queue"}
}

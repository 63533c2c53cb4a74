package audit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-go/sluice/driver"
)

// compactable is a source of a sparse log that may remove single events of which a later one has
// the same key.
type compactable interface {
	Compacted(ctx context.Context) (bool, error)
}

// passNumbers passes the numbers after the last one up to to, of which the log returned no event.
// What left effects is stray, unless compaction may have removed the event since.
func (p *partitionAudit) passNumbers(ctx context.Context, to int64) error {
	for p.entry.Sequence <= to {
		if err := p.askCompacted(ctx); err != nil {
			return err
		}
		kind := Stray
		if p.compacted {
			kind = ""
			p.PastRetention++
		}
		if err := p.takeEntries(p.entry.Sequence, time.Time{}, kind); err != nil {
			return err
		}
	}
	p.lastRead = to
	return nil
}

// askCompacted asks the log once.
func (p *partitionAudit) askCompacted(ctx context.Context) error {
	log, ok := p.source.(compactable)
	if p.compactionKnown || !ok {
		return nil
	}
	var err error
	if p.compacted, err = log.Compacted(ctx); err != nil {
		return fmt.Errorf("event %d has an effect, and the log does not return the event; whether the topic is compacted is not known: %w", p.entry.Sequence, errors.Join(ErrUndecided, err))
	}
	p.compactionKnown = true
	return nil
}

// passRemoved passes the numbers after the last one up to to, which retention removed during the
// audit. In a sparse log only those with effects were surely events.
func (p *partitionAudit) passRemoved(ctx context.Context, to int64) error {
	for p.lastRead < to {
		number := p.lastRead + 1
		if !p.topic.Sparse || p.entry.Sequence == number {
			if err := p.checkEvent(ctx, number, time.Time{}, nil); err != nil {
				return err
			}
			continue
		}
		end := min(p.entry.Sequence-1, to)
		p.addUnclear(max(0, min(end, p.Checkpoint)-max(number, p.start)+1), removedUnread)
		p.lastRead = end
	}
	return nil
}

// checkRead checks what a read of the log returned.
func (p *partitionAudit) checkRead(ctx context.Context, events []*driver.Event) error {
	if err := p.find(ctx, events); err != nil {
		return err
	}
	for _, e := range events {
		switch {
		case e.Sequence > p.Last:
			return p.passNumbers(ctx, p.Last)
		case e.Control:
			if err := p.passNumbers(ctx, e.Sequence); err != nil {
				return err
			}
			continue
		}
		if err := p.passNumbers(ctx, e.Sequence-1); err != nil {
			return err
		}
		if err := p.checkEvent(ctx, e.Sequence, e.Enqueued, e); err != nil {
			return err
		}
	}
	return nil
}

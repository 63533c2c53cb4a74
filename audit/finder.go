package audit

import (
	"context"

	"github.com/sluice-go/sluice/driver"
)

// Finder is a [View] of a target that is asked for the effects of given events,
// because it cannot list all effects by sequence number. Its Entries are the dead
// letters only. It is asked after its checkpoint and its dead letters were read, so
// the effect of an event up to the checkpoint is there by then.
type Finder interface {
	View
	// Find returns the effect of each event, in the order of the events.
	Find(ctx context.Context, events []*driver.Event) ([]Effect, error)
	// IsDeadLetter reports whether an event still has a dead letter, which a redrive
	// may have removed since Entries.
	IsDeadLetter(ctx context.Context, sequence int64) (bool, error)
}

// Effect is what a target has of an event. The zero value means that it has nothing.
type Effect struct {
	// Copies is how often the target has the event's effect.
	Copies int
	// Unknown is why it is not known whether the target has the effect; empty: it is
	// known.
	Unknown string
}

// removedUnread is why nothing is known of an event that retention removed during the
// audit.
const removedUnread = "retention removed the event before the audit read it"

// find asks for the effects of what a read of the log returned, if the view is asked.
func (p *partitionAudit) find(ctx context.Context, events []*driver.Event) error {
	clear(p.effects)
	if p.finder == nil {
		return nil
	}
	asked := make([]*driver.Event, 0, len(events))
	for _, e := range events {
		if !e.Control && p.start <= e.Sequence && e.Sequence <= p.Last {
			asked = append(asked, e)
		}
	}
	found, err := p.finder.Find(ctx, asked)
	for i, effect := range found {
		p.effects[asked[i].Sequence] = effect
	}
	return err
}

// effectOf returns what is known of an event's effect. e is nil if the event could not be
// read.
func (p *partitionAudit) effectOf(sequence int64, e *driver.Event) Effect {
	if p.finder != nil && e == nil {
		return Effect{Unknown: removedUnread}
	}
	return p.effects[sequence]
}

// passed reports whether the consumer is done with an event.
func (p *partitionAudit) passed(sequence int64) bool {
	if sequence <= p.Checkpoint {
		return true
	}
	for _, r := range p.done {
		if r.First <= sequence && sequence <= r.Last {
			return true
		}
	}
	return false
}

// takeDead consumes the dead letter of an event that has effects too.
func (p *partitionAudit) takeDead(ctx context.Context, e *driver.Event) error {
	dead, err := p.finder.IsDeadLetter(ctx, e.Sequence)
	kind := Duplicated
	if !dead {
		kind = ""
	}
	if err != nil {
		return err
	}
	return p.takeEntries(e.Sequence, e.Enqueued, kind)
}

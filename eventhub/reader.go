package eventhub

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-go/sluice/driver"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
)

// Open implements [sluice.Source]. It asks for the partition's bounds and then
// opens a link under the epoch. Positions are found by sequence number, which
// stays the same where offsets do not (as after a geo-replicated namespace has
// changed its primary).
//
// A hub that is deleted and created again between Describe and Open goes
// unnoticed; after Open it doesn't, because a link is never attached twice.
func (s *Source) Open(ctx context.Context, partition string, after driver.Position, epoch int64) (driver.Reader, error) {
	if after.Sequence < driver.Origin.Sequence {
		return nil, &refusal{text: fmt.Sprintf("hub %s, partition %s: no position to open at: seek one first", s.hub, partition)}
	}
	b, err := s.Bounds(ctx, partition)
	switch {
	case err != nil:
		return nil, err
	case after.Sequence < b.First-1:
		return nil, &driver.RetentionError{Partition: partition, After: after.Sequence, First: b.First}
	case after.Sequence > b.Last.Sequence:
		return nil, fmt.Errorf("hub %s, partition %s: position %v, but the newest event is %v: check that it is the right hub, then go on with `sluice checkpoints set`: %w",
			s.hub, partition, after, b.Last, driver.ErrPastEnd)
	}
	start := azeventhubs.StartPosition{SequenceNumber: &after.Sequence}
	if after.Sequence == driver.Origin.Sequence {
		start = azeventhubs.StartPosition{Earliest: to.Ptr(true)}
	}
	r := &reader{next: after.Sequence + 1, window: newWindow(s.cfg.Prefetch, s.cfg.PrefetchBytes)}
	link, events, err := s.attach(ctx, partition, start, epoch, r.window.credit())
	if err != nil {
		return nil, err
	}
	r.link = link
	r.hold(events)
	return r, nil
}

// moment is long for a stream of events and short for a person.
const moment = time.Millisecond

// reader hands out the events of one link.
type reader struct {
	link   *link
	next   int64 // sequence number of the event that must come next
	window window
	held   []*driver.Event // received and not handed out
	broken error           // why there is nothing behind held
	served time.Time       // when events were last handed out
}

// Read implements [sluice.Reader]. Called again at once, it lingers a moment
// so that the events of a stream come in batches.
func (r *reader) Read(ctx context.Context, max int) ([]*driver.Event, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if r.link.life.Err() != nil {
		return nil, r.link.gone()
	}
	if max <= 0 {
		return nil, fmt.Errorf("read at most %d events: must be positive", max)
	}
	// Refilled at half, so that the broker sends while the events that are
	// handed out now are handled.
	if len(r.held) < max || len(r.held) <= r.window.credit()/2 {
		r.refill()
	}
	// Whoever comes back at once would be served one event at a time, at a
	// price: in a moment's time they come by the hundred.
	if len(r.held) < max/4 && time.Since(r.served) < 2*moment {
		r.link.linger(ctx, moment)
		r.refill()
	}
	for len(r.held) == 0 && r.broken == nil {
		events, err := r.link.wait(ctx)
		switch {
		case err == nil:
			r.hold(events)
		case ctx.Err() != nil:
			return nil, ctx.Err()
		default:
			r.fail(err)
		}
		r.refill()
	}
	if len(r.held) == 0 {
		return nil, r.broken
	}
	n := min(max, len(r.held))
	events := slices.Clip(r.held[:n])
	r.held = r.held[n:]
	r.served = time.Now()
	return events, nil
}

// Close implements [sluice.Reader]. The broker is given a few seconds to let
// the link go; whether it does or not, the connection is closed.
func (r *reader) Close(ctx context.Context) error {
	r.link.close(ctx)
	return nil
}

// refill takes what has come.
func (r *reader) refill() {
	if r.broken != nil {
		return
	}
	events, err := r.link.take(r.window.credit())
	if err != nil {
		r.fail(err)
		return
	}
	r.hold(events)
}

// fail notes why nothing comes any more.
func (r *reader) fail(err error) {
	if errors.Is(err, errDetached) {
		err = fmt.Errorf("%w, behind event %d", err, r.next-1) // the next one may be to blame
	}
	r.broken = err
}

// hold keeps events, as far as they follow each other, to be handed out.
func (r *reader) hold(events []*azeventhubs.ReceivedEventData) {
	if len(events) == 0 || r.broken != nil {
		return
	}
	r.held = slices.Grow(r.held, len(events))
	room := make([]driver.Event, len(events)) // one allocation for all
	bytes := 0
	for i, in := range events {
		if r.broken = r.follow(in.SequenceNumber); r.broken != nil {
			return
		}
		e := &room[i]
		convert(e, in, r.link.partition)
		r.held = append(r.held, e)
		bytes += len(e.Body)
	}
	r.window.learn(len(events), bytes)
}

// follow checks the sequence number of the next event.
func (r *reader) follow(sequence int64) error {
	switch {
	case sequence > r.next:
		return &driver.RetentionError{Partition: r.link.partition, After: r.next - 1, First: sequence}
	case sequence < r.next:
		return errors.New(r.link.name() + fmt.Sprintf(": event %d came again where %d was next", sequence, r.next))
	}
	r.next++
	return nil
}

// window decides how many events to ask for ahead: as many as fit into a
// number of bytes, judged by the sizes so far.
type window struct {
	events, bytes int // the most of either
	size          int // of an event, estimated
}

// overhead is what an event takes in memory besides its body, roughly.
const overhead = 1 << 10

func newWindow(events, bytes int) window {
	// Nothing is known yet: begin with a guess on the large side.
	return window{events: events, bytes: bytes, size: 64 << 10}
}

// credit is how many events may be on their way.
func (w *window) credit() int { return min(max(w.bytes/w.size, 1), w.events) }

// learn takes in the sizes of events that have come. Larger ones count at
// once, smaller ones by and by.
func (w *window) learn(events, bytes int) {
	mean := overhead + bytes/events
	if mean < w.size {
		mean = (3*w.size + mean) / 4
	}
	w.size = mean
}

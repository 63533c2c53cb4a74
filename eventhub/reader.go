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

// Open implements [driver.Source]. It requests the partition's bounds and then
// opens a link with the epoch as owner level. Positions are found by sequence
// number, which stays the same where offsets change (as after a geo-replicated
// namespace has changed its primary).
//
// A hub that is recreated between Describe and Open is not detected. After Open
// it is, because a link is never attached twice.
func (s *Source) Open(ctx context.Context, partition string, after driver.Position, epoch int64) (driver.Reader, error) {
	if after.Sequence < driver.Origin.Sequence {
		return nil, &refusedError{text: fmt.Sprintf("hub %s, partition %s: no position to open at: call Seek first", s.hub, partition)}
	}
	b, err := s.Bounds(ctx, partition)
	switch {
	case err != nil:
		return nil, err
	case after.Sequence < b.First-1:
		return nil, &driver.RetentionError{Partition: partition, After: after.Sequence, First: b.First}
	case after.Sequence > b.Last.Sequence:
		return nil, fmt.Errorf("hub %s, partition %s: position %v, but the newest event is %v: check that it is the right hub, then set the checkpoint with `sluice checkpoints set`: %w",
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
	r.buffer(events)
	return r, nil
}

// lingerTime is how long Read waits for more events if it is called again at once.
const lingerTime = time.Millisecond

// reader returns the events of one link.
type reader struct {
	link     *link
	next     int64 // the sequence number that must come next
	window   window
	buffered []*driver.Event // received and not yet returned
	err      error           // why no event follows buffered
	lastRead time.Time       // when events were last returned
}

// Read implements [driver.Reader]. If it is called again at once, it waits for
// lingerTime, so that the events of a stream come in batches.
func (r *reader) Read(ctx context.Context, max int) ([]*driver.Event, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if r.link.life.Err() != nil {
		return nil, r.link.closedError()
	}
	if max <= 0 {
		return nil, fmt.Errorf("read at most %d events: must be positive", max)
	}
	// Refilled at half, so that the broker sends while the caller handles the
	// events returned now.
	if len(r.buffered) < max || len(r.buffered) <= r.window.credit()/2 {
		r.refill()
	}
	// A caller that reads again at once would get one event per call, which is
	// expensive. After a short wait there are hundreds.
	if len(r.buffered) < max/4 && time.Since(r.lastRead) < 2*lingerTime {
		r.link.linger(ctx, lingerTime)
		r.refill()
	}
	for len(r.buffered) == 0 && r.err == nil {
		events, err := r.link.wait(ctx)
		switch {
		case err == nil:
			r.buffer(events)
		case ctx.Err() != nil:
			return nil, ctx.Err()
		default:
			r.fail(err)
		}
		r.refill()
	}
	if len(r.buffered) == 0 {
		return nil, r.err
	}
	n := min(max, len(r.buffered))
	events := slices.Clip(r.buffered[:n])
	r.buffered = r.buffered[n:]
	r.lastRead = time.Now()
	return events, nil
}

// Close implements [driver.Reader]. It gives the broker closeTimeout to detach
// the link, and closes the connection in any case.
func (r *reader) Close(ctx context.Context) error {
	r.link.close(ctx)
	return nil
}

// refill buffers the events that have arrived.
func (r *reader) refill() {
	if r.err != nil {
		return
	}
	events, err := r.link.take(r.window.credit())
	if err != nil {
		r.fail(err)
		return
	}
	r.buffer(events)
}

// fail records why no more events come.
func (r *reader) fail(err error) {
	if errors.Is(err, errDetached) {
		err = fmt.Errorf("%w, after event %d", err, r.next-1) // the next event may be the cause
	}
	r.err = err
}

// buffer adds events for Read, up to the first gap in the sequence numbers.
func (r *reader) buffer(events []*azeventhubs.ReceivedEventData) {
	if len(events) == 0 || r.err != nil {
		return
	}
	r.buffered = slices.Grow(r.buffered, len(events))
	allocated := make([]driver.Event, len(events)) // in one allocation
	bytes := 0
	for i, in := range events {
		if r.err = r.checkSequence(in.SequenceNumber); r.err != nil {
			return
		}
		e := &allocated[i]
		convert(e, in, r.link.partition)
		r.buffered = append(r.buffered, e)
		bytes += len(e.Body)
	}
	r.window.observe(len(events), bytes)
}

// checkSequence checks that the next event has the next sequence number.
func (r *reader) checkSequence(sequence int64) error {
	switch {
	case sequence > r.next:
		return &driver.RetentionError{Partition: r.link.partition, After: r.next - 1, First: sequence}
	case sequence < r.next:
		return errors.New(r.link.name() + fmt.Sprintf(": event %d came again where %d was next", sequence, r.next))
	}
	r.next++
	return nil
}

// window limits how many events are requested ahead: as many as fit into a number
// of bytes, estimated from the sizes so far.
type window struct {
	events, bytes int // the limits
	size          int // of an event, estimated
}

// overhead is about what an event takes in memory besides its body.
const overhead = 1 << 10

func newWindow(events, bytes int) window {
	// No size is known yet: begin with a large estimate.
	return window{events: events, bytes: bytes, size: 64 << 10}
}

// credit returns how many events may be requested and not yet received.
func (w *window) credit() int { return min(max(w.bytes/w.size, 1), w.events) }

// observe updates the estimate with events that have come. A larger mean counts at
// once, a smaller one gradually.
func (w *window) observe(events, bytes int) {
	mean := overhead + bytes/events
	if mean < w.size {
		mean = (3*w.size + mean) / 4
	}
	w.size = mean
}

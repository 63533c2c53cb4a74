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

// Open implements [driver.Source]. It opens a link with the epoch as owner level, at the
// position's offset if it has one, otherwise at its sequence number. The sequence numbers
// of the events then show whether the broker begins where it should.
//
// Whether the position is in the log is for the broker to say: what management requests
// report about a partition can be out of date. The broker refuses a position after the
// newest event. From one before the oldest event it continues with that, which Read reports.
//
// A hub that is recreated between Describe and Open is not detected. After Open
// it is, because a link is never attached twice.
func (s *Source) Open(ctx context.Context, partition string, after driver.Position, epoch int64) (driver.Reader, error) {
	if after.Sequence < driver.Origin.Sequence {
		return nil, &refusedError{text: s.partitionName(partition) + ": no position to open at: call Seek first"}
	}
	r := &reader{epoch: epoch, opened: after, next: after.Sequence + 1, window: newWindow(s.cfg.Prefetch, s.cfg.PrefetchBytes)}
	link, events, err := s.attach(ctx, partition, startAfter(after), epoch, r.window.credit())
	if err != nil {
		return nil, s.explainOpen(err, partition, after)
	}
	r.link = link
	r.buffer(events)
	return r, nil
}

// startAfter returns the SDK's form of a position. A stored offset is preferred: it is what
// a geo-replicated namespace finds an event by, and the service finds it faster.
func startAfter(after driver.Position) azeventhubs.StartPosition {
	switch {
	case after.Sequence == driver.Origin.Sequence:
		return azeventhubs.StartPosition{Earliest: to.Ptr(true)}
	case validOffset(after.Offset):
		return azeventhubs.StartPosition{Offset: &after.Offset}
	}
	return azeventhubs.StartPosition{SequenceNumber: &after.Sequence}
}

// validOffset reports whether text has the form of an event's offset: a number, or on
// geo-replicated namespaces numbers separated by colons. Other texts have a meaning of
// their own in a start position, such as @latest.
func validOffset(text string) bool {
	for i, c := range []byte(text) {
		if (c < '0' || c > '9') && (c != ':' || i == 0) {
			return false
		}
	}
	return text != ""
}

// explainOpen adds the position to the error of a link that the broker refused to open at it.
func (s *Source) explainOpen(err error, partition string, after driver.Position) error {
	if end := new(pastEndError); errors.As(err, &end) {
		return fmt.Errorf("%s: position %v, but the %s is %s: check that it is the right hub, then set the checkpoint with `sluice checkpoints set`: %w",
			s.partitionName(partition), after, end.what, end.last, driver.ErrPastEnd)
	}
	if errors.Is(err, errPromoted) {
		return &driver.PromotedError{Topic: s.hub, Partition: partition, Position: after}
	}
	return undecodableAt(err, partition, after.Sequence+1)
}

// lingerTime is how long Read waits for more events if it is called again at once.
const lingerTime = time.Millisecond

// reader returns the events of one link.
type reader struct {
	link     *link
	epoch    int64
	opened   driver.Position // where the link was opened
	next     int64           // the sequence number that must come next
	began    bool            // an event after the position has come
	earlier  int             // events before the position that were dropped
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
		return nil, r.explainGap(ctx)
	}
	r.lastRead = time.Now()
	return r.pop(max), nil
}

// pop removes up to max events, of several at most [driver.ReadBytes].
func (r *reader) pop(max int) []*driver.Event {
	n, bytes := 0, 0
	for n < min(max, len(r.buffered)) {
		size := r.buffered[n].Size()
		if n > 0 && bytes+size > driver.ReadBytes {
			break
		}
		bytes += size
		n++
	}
	// A copy: what stays must not keep the returned events in memory.
	events := slices.Clone(r.buffered[:n])
	clear(r.buffered[:n])
	r.buffered = r.buffered[n:]
	r.link.intake.returned(n, bytes)
	return events
}

// explainGap returns r.err. If that reports a gap, it looks for the oldest event, over a link
// that replaces the reader's: if the log holds older ones, retention is not the cause.
func (r *reader) explainGap(ctx context.Context) error {
	if gap := new(driver.RetentionError); errors.As(r.err, &gap) && !gap.Held && gap.Unchecked == "" {
		oldest, err := r.link.source.Seek(ctx, gap.Partition, driver.Start{Kind: driver.StartEarliest}, r.epoch)
		explained := *gap
		if explained.Held = err == nil && oldest.Sequence <= gap.After; err != nil {
			explained.Unchecked = err.Error()
		}
		r.err = &explained
	}
	return r.err
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

// fail records why no more events come. Before the first event that can be because the broker
// refuses the position: it may attach the link first, and detach it a moment later.
func (r *reader) fail(err error) {
	if errors.Is(err, errDetached) {
		err = fmt.Errorf("%w, after event %d", err, r.next-1)
		if refusal := r.link.receiver.failure().refusal; refusal != nil {
			err = fmt.Errorf("%w (the broker says: %s)", err, r.link.source.oneLine(brokerErrorOf(refusal).text))
		}
	}
	if u := new(undecodableError); errors.As(err, &u) {
		if f := r.link.receiver.failure(); f.sequence > r.next { // those before it are missing
			r.err = &driver.RetentionError{Partition: r.link.partition, After: r.next - 1, First: f.sequence}
			return
		}
	}
	if !r.began {
		r.err = r.link.source.explainOpen(err, r.link.partition, r.opened)
		return
	}
	r.err = undecodableAt(err, r.link.partition, r.next)
}

// undecodableAt adds the event's number to the error of a link whose next event cannot be
// decoded, and returns any other error as it is.
func undecodableAt(err error, partition string, sequence int64) error {
	if u := new(undecodableError); errors.As(err, &u) {
		return &driver.UndecodableError{Partition: partition, Sequence: sequence, Reason: u.reason}
	}
	return err
}

// buffer adds events for Read, up to the first gap in the sequence numbers.
func (r *reader) buffer(events []*driver.Event) {
	events = r.dropEarlier(events)
	if len(events) == 0 || r.err != nil {
		return
	}
	bytes, n := 0, 0
	for _, e := range events {
		if r.err = r.checkSequence(e.Sequence); r.err != nil {
			break
		}
		bytes += e.Size()
		n++
	}
	r.buffered = append(r.buffered, events[:n]...)
	r.window.observe(len(events), bytes)
}

// dropEarlier drops events before the position, which the broker may send at the beginning of
// a link. It returns the others.
func (r *reader) dropEarlier(events []*driver.Event) []*driver.Event {
	for !r.began && len(events) > 0 && events[0].Sequence < r.next {
		r.earlier++
		r.link.intake.returned(1, events[0].Size())
		events = events[1:]
	}
	return events
}

// checkSequence checks that the next event has the next sequence number.
func (r *reader) checkSequence(sequence int64) error {
	switch {
	case sequence > r.next:
		if f := r.link.receiver.failure(); f.amid && f.undecodable != "" {
			return &driver.UndecodableError{Partition: r.link.partition, Sequence: r.next, Reason: f.undecodable}
		}
		return &driver.RetentionError{Partition: r.link.partition, After: r.next - 1, First: sequence}
	case sequence < r.next:
		return fmt.Errorf("%s: event %d came again where %d was next, after %d earlier events at the beginning of the link", r.link.name(), sequence, r.next, r.earlier)
	}
	r.next++
	r.began = true
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

package eventhub

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/sluice-go/sluice/driver"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
)

// Seek implements [driver.Source]. What management requests report about a partition can
// be out of date or inexact, so Seek relies on links, which have the epoch and are open for a
// short time: the oldest event is read, and where no event seems to be after the start, the
// broker is asked for the newest one. A sequence number that retention has removed is
// returned as it is, and a reader reports the loss.
//
// What passes by itself is repeated until the timeout: an event that does not come, a broker
// that is busy, and a link that it closes.
func (s *Source) Seek(ctx context.Context, partition string, start driver.Start, epoch int64) (driver.Position, error) {
	k := seek{s, partition, epoch, min(eventWait, s.cfg.Timeout)}
	until := time.Now().Add(s.cfg.Timeout)
	for pause := busyPause; ; {
		at, err := k.position(ctx, start)
		switch {
		case ctx.Err() != nil || time.Now().After(until):
			return at, err
		case errors.Is(err, errNoEvent):
			k.wait = min(2*k.wait, s.cfg.Timeout)
		case errors.Is(err, errBusy), errors.Is(err, errDetached):
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				return at, err
			}
			pause = min(2*pause, s.cfg.Timeout)
		default:
			return at, err
		}
	}
}

// busyPause is how long Seek waits before it asks a busy broker again, at first, and twice as
// long after each refusal.
const busyPause = 250 * time.Millisecond

// seek finds positions in a partition, over links of an epoch.
type seek struct {
	*Source
	partition string
	epoch     int64
	wait      time.Duration // for an event
}

// position returns the position before the first event that start selects. The error is an
// errNoEvent if the partition seemed to hold an event that did not come.
func (k seek) position(ctx context.Context, start driver.Start) (driver.Position, error) {
	switch start.Kind {
	case driver.StartEarliest:
		return k.earliest(ctx)
	case driver.StartLatest:
		b, err := k.confirmed(ctx)
		return b.Last, err
	case driver.StartSequence:
		return k.sequence(ctx, max(start.Sequence, 0))
	case driver.StartTime:
		return k.time(ctx, start.Time)
	case driver.StartAgo:
		return k.time(ctx, time.Now().Add(-start.Ago))
	case driver.StartOffset:
		return k.offset(ctx, start.Offset)
	}
	return driver.Unset, &refusedError{text: fmt.Sprintf("%s: unknown kind of start %d", k.partitionName(k.partition), start.Kind)}
}

// earliest returns the position before the oldest event.
func (k seek) earliest(ctx context.Context) (driver.Position, error) {
	b, err := k.atLeast(ctx, func(b driver.Bounds) bool { return !empty(b) })
	if err != nil || empty(b) {
		return b.Last, err
	}
	return positionBefore(k.first(ctx, azeventhubs.StartPosition{Earliest: to.Ptr(true)}, anyEvent))
}

func (k seek) sequence(ctx context.Context, sequence int64) (driver.Position, error) {
	b, err := k.atLeast(ctx, func(b driver.Bounds) bool { return b.Last.Sequence >= sequence })
	if err != nil || sequence > b.Last.Sequence {
		return b.Last, err
	}
	return driver.Position{Sequence: sequence - 1}, nil
}

func (k seek) time(ctx context.Context, at time.Time) (driver.Position, error) {
	later := func(b driver.Bounds) bool { return !empty(b) && !at.After(b.LastEnqueued) }
	b, err := k.atLeast(ctx, later)
	if err == nil && !empty(b) && b.LastEnqueued.IsZero() {
		// Management does not know the newest event.
		var newest *driver.Event
		if newest, err = k.first(ctx, azeventhubs.StartPosition{SequenceNumber: &b.Last.Sequence, Inclusive: true}, anyEvent); err == nil {
			b.Last = driver.Position{Sequence: newest.Sequence, Offset: newest.Offset}
			b.LastEnqueued = enqueued(newest)
		}
	}
	if err != nil || !later(b) {
		return b.Last, err
	}
	// The broker counts in milliseconds, and its filter is only reliable for "later
	// than". So the link starts a millisecond earlier, and events that are too
	// early are skipped.
	from := azeventhubs.StartPosition{EnqueuedTime: to.Ptr(at.Add(-time.Millisecond))}
	return positionBefore(k.first(ctx, from, func(e *driver.Event) bool { return !enqueued(e).Before(at) }))
}

func (k seek) offset(ctx context.Context, offset string) (driver.Position, error) {
	b, err := k.atLeast(ctx, func(b driver.Bounds) bool { return !empty(b) })
	if err != nil || empty(b) {
		return b.Last, err
	}
	if !validOffset(offset) {
		return driver.Unset, &refusedError{text: fmt.Sprintf("%s: %.100q is not an offset: it is a number, or numbers separated by colons", k.partitionName(k.partition), offset)}
	}
	at, err := positionBefore(k.first(ctx, azeventhubs.StartPosition{Offset: &offset, Inclusive: true}, anyEvent))
	switch {
	case errors.Is(err, driver.ErrPastEnd):
		b, err = k.confirmed(ctx)
		return b.Last, err
	case errors.Is(err, errPromoted):
		return driver.Unset, &refusedError{text: fmt.Sprintf("%s: the offset %s is not one of this replication epoch: start at a sequence number or a time", k.partitionName(k.partition), offset), err: err}
	}
	return at, err
}

func empty(b driver.Bounds) bool { return b.First > b.Last.Sequence }

// positionBefore returns the position before an event.
func positionBefore(e *driver.Event, err error) (driver.Position, error) {
	if err != nil {
		return driver.Unset, err
	}
	return driver.Position{Sequence: e.Sequence - 1}, nil
}

// enqueued returns when an event was enqueued; now if the broker does not say.
func enqueued(e *driver.Event) time.Time {
	if e.Enqueued.IsZero() {
		return time.Now().UTC()
	}
	return e.Enqueued
}

func anyEvent(*driver.Event) bool { return true }

// atLeast returns the partition's bounds as management reports them if they hold enough. They
// may be out of date, so if not, it returns bounds that the broker has confirmed.
func (k seek) atLeast(ctx context.Context, enough func(driver.Bounds) bool) (driver.Bounds, error) {
	b, err := k.Bounds(ctx, k.partition)
	if err != nil || enough(b) {
		return b, err
	}
	return k.confirmed(ctx)
}

// confirmed returns the partition's bounds. If the broker names a later end than management,
// they have that as Last, without its offset and time.
func (k seek) confirmed(ctx context.Context) (driver.Bounds, error) {
	b, err := k.Bounds(ctx, k.partition)
	if err != nil {
		return driver.Bounds{Last: driver.Unset}, err
	}
	end, err := k.end(ctx)
	if err != nil {
		return driver.Bounds{Last: driver.Unset}, err
	}
	if end > b.Last.Sequence {
		b.Last, b.LastEnqueued = driver.Position{Sequence: end}, time.Time{}
	}
	return b, nil
}

// end asks the broker for the sequence number of the newest event: it names that when it
// refuses a link at a later one. If it does not refuse, end returns [driver.Unset]'s.
func (k seek) end(ctx context.Context) (int64, error) {
	far := int64(math.MaxInt64 / 2)
	l, events, err := k.attach(ctx, k.partition, azeventhubs.StartPosition{SequenceNumber: &far}, k.epoch, 1)
	if err == nil {
		defer l.close(ctx)
		if len(events) == 0 {
			// The refusal may come a moment after the link was attached.
			events, err = l.waitFor(ctx, k.wait)
		}
		switch {
		case len(events) > 0:
			return events[len(events)-1].Sequence, nil
		case err == nil:
			return driver.Unset.Sequence, nil
		}
	}
	refusal := new(pastEndError)
	if !errors.As(err, &refusal) {
		return 0, err
	}
	if end, err := strconv.ParseInt(refusal.last, 10, 64); err == nil {
		return end, nil
	}
	return driver.Unset.Sequence, nil
}

// errNoEvent means that no event came, though there should be one. Perhaps retention has
// removed it, and management does not report that yet.
var errNoEvent = errors.New("no event")

// eventWait is how long first waits for an event at first, and twice as long after each time
// that none came: the broker may have to search long for a time.
const eventWait = 2 * time.Second

// first reads from a start position up to the first wanted event, and returns it. The error is
// an errNoEvent if none comes in time.
func (k seek) first(ctx context.Context, from azeventhubs.StartPosition, wanted func(*driver.Event) bool) (*driver.Event, error) {
	l, events, err := k.attach(ctx, k.partition, from, k.epoch, 1)
	if err != nil {
		return nil, err
	}
	defer l.close(ctx)
	bound, cancel := context.WithTimeout(ctx, k.wait)
	defer cancel()
	for {
		for _, e := range events {
			if wanted(e) {
				return e, nil
			}
		}
		if events, err = l.wait(bound); err != nil {
			if bound.Err() != nil && ctx.Err() == nil {
				err = fmt.Errorf("%s: %w within %v, though there should be one", l.name(), errNoEvent, k.wait)
			}
			return nil, err
		}
	}
}

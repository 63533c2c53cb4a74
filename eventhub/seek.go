package eventhub

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/sluice-go/sluice/driver"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
)

// Seek implements [driver.Source]. The ends and sequence numbers follow from
// the partition's bounds. A time or an offset opens a link with the epoch for a
// short time, unless it is after the newest event. A sequence number that retention
// has removed is returned as it is, and Open reports the loss.
func (s *Source) Seek(ctx context.Context, partition string, start driver.Start, epoch int64) (driver.Position, error) {
	b, err := s.Bounds(ctx, partition)
	if err != nil {
		return driver.Unset, err
	}
	switch start.Kind {
	case driver.StartEarliest:
		return driver.Position{Sequence: b.First - 1}, nil
	case driver.StartLatest:
		return b.Last, nil
	case driver.StartSequence:
		if start.Sequence > b.Last.Sequence {
			return b.Last, nil
		}
		return driver.Position{Sequence: max(start.Sequence, 0) - 1}, nil
	case driver.StartTime:
		return s.seekTime(ctx, partition, start.Time, b, epoch)
	case driver.StartAgo:
		return s.seekTime(ctx, partition, time.Now().Add(-start.Ago), b, epoch)
	case driver.StartOffset:
		return s.seekOffset(ctx, partition, start.Offset, b, epoch)
	}
	return driver.Unset, &refusedError{text: fmt.Sprintf("hub %s, partition %s: unknown kind of start %d", s.hub, partition, start.Kind)}
}

func (s *Source) seekTime(ctx context.Context, partition string, at time.Time, b driver.Bounds, epoch int64) (driver.Position, error) {
	if b.First > b.Last.Sequence || at.After(b.LastEnqueued) {
		return b.Last, nil
	}
	// The broker counts in milliseconds, and its filter is only reliable for "later
	// than". So the link starts a millisecond earlier, and events that are too
	// early are skipped.
	from := azeventhubs.StartPosition{EnqueuedTime: to.Ptr(at.Add(-time.Millisecond))}
	return s.before(ctx, partition, from, epoch, func(e *azeventhubs.ReceivedEventData) bool {
		return e.EnqueuedTime == nil || !e.EnqueuedTime.Before(at)
	})
}

func (s *Source) seekOffset(ctx context.Context, partition, offset string, b driver.Bounds, epoch int64) (driver.Position, error) {
	if b.First > b.Last.Sequence {
		return b.Last, nil
	}
	// Offsets are opaque, but where both are numbers they are ordered. The broker
	// would refuse an offset after the last one.
	asked, err1 := strconv.ParseInt(offset, 10, 64)
	last, err2 := strconv.ParseInt(b.Last.Offset, 10, 64)
	if err1 == nil && err2 == nil && asked > last {
		return b.Last, nil
	}
	from := azeventhubs.StartPosition{Offset: &offset, Inclusive: true}
	return s.before(ctx, partition, from, epoch, func(*azeventhubs.ReceivedEventData) bool { return true })
}

// before reads from a start position up to the first wanted event, and returns the
// position before it. The caller has checked that there is one.
func (s *Source) before(ctx context.Context, partition string, from azeventhubs.StartPosition, epoch int64, wanted func(*azeventhubs.ReceivedEventData) bool) (driver.Position, error) {
	bound, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	l, events, err := s.attach(bound, partition, from, epoch, 1)
	if err != nil {
		return driver.Unset, err
	}
	defer l.close(ctx)
	for {
		for _, e := range events {
			if wanted(e) {
				return driver.Position{Sequence: e.SequenceNumber - 1}, nil
			}
		}
		if events, err = l.wait(bound); err != nil {
			if bound.Err() != nil && ctx.Err() == nil {
				err = fmt.Errorf("%s: no event within %v, though there should be one", l.name(), s.cfg.Timeout)
			}
			return driver.Unset, err
		}
	}
}

package pipeline

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/blobstore"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/memory"
)

// maxDecodedBatch is how many bytes of decoded bodies a handler gets at a time.
const maxDecodedBatch = 64 << 20

// decoded makes a handler get events with decoded bodies. It calls the handler more than once for a
// batch whose bodies need much memory. Events that do not decode are rejected, with the bodies that
// were sent.
func decoded[Tx any](p *Pipeline, h sluice.Handler[Tx]) sluice.Handler[Tx] {
	return func(ctx context.Context, tx Tx, b sluice.Batch) error {
		if p.body.format == nil && !slices.ContainsFunc(b.Events, blobstore.IsReference) {
			return h(ctx, tx, b)
		}
		for events, first := b.Events, 0; len(events) > first; {
			part, err := decodeSome(ctx, p.body.deliveredEvent, events[first:], maxDecodedBatch)
			if err == nil {
				b.Events = part
				err = h(ctx, tx, b)
			}
			memory.FromContext(ctx).Collect().Release()
			if err != nil {
				return shifted(err, first)
			}
			first += len(part)
		}
		return nil
	}
}

// decodeSome decodes the first events, at least one and otherwise as many as have room in limit
// bytes, and as there is memory for. The error has a rejection for each event that does not decode,
// as a [*driver.EventError], or is an outage.
func decodeSome(ctx context.Context, decode func(context.Context, *sluice.Event) (*sluice.Event, error), events []*sluice.Event, limit int) ([]*sluice.Event, error) {
	var rejections []error
	var part []*sluice.Event
	for i, e := range events {
		out, err := decode(ctx, e)
		switch {
		case errors.Is(err, memory.ErrBusy) && len(part)+len(rejections) > 0: // the others follow
			return part, errors.Join(rejections...)
		case errors.Is(err, memory.ErrBusy):
			return nil, driver.RetryAfter(err, busyFor)
		case errors.Is(err, sluice.ErrOutage), err != nil && ctx.Err() != nil:
			return nil, err
		case err != nil:
			rejections = append(rejections, &driver.EventError{Index: i, Err: driver.Reject(err)})
		case rejections != nil: // the others are decoded to report all of them at once
		default:
			part = append(part, out)
			if limit -= len(out.Body); limit <= 0 {
				return part, nil
			}
		}
	}
	return part, errors.Join(rejections...)
}

// shifted returns a handler's error with each index of an event higher by some number.
func shifted(err error, by int) error {
	if by == 0 {
		return err
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		list := joined.Unwrap()
		all := make([]error, len(list))
		for i, one := range list {
			all[i] = shifted(one, by)
		}
		return errors.Join(all...)
	}
	if e, ok := errors.AsType[*driver.EventError](err); ok {
		return &driver.EventError{Index: e.Index + by, Err: e.Err}
	}
	return err
}

// busyFor is how long an event waits for memory if the events before it have what the partition may
// get.
const busyFor = 20 * time.Millisecond

// decodedRecords makes a function that makes records get events with decoded bodies.
func decodedRecords[R any](p *Pipeline, records func(context.Context, *sluice.Event) ([]R, error)) func(context.Context, *sluice.Event) ([]R, error) {
	return func(ctx context.Context, e *sluice.Event) ([]R, error) {
		e, err := p.body.deliveredEvent(ctx, e)
		switch {
		case errors.Is(err, memory.ErrBusy):
			return nil, driver.RetryAfter(err, busyFor)
		case err != nil:
			return nil, err
		}
		return records(ctx, e)
	}
}

package formats

import (
	"context"
	"errors"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/memory"
)

// Decoded returns a handler that gets each event with its decoded body, as [Decoder.Event] returns
// it. An event that does not decode is rejected, and the others are handled without it; while the
// schema registry does not answer, the batch waits.
func Decoded[Tx any](d *Decoder, handler sluice.Handler[Tx]) sluice.Handler[Tx] {
	return func(ctx context.Context, tx Tx, b driver.Batch) error {
		events := make([]*driver.Event, len(b.Events))
		var rejected []error
		for i, e := range b.Events {
			var err error
			if events[i], err = d.decoded(ctx, e); err != nil {
				if !errors.Is(err, driver.ErrRejected) {
					return err
				}
				rejected = append(rejected, &driver.EventError{Index: i, Err: err})
			}
		}
		if rejected != nil {
			return errors.Join(rejected...)
		}
		b.Events = events
		return handler(ctx, tx, b)
	}
}

// DecodedRecords is [Decoded] for the function of [sluice.AtLeastOnce] that makes records.
func DecodedRecords[R any](d *Decoder, records func(context.Context, *driver.Event) ([]R, error)) func(context.Context, *driver.Event) ([]R, error) {
	return func(ctx context.Context, e *driver.Event) ([]R, error) {
		decoded, err := d.decoded(ctx, e)
		if err != nil {
			return nil, err
		}
		return records(ctx, decoded)
	}
}

// decoded is Event for a handler: an error that is neither an outage, nor about memory, nor the end
// of ctx, is the event's.
func (d *Decoder) decoded(ctx context.Context, e *driver.Event) (*driver.Event, error) {
	decoded, err := d.Event(ctx, e)
	switch {
	case err == nil:
		return decoded, nil
	case ctx.Err() != nil, errors.Is(err, driver.ErrOutage), errors.Is(err, memory.ErrBusy):
		return nil, err
	}
	return nil, driver.Reject(err)
}

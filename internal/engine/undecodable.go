package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/sluice-go/sluice/driver"
)

// An event that its driver could not decode is never handed to a user's function, nor to a filter:
// what it holds is not what its sender has sent.

// undecodable returns why an event is rejected that could not be decoded, nil for any other.
func undecodable(e *driver.Event) error {
	if e.Undecodable == "" {
		return nil
	}
	return driver.Reject(fmt.Errorf("the event cannot be decoded (%s): the body is what the log holds", e.Undecodable))
}

// DecodedBatches returns a handler that rejects the events that could not be decoded.
func DecodedBatches[Tx any](handler func(context.Context, Tx, driver.Batch) error) func(context.Context, Tx, driver.Batch) error {
	return func(ctx context.Context, tx Tx, b driver.Batch) error {
		var rejections []error
		for i, e := range b.Events {
			if err := undecodable(e); err != nil {
				rejections = append(rejections, &driver.EventError{Index: i, Err: err})
			}
		}
		if rejections != nil {
			return errors.Join(rejections...)
		}
		return handler(ctx, tx, b)
	}
}

// DecodedRecords returns a function that rejects an event that could not be decoded.
func DecodedRecords[R any](records func(context.Context, *driver.Event) ([]R, error)) func(context.Context, *driver.Event) ([]R, error) {
	return func(ctx context.Context, e *driver.Event) ([]R, error) {
		if err := undecodable(e); err != nil {
			return nil, err
		}
		return records(ctx, e)
	}
}

package enginetest

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/sluicetest"
)

// Nothing is a handler that does nothing.
func Nothing(context.Context, *sluicetest.Tx, sluice.Batch) error { return nil }

// Insert writes an event's row, then fails if the body says so: the row must
// not stay.
func Insert(_ context.Context, tx *sluicetest.Tx, e *sluice.Event) error {
	if err := tx.Insert("rows", e.Sequence); err != nil {
		return err
	}
	switch body := string(e.Body); {
	case strings.HasPrefix(body, "reject"):
		return driver.Reject(errors.New(body))
	case strings.HasPrefix(body, "bad"):
		return errors.New(body)
	case strings.HasPrefix(body, "panic"):
		panic(body)
	}
	return nil
}

// InsertBatch is [Insert] by a handler that does not say which event is to blame.
func InsertBatch(ctx context.Context, tx *sluicetest.Tx, b sluice.Batch) error {
	for _, e := range b.Events {
		if err := Insert(ctx, tx, e); err != nil {
			return err
		}
	}
	return nil
}

// InsertRedriven is [Insert] by a handler that fails for no redriven event.
func InsertRedriven(ctx context.Context, tx *sluicetest.Tx, b sluice.Batch) error {
	if !b.Redriven {
		return sluice.Each(Insert)(ctx, tx, b)
	}
	for _, e := range b.Events {
		if err := tx.Insert("rows", e.Sequence); err != nil {
			return err
		}
	}
	return nil
}

// Has reports whether an event is in a batch.
func Has(b sluice.Batch, sequence int64) bool {
	return slices.ContainsFunc(b.Events, func(e *sluice.Event) bool { return e.Sequence == sequence })
}

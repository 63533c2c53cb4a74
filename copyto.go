package sluice

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine"
)

// CopyTo returns a [Config].CopyDeadLetters that writes dead letters to a sink, such as those of
// packages sender, sender/kafkasender and webhook, whose DeadLetterMessages make the records.
// record makes the record of a dead letter. If the sink rejects that ([ErrRejected]), for example
// because it is too large, the dead letter is written without its body: HasBody is false then, and
// Body, Properties and Headers are nil. ctx is that of a record of [AtLeastOnce]
// ([driver.FencingTokenOf], [driver.IncarnationOf]), without a stamp.
func CopyTo[R any](sink driver.Sink[R], record func(ctx context.Context, d *DeadLetter) (R, error)) func(context.Context, []DeadLetter) error {
	return func(ctx context.Context, dead []DeadLetter) error {
		errs := writeCopies(ctx, sink, record, dead)
		var bare []DeadLetter
		var of []int // their indexes
		for i, err := range errs {
			if d := dead[i]; engine.FaultOf(err) == engine.FaultRejected && err != nil && d.HasBody {
				d.HasBody, d.Event.Body, d.Event.Properties, d.Event.Headers = false, nil, nil, nil
				bare, of = append(bare, d), append(of, i)
			}
		}
		for i, err := range writeCopies(ctx, sink, record, bare) {
			errs[of[i]] = err
		}
		var refused []error
		for i, err := range errs {
			if err != nil {
				e := &dead[i].Event
				refused = append(refused, &driver.EventError{Index: i, Err: fmt.Errorf("dead letter %d (partition %s, event %d): %w", dead[i].ID, e.Partition, e.Sequence, err)})
			}
		}
		return errors.Join(refused...)
	}
}

// writeCopies writes a record of each dead letter, and returns their results. A record without a
// result when ctx ends has ctx's error.
func writeCopies[R any](ctx context.Context, sink driver.Sink[R], record func(context.Context, *DeadLetter) (R, error), dead []DeadLetter) []error {
	type result struct {
		i   int
		err error
	}
	errs := make([]error, len(dead))
	results := make(chan result, len(dead))
	waiting := 0
	for i := range dead {
		d := &dead[i]
		lease := Lease{Group: d.Group, Partition: d.Event.Partition}
		ctx := driver.WithEmission(ctx, driver.FencingToken{Lease: lease, Incarnation: d.Incarnation})
		r, err := record(ctx, d)
		if err != nil {
			errs[i] = err
			continue
		}
		var once sync.Once
		errs[i] = errNoResult
		waiting++
		sink.Submit(ctx, r, func(w driver.WriteResult) { once.Do(func() { results <- result{i, w.Err} }) })
	}
	for ; waiting > 0; waiting-- {
		var r result
		select {
		case r = <-results: // also if ctx has ended
		default:
			select {
			case r = <-results:
			case <-ctx.Done():
				return errs
			}
		}
		errs[r.i] = r.err
	}
	return errs
}

// errNoResult is the error of a copy whose outcome is unknown.
var errNoResult = driver.Outage(errors.New("no result in time"))

package peek

import (
	"context"
	"errors"
	"time"

	"github.com/sluice-go/sluice/driver"
)

// seekAll sets the numbers after which the partitions are followed.
func (k *look) seekAll(ctx context.Context, after []int64) error {
	return eachPartition(ctx, k.result.Partitions, parallel, func(ctx context.Context, i int) (err error) {
		after[i], err = k.log.seek(ctx, k.result.Partitions[i], *k.Start)
		return err
	})
}

// Pauses before a partition is read again after an error.
const (
	leastPause = 500 * time.Millisecond
	mostPause  = 10 * time.Second
)

// followPatience is how long a reader may return nothing before another takes its place: its
// connection may be dead.
const followPatience = time.Minute

// errShown ends the look because as many events were shown as are wanted.
var errShown = errors.New("all wanted events were shown")

// follow shows the events that match as they come, until ctx ends or as many are shown as are
// wanted from a start on.
func (k *look) follow(ctx context.Context, after []int64) error {
	showing := make(chan struct{}, 1) // one event at a time
	err := eachPartition(ctx, k.result.Partitions, len(k.result.Partitions), func(ctx context.Context, i int) error {
		r := &reading{log: k.log, partition: k.result.Partitions[i], lastRead: after[i], end: noEnd, patience: followPatience}
		r.gone = func(first, last int64) {
			k.Log.Warn("events are gone, by retention", "partition", r.partition, "first", first, "last", last)
		}
		r.event = func(e *driver.Event) (bool, error) {
			ok, err := k.matches(ctx, e)
			if !ok || err != nil {
				return err == nil, err
			}
			showing <- struct{}{}
			defer func() { <-showing }()
			switch {
			case ctx.Err() != nil:
				return false, ctx.Err()
			case k.Start != nil && k.Limit > 0 && k.result.Shown >= k.Limit:
				return false, errShown
			}
			if err := k.show(ctx, e); err != nil {
				return false, &showError{err}
			}
			if k.Start != nil && k.result.Shown == k.Limit {
				return false, errShown
			}
			return true, nil
		}
		return k.again(ctx, r)
	})
	if errors.Is(err, errShown) || errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// showError is an error of the output.
type showError struct{ error }

// again reads, and reads again after an error that may pass.
func (k *look) again(ctx context.Context, r *reading) error {
	for pause := leastPause; ; {
		before := r.lastRead
		err := r.run(ctx)
		var output *showError
		if err == nil || ctx.Err() != nil || errors.Is(err, errShown) || errors.Is(err, driver.ErrRefused) || errors.As(err, &output) {
			return err
		}
		if r.lastRead > before {
			pause = leastPause
		}
		k.Log.Warn("the log is read again", "partition", r.partition, "in", pause, "error", err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
		pause = min(2*pause, mostPause)
	}
}

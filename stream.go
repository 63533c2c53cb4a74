package sluice

import (
	"context"
	"slices"
	"time"

	"github.com/sluice-go/sluice/driver"
)

// streamConfig is sluice.AtLeastOnceConfig with every default filled in.
type streamConfig struct {
	Ordering        streamOrdering
	Rate            *streamRate // nil: no limit
	CheckpointEvery time.Duration
	MaxEvents       int
	MaxBytes        int64
	MaxAge          time.Duration
	AgeFatal        bool
	RetryAfter      time.Duration
	HoldKeys        bool // events of a dead letter's key become dead letters
}

// streamOrdering is sluice.Ordering, with the same values.
type streamOrdering uint8

const (
	byKey streamOrdering = iota
	byPartition
	unordered
)

type atLeastOnce[R any] struct {
	stored  driver.AtLeastOnceStore
	records func(context.Context, *Event) ([]R, error)
	sink    driver.Sink[R]
	key     func(R) string // nil: the event's partition key
	cfg     *streamConfig
	window  *sinkWindow // of all partitions
}

// newAtLeastOnce makes the delivery that sluice.AtLeastOnce describes. key returns a record's key; nil: it
// is the event's partition key.
func newAtLeastOnce[R any](store driver.AtLeastOnceStore, records func(context.Context, *Event) ([]R, error), sink driver.Sink[R], key func(R) string, cfg *streamConfig) engineDelivery {
	return &atLeastOnce[R]{stored: store, records: records, sink: sink, key: key, cfg: cfg, window: newSinkWindow(cfg.MaxEvents)}
}

func (d *atLeastOnce[R]) store() any { return d.stored }

func (d *atLeastOnce[R]) deliver(a *assignment) error {
	w := d.newWorker(a)
	defer a.leave(d.stored)
	leaveRate, err := d.joinRate(a)
	if err != nil {
		if a.idle.Err() == nil { // the rate is too low for every assignment
			a.host.Fail(err)
		}
		return err
	}
	defer leaveRate()
	w.startBackground()
	err = a.guarded(func() error { return a.run(w, d.stored) })
	w.drain(err)
	return err
}

func (d *atLeastOnce[R]) redriveDue(ctx context.Context, group Group, partition string) (bool, error) {
	due, err := d.stored.Due(ctx, group, partition, 1)
	return len(due) > 0, err
}

func (d *atLeastOnce[R]) redrive(a *assignment) (applied, failed int, err error) {
	w := d.newWorker(a)
	defer a.leave(d.stored)
	leaveRate, err := d.joinRate(a)
	if err != nil {
		return 0, 0, err
	}
	defer leaveRate()
	if err := a.claim(w, d.stored); err != nil {
		return 0, 0, err
	}
	w.startBackground()
	err = a.guarded(w.redriveAll)
	w.drain(err)
	applied, failed = w.redrives.totals()
	return applied, failed, err
}

// joinRate adds the partition's share to a cluster's rate. leave takes it away.
func (d *atLeastOnce[R]) joinRate(a *assignment) (leave func(), err error) {
	rate := d.cfg.Rate
	if rate == nil || !rate.cluster {
		return func() {}, nil
	}
	// The previous owner may have used the partition's share until just now.
	if err := a.pause(time.Second); err != nil {
		return nil, err
	}
	index := slices.Index(a.topic.Partitions, a.lease.Partition)
	if err := rate.join(a.lease.Partition, index, len(a.topic.Partitions)); err != nil {
		return nil, err
	}
	return func() { rate.leave(a.lease.Partition) }, nil
}

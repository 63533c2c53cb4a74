package stream

import (
	"context"
	"slices"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine/partition"
)

// Config is sluice.AtLeastOnceConfig with every default filled in.
type Config struct {
	Ordering        Ordering
	Rate            *Rate // nil: no limit
	CheckpointEvery time.Duration
	MaxEvents       int
	MaxBytes        int64
	MaxAge          time.Duration
	AgeFatal        bool
	RetryAfter      time.Duration
	HoldKeys        bool // events of a dead letter's key become dead letters
}

// Ordering is sluice.Ordering, with the same values.
type Ordering uint8

const (
	byKey Ordering = iota
	byPartition
	unordered
)

type delivery[R any] struct {
	stored  driver.AtLeastOnceStore
	records func(context.Context, *driver.Event) ([]R, error)
	sink    driver.Sink[R]
	key     func(R) string // nil: the event's partition key
	cfg     *Config
	window  *sinkWindow // of all partitions
}

// New makes the delivery that sluice.AtLeastOnce describes. key returns a record's key; nil: it
// is the event's partition key.
func New[R any](store driver.AtLeastOnceStore, records func(context.Context, *driver.Event) ([]R, error), sink driver.Sink[R], key func(R) string, cfg *Config) partition.Delivery {
	return &delivery[R]{stored: store, records: records, sink: sink, key: key, cfg: cfg, window: newSinkWindow(cfg.MaxEvents)}
}

func (d *delivery[R]) Store() any { return d.stored }

func (d *delivery[R]) Deliver(a *partition.Assignment) error {
	w := d.newWorker(a)
	defer a.Leave(d.stored)
	leaveRate, err := d.joinRate(a)
	if err != nil {
		if a.Idle.Err() == nil { // the rate is too low for every assignment
			a.Host.Fail(err)
		}
		return err
	}
	defer leaveRate()
	w.startBackground()
	err = a.Guarded(func() error { return a.Run(w, d.stored) })
	w.drain(err)
	return err
}

func (d *delivery[R]) RedriveDue(ctx context.Context, group driver.Group, partition string) (bool, error) {
	due, err := d.stored.Due(ctx, group, partition, 1)
	return len(due) > 0, err
}

func (d *delivery[R]) Redrive(a *partition.Assignment) (applied, failed int, err error) {
	w := d.newWorker(a)
	defer a.Leave(d.stored)
	leaveRate, err := d.joinRate(a)
	if err != nil {
		return 0, 0, err
	}
	defer leaveRate()
	if err := a.Claim(w, d.stored); err != nil {
		return 0, 0, err
	}
	w.startBackground()
	err = a.Guarded(w.redriveAll)
	w.drain(err)
	applied, failed = w.redrives.totals()
	return applied, failed, err
}

// joinRate adds the partition's share to a cluster's rate. leave takes it away.
func (d *delivery[R]) joinRate(a *partition.Assignment) (leave func(), err error) {
	rate := d.cfg.Rate
	if rate == nil || !rate.cluster {
		return func() {}, nil
	}
	// The previous owner may have used the partition's share until just now.
	if err := a.Pause(time.Second); err != nil {
		return nil, err
	}
	index := slices.Index(a.Topic.Partitions, a.Lease.Partition)
	if err := rate.join(a.Lease.Partition, index, len(a.Topic.Partitions)); err != nil {
		return nil, err
	}
	return func() { rate.leave(a.Lease.Partition) }, nil
}

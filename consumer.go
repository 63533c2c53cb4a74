package sluice

import (
	"context"
	"errors"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine/group"
)

// Consumer reads its partitions of a topic and delivers their events.
type Consumer struct{ member *group.Member }

// New makes a consumer of the source's topic. A nil cfg takes every default.
func New(source driver.Source, leases driver.LeaseStore, delivery Delivery, cfg *Config) (*Consumer, error) {
	if source == nil || leases == nil || delivery == nil {
		return nil, errors.New("make a consumer: source, lease store or delivery is nil")
	}
	config, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := checkLease(leases, config.LeaseFor); err != nil {
		return nil, err
	}
	d, err := delivery.engine()
	if err != nil {
		return nil, err
	}
	if _, is := d.Store().(driver.CopyMarks); config.CopyDeadLetters != nil && !is {
		return nil, errors.New("CopyDeadLetters: the delivery's store does not remember which dead letters were copied (driver.CopyMarks): use pgstore, sqlstore or blobstore with Transactional, Batches or AtLeastOnce, or set no CopyDeadLetters")
	}
	if _, fills := d.(interface{ FillsBatches() }); config.FillFor > 0 && !fills {
		return nil, errors.New("FillFor: is for Transactional and Batches; the sink of AtLeastOnce collects its records itself")
	}
	settings := config.settings()
	member, err := group.New(source, leases, d, &settings)
	if err != nil {
		return nil, err
	}
	return &Consumer{member}, nil
}

// Run acquires partitions and delivers their events until the consumer is stopped.
// It returns nil after [Consumer.Stop]. If ctx ends first, Run stops promptly:
// handlers are cancelled, nothing half-done is committed, leases are released, and
// it returns ctx's error. It returns early only if the source refuses to describe
// the topic ([ErrRefused]). A consumer runs once.
func (c *Consumer) Run(ctx context.Context) error { return c.member.Run(ctx) }

// Stop ends Run gracefully: no more partitions are acquired, batches in progress are
// finished and committed, leases are released. It returns when Run has released
// everything. If ctx ends first, the batches still in progress are cancelled and
// Stop returns ctx's error, at most a second later; the error says what has not returned
// by then. Stop may be called more than once, and before Run.
func (c *Consumer) Stop(ctx context.Context) error { return c.member.Stop(ctx) }

// Redrive runs the redrives that are due on partitions without an owner. It holds
// each partition's lease meanwhile. The redrives of an owned partition are run by
// its owner. Redrive returns how many dead letters were applied and how many failed
// again. It must not be called on a consumer that runs.
func (c *Consumer) Redrive(ctx context.Context) (applied, failed int, err error) {
	return c.member.Redrive(ctx)
}

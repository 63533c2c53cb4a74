package sluice

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine/group"
)

// Consumer reads its partitions of a topic and delivers their events.
type Consumer struct {
	member *group.Member
	source driver.Source
}

// New makes a consumer of the source's topic. A nil cfg takes every default. [Replay] needs no
// leases: with nil, each process reads every partition by itself.
func New(source driver.Source, leases driver.LeaseStore, delivery Delivery, cfg *Config) (*Consumer, error) {
	if err := firstNil("make a consumer", part{"source", isNil(source), ""}, part{"delivery", delivery == nil, "make one with Transactional, Batches, AtLeastOnce or Replay"}); err != nil {
		return nil, err
	}
	config, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	d, err := delivery.engine()
	if err != nil {
		return nil, err
	}
	given := source
	switch {
	case leases != nil && isNil(leases):
		err = errors.New("make a consumer: the lease store is a nil pointer")
	case leases != nil:
		err = checkLease(leases, config.LeaseFor)
	case d.Store() == nil:
		source, leases = group.Alone(source)
	default:
		err = errors.New("make a consumer: the lease store is nil, and only Replay can do without one")
	}
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
	return &Consumer{member, given}, nil
}

// closeWithin is how long [Run] waits for a source to close, which has nothing to finish any more.
const closeWithin = 2 * time.Second

// Run runs one or more consumers until ctx ends, as [signal.NotifyContext] ends it at SIGTERM, and
// then stops them as [Consumer.Stop] does: what is in progress may take as long as grace, which
// must be positive. It returns nil if all of it was finished. If grace is over first, or another
// interrupt or SIGTERM comes after the one that ended ctx, what is in progress is cancelled, and
// the error says what that was; it is not done, and is done again by its next owner.
//
// If a consumer fails, the others are stopped in the same way, and Run returns the errors of all.
// At the end Run closes the sources that have a method Close(context.Context) error. Stores are the
// caller's to close.
func Run(ctx context.Context, grace time.Duration, consumers ...*Consumer) error {
	if grace <= 0 {
		return fmt.Errorf("run: a grace period of %v: must be positive", grace)
	}
	if len(consumers) == 0 {
		return errors.New("run: no consumer: pass at least one that New made")
	}
	for i, c := range consumers {
		if c == nil {
			return fmt.Errorf("run: consumer %d of %d is nil: check the error of New", i+1, len(consumers))
		}
	}
	running, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	errs := make([]error, len(consumers))
	var all sync.WaitGroup
	for i, c := range consumers {
		all.Go(func() {
			if errs[i] = c.runUntil(running, grace); errs[i] != nil {
				g := c.member.Group()
				errs[i] = fmt.Errorf("topic %s, group %s: %w", g.Topic, g.Name, errs[i])
				stop(errs[i])
			}
		})
	}
	all.Wait()
	for _, c := range consumers { // which may have a source in common
		all.Go(func() { c.closeSource(ctx) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// runUntil runs the consumer until running ends, and stops it.
func (c *Consumer) runUntil(running context.Context, grace time.Duration) error {
	work := context.WithoutCancel(running)
	ended := make(chan error, 1)
	go func() { ended <- c.Run(work) }()
	select {
	case err := <-ended:
		return err
	case <-running.Done():
	}
	stopping, cancel := context.WithTimeoutCause(work, grace, fmt.Errorf("not finished within %v", grace))
	defer cancel()
	if cause := context.Cause(running); cause != running.Err() && errors.Is(cause, context.Canceled) {
		// The cause is a signal. The signals of a program that uses none stay as they are.
		stopping, cancel = signal.NotifyContext(stopping, os.Interrupt, syscall.SIGTERM)
		defer cancel()
	}
	if err := c.Stop(stopping); err != nil {
		return err
	}
	return <-ended
}

// closeSource closes the source, unless it does not answer.
func (c *Consumer) closeSource(ctx context.Context) {
	source, is := c.source.(interface{ Close(context.Context) error })
	if !is {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWithin)
	defer cancel()
	_ = source.Close(ctx) // nothing is lost: all that was read is done, or is read again
}

// Run acquires partitions and delivers their events until the consumer is stopped. It returns nil
// after [Consumer.Stop]. If ctx ends first, Run stops promptly: handlers are cancelled, nothing
// half-done is committed, leases are released, and it returns ctx's error; [Run], the function,
// waits for what is in progress. It returns early only if the source refuses to describe the topic
// ([ErrRefused]). A consumer runs once.
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

// Assignments returns the partitions that the consumer holds now, sorted.
func (c *Consumer) Assignments() []driver.Assignment { return c.member.Assignments() }

// CaughtUp waits until the consumer holds as many partitions as [Config].Partitions says,
// [Balanced] ones at least one, and has done what the log held in each of them when it was first
// seen held: for a probe of readiness. While the source fails it is asked again. The error is
// ctx's, with what failed last; [ErrStopped] after the consumer has stopped; [ErrRefused] if the
// source refuses.
func (c *Consumer) CaughtUp(ctx context.Context) error { return c.member.CaughtUp(ctx) }

package sluice

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	mathrand "math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice/driver"
)

// Consumer reads its partitions of a topic and delivers their events.
//
// One goroutine acquires partitions. Each partition that is held is an assignment
// with goroutines of its own (assignment.go).
type Consumer struct {
	source   driver.Source
	leases   driver.LeaseStore
	delivery Delivery
	cfg      Config
	rand     *mathrand.Rand // of the goroutine that acquires partitions
	balancer *balancer      // nil unless partitions are balanced
	renewals renewals
	redrives redriveFinder
	standby  standby

	stopping     context.Context    // ends when Stop is called
	stop         context.CancelFunc // ends stopping
	cancel       context.CancelCauseFunc
	running      atomic.Bool
	done         chan struct{} // closed when Run has released everything
	assignments  sync.WaitGroup
	suspectToken chan struct{} // a token: one event suspected of killing the process is tried at a time
	copyToken    chan struct{} // a token: dead letters of one partition are copied at a time

	mu        sync.Mutex // guards what follows; never held over a call
	held      map[string]*assignment
	requested map[string]bool          // partitions whose lease is being acquired
	group     Group                    // as the stores spell it; empty: not known yet, or case counts
	takeover  map[string]takeoverState // by partition or name of a membership
	began     map[string]beganAt       // by partition
	fatal     error                    // ends Run

	ownerReported   bool          // that another process uses the owner name
	ownerReportedAt time.Duration // by Clock.Elapsed
}

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
	if err := delivery.check(); err != nil {
		return nil, err
	}
	if config.CopyDeadLetters != nil && delivery.copyMarks() == nil {
		return nil, errors.New("CopyDeadLetters: the delivery's store does not remember which dead letters were copied (driver.CopyMarks): use pgstore, sqlstore or blobstore with Transactional, Batches or AtLeastOnce, or set no CopyDeadLetters")
	}
	c := &Consumer{
		source: source, leases: leases, delivery: delivery, cfg: config,
		rand:         mathrand.New(mathrand.NewPCG(config.Seed, 0)),
		done:         make(chan struct{}),
		suspectToken: make(chan struct{}, 1),
		copyToken:    make(chan struct{}, 1),
		held:         map[string]*assignment{},
		requested:    map[string]bool{},
		takeover:     map[string]takeoverState{},
		began:        map[string]beganAt{},
	}
	c.renewals.c, c.redrives.c = c, c
	c.renewals.store, _ = leases.(driver.LeaseRenewer)
	c.redrives.store = delivery.redriveFinder()
	if config.Partitions == Balanced {
		if c.balancer, err = newBalancer(c); err != nil {
			return nil, err
		}
	}
	c.stopping, c.stop = context.WithCancel(context.Background())
	return c, nil
}

// Run acquires partitions and delivers their events until the consumer is stopped.
// It returns nil after [Consumer.Stop]. If ctx ends first, Run stops promptly:
// handlers are cancelled, nothing half-done is committed, leases are released, and
// it returns ctx's error. It returns early only if the source refuses to describe
// the topic ([ErrRefused]). A consumer runs once.
func (c *Consumer) Run(ctx context.Context) error {
	if c.running.Swap(true) {
		return errors.New("run: this consumer has run already; make another")
	}
	defer close(c.done)
	work, cancel := workContext(ctx)
	c.mu.Lock()
	c.cancel = cancel
	c.mu.Unlock()
	defer cancel(ErrStopped)
	// Between two requests nothing is in progress: there a stop may cancel.
	idle, endIdle := context.WithCancel(work)
	defer endIdle()
	defer context.AfterFunc(c.stopping, endIdle)()

	err := c.acquirePartitions(work, idle)
	if c.balancer != nil {
		c.balancer.leave(work)
	}
	c.assignments.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return cmp.Or(err, c.fatal, ctx.Err())
}

// runs reports whether Run has begun and not ended.
func (c *Consumer) runs() bool {
	select {
	case <-c.done:
		return false
	default:
		return c.running.Load()
	}
}

// heldPartitions returns the partitions whose leases the consumer holds, sorted.
func (c *Consumer) heldPartitions() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.held))
}

// fail ends Run with an error.
func (c *Consumer) fail(err error) {
	c.mu.Lock()
	c.fatal = cmp.Or(c.fatal, err)
	cancel := c.cancel
	c.mu.Unlock()
	cancel(ErrStopped)
}

// workContext returns a context that ends with ctx, with the cause ErrStopped, so
// that handlers can distinguish a stop from a lost lease.
func workContext(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	work, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	detach := context.AfterFunc(ctx, func() { cancel(ErrStopped) })
	return work, func(cause error) {
		detach()
		cancel(cause)
	}
}

// Stop ends Run gracefully: no more partitions are acquired, batches in progress are
// finished and committed, leases are released. It returns when Run has released
// everything. If ctx ends first, the batches still in progress are cancelled and
// Stop returns ctx's error, at most a second later; the error says what has not returned
// by then. Stop may be called more than once, and before Run.
func (c *Consumer) Stop(ctx context.Context) error {
	c.stop()
	if !c.running.Load() {
		return nil
	}
	select {
	case <-c.done:
		return nil
	case <-ctx.Done():
	}
	c.mu.Lock()
	cancel := c.cancel
	c.mu.Unlock()
	if cancel != nil {
		cancel(ErrStopped)
	}
	grace, end := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer end()
	select {
	case <-c.done:
		return ctx.Err()
	case <-grace.Done():
		return c.notStopped(ctx.Err())
	}
}

// Redrive runs the redrives that are due on partitions without an owner. It holds
// each partition's lease meanwhile. The redrives of an owned partition are run by
// its owner. Redrive returns how many dead letters were applied and how many failed
// again. It must not be called on a consumer that runs.
func (c *Consumer) Redrive(ctx context.Context) (applied, failed int, err error) {
	asking, asked := context.WithTimeout(ctx, c.cfg.LeaseFor/3)
	topic, err := c.source.Describe(asking)
	asked()
	if err != nil {
		return 0, 0, fmt.Errorf("describe topic: %w", err)
	}
	work, cancel := workContext(ctx)
	defer cancel(ErrStopped)
	for _, partition := range topic.Partitions {
		asking, asked := context.WithTimeout(ctx, c.cfg.LeaseFor/3)
		due, err := c.delivery.redriveDue(asking, topic.Group, partition)
		asked()
		if err != nil {
			return applied, failed, fmt.Errorf("look for redrives: %w", err)
		}
		if !due {
			continue
		}
		t, err := c.acquire(work, topic, partition)
		if errors.Is(err, driver.ErrHeld) {
			continue
		}
		if err != nil {
			return applied, failed, fmt.Errorf("acquire lease of partition %s: %w", partition, err)
		}
		a, f, err := c.delivery.redrive(t)
		applied, failed = applied+a, failed+f
		t.end(err)
		if err != nil {
			return applied, failed, fmt.Errorf("redrive partition %s: %w", partition, err)
		}
	}
	return applied, failed, nil
}

// observe adds time and owner to an observation and passes it to the observer.
func (c *Consumer) observe(o driver.Observation) {
	o.Time, o.Owner = c.cfg.Clock.Wall(), c.cfg.Owner
	_ = guard(func() error { c.cfg.Observer.Observe(o); return nil })
}

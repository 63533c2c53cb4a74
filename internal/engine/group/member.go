package group

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine"
	"github.com/sluice-go/sluice/internal/engine/partition"
)

// Member is a process's part in a consumer group: it acquires partitions, divides them with the
// other members, and holds their assignments. One goroutine acquires partitions. Each assignment
// has goroutines of its own.
type Member struct {
	source   driver.Source
	leases   driver.LeaseStore
	delivery partition.Delivery
	cfg      *engine.Settings
	host     *partition.Host
	rand     *mathrand.Rand // of the goroutine that acquires partitions
	balancer *balancer      // nil unless partitions are balanced
	renewals renewals
	redrives redriveFinder
	standby  standby

	stopping    context.Context    // ends when Stop is called
	stop        context.CancelFunc // ends stopping
	cancel      context.CancelCauseFunc
	running     atomic.Bool
	done        chan struct{} // closed when Run has released everything
	assignments sync.WaitGroup

	mu        sync.Mutex // guards what follows; never held over a call
	held      map[string]*partition.Assignment
	requested map[string]bool          // partitions whose lease is being acquired
	group     driver.Group             // as the stores spell it; empty: not known yet, or case counts
	described driver.Group             // of the last description; before it, what the source knows of it
	takeover  map[string]takeoverState // by partition or name of a membership
	fatal     error                    // ends Run

	ownerReported   bool          // that another process uses the owner name
	ownerReportedAt time.Duration // by Clock.Elapsed
}

// New makes a member of the group that reads the source's topic.
func New(source driver.Source, leases driver.LeaseStore, delivery partition.Delivery, cfg *engine.Settings) (*Member, error) {
	c := &Member{
		source: source, leases: leases, delivery: delivery, cfg: cfg,
		rand:      mathrand.New(mathrand.NewPCG(cfg.Seed, 0)),
		done:      make(chan struct{}),
		held:      map[string]*partition.Assignment{},
		described: driver.GroupOf(source),
		requested: map[string]bool{},
		takeover:  map[string]takeoverState{},
	}
	c.renewals.c, c.redrives.c = c, c
	c.renewals.store, _ = leases.(driver.LeaseRenewer)
	c.redrives.store, _ = delivery.Store().(driver.RedriveFinder)
	if cfg.Partitions < 0 {
		var err error
		if c.balancer, err = newBalancer(c); err != nil {
			return nil, err
		}
	}
	c.stopping, c.stop = context.WithCancel(context.Background())
	c.host = &partition.Host{
		Settings: cfg, Source: source, Leases: leases, Delivery: delivery, Renewals: &c.renewals, Stopping: c.stopping,
		Suspects: make(chan struct{}, 1), Copies: make(chan struct{}, 1), Begun: new(partition.Begun),
		Describe: c.describeTopic, RedrivesDue: c.redrives.mayBeDue, Held: c.holds, Fail: c.fail, Ended: c.assignmentEnded,
	}
	return c, nil
}

// Run is sluice.Consumer.Run.
func (c *Member) Run(ctx context.Context) error {
	if c.running.Swap(true) {
		return errors.New("run: this consumer has run already; make another")
	}
	defer close(c.done)
	work, cancel := workContext(ctx)
	c.mu.Lock()
	c.cancel = cancel
	c.mu.Unlock()
	defer cancel(driver.ErrStopped)
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
func (c *Member) runs() bool {
	select {
	case <-c.done:
		return false
	default:
		return c.running.Load()
	}
}

// holds returns how many leases the consumer holds.
func (c *Member) holds() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.held)
}

// heldPartitions returns the partitions whose leases the consumer holds, sorted.
func (c *Member) heldPartitions() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.held))
}

// observe adds the group to an observation that is about no assignment, and passes it on.
func (c *Member) observe(o driver.Observation) {
	o.Group = c.Group()
	c.cfg.Observe(o)
}

// Group returns the topic and the group, as far as they are known.
func (c *Member) Group() driver.Group {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.described
}

// fail ends Run with an error.
func (c *Member) fail(err error) {
	c.mu.Lock()
	c.fatal = cmp.Or(c.fatal, err)
	cancel := c.cancel
	c.mu.Unlock()
	cancel(driver.ErrStopped)
}

// workContext returns a context that ends with ctx, with the cause ErrStopped, so
// that handlers can distinguish a stop from a lost lease.
func workContext(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	work, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	detach := context.AfterFunc(ctx, func() { cancel(driver.ErrStopped) })
	return work, func(cause error) {
		detach()
		cancel(cause)
	}
}

// Stop is sluice.Consumer.Stop.
func (c *Member) Stop(ctx context.Context) error {
	c.stop()
	if !c.running.Load() {
		return nil
	}
	select {
	case <-c.done:
		return nil
	case <-ctx.Done():
	}
	late := c.delaying()
	c.mu.Lock()
	cancel := c.cancel
	c.mu.Unlock()
	if cancel != nil {
		cancel(driver.ErrStopped)
	}
	grace, end := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer end()
	select {
	case <-c.done:
		return c.stopError(ctx, "was cancelled", late)
	case <-grace.Done():
		return c.stopError(ctx, "does not end", c.delaying())
	}
}

// Redrive is sluice.Consumer.Redrive.
func (c *Member) Redrive(ctx context.Context) (applied, failed int, err error) {
	if c.runs() {
		return 0, 0, errors.New("redrive: this consumer runs, and redrives by itself: use one that does not")
	}
	asking, asked := context.WithTimeout(ctx, c.cfg.LeaseFor/3)
	topic, err := c.source.Describe(asking)
	asked()
	if err != nil {
		return 0, 0, fmt.Errorf("describe topic: %w", err)
	}
	work, cancel := workContext(ctx)
	defer cancel(driver.ErrStopped)
	for _, partition := range topic.Partitions {
		asking, asked := context.WithTimeout(ctx, c.cfg.LeaseFor/3)
		due, err := c.delivery.RedriveDue(asking, topic.Group, partition)
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
		a, f, err := c.delivery.Redrive(t)
		applied, failed = applied+a, failed+f
		t.End(err)
		if err != nil {
			return applied, failed, fmt.Errorf("redrive partition %s: %w", partition, err)
		}
	}
	return applied, failed, nil
}

// delaying returns what has not returned.
func (c *Member) delaying() (list []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(c.held)) {
		for _, what := range c.held[id].Delaying() {
			list = append(list, fmt.Sprintf("partition %s: %s", id, what))
		}
	}
	if len(list) == 0 && c.redrives.asks() {
		list = append(list, "request to look for redrives has not returned")
	}
	return list
}

// stopError returns the error of a stop whose context has ended, with what had not returned by
// then, and what became of it.
func (c *Member) stopError(ctx context.Context, fate string, late []string) error {
	err := ctx.Err()
	if cause := context.Cause(ctx); cause != err {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	if len(late) == 0 {
		return err
	}
	return fmt.Errorf("stop: %w: %s: %s", err, fate, strings.Join(late, "; "))
}

package sluice

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice/driver"

	"github.com/sluice-go/sluice/internal/clock"
	"github.com/sluice-go/sluice/internal/ownername"
)

// Partitions is how many partitions a consumer takes. It never takes more, and
// nobody takes them from it while it lives.
type Partitions int

const (
	// AllPartitions takes every partition that is free.
	AllPartitions Partitions = 0
	// Balanced takes a fair share: the consumers of a group that state it share
	// the topic's partitions out so that no two differ by more than one. Who
	// comes is given partitions by those who have too many, which finish their
	// batches, checkpoint and release them; nobody takes what is held.
	// Partitions move only when a process comes or goes, one that comes back
	// within [Config].RenewEvery of a stop in good order excepted.
	//
	// Consumers with a fixed number or AllPartitions may run in the same group.
	// They take what is free and never give it up; the balanced ones share what
	// is left, and take no notice of what those still lack. So beside
	// AllPartitions a balanced consumer loses what it hands over.
	//
	// All balanced consumers of a group must have the same LeaseFor and
	// RenewEvery. Each lists the leases once every AssignEvery, which must not
	// be above RenewEvery, and renews one more than it has partitions.
	Balanced Partitions = -1
)

// Config holds what has a default. The zero value is ready to use.
type Config struct {
	// Partitions is how many partitions the consumer takes: a positive number,
	// AllPartitions or Balanced. Default: AllPartitions.
	Partitions Partitions
	// Owner names this process in leases and checkpoints; it must be unique
	// among processes, also across restarts. Default: host name, process id
	// and a random part.
	Owner string
	// Start is where a partition without a checkpoint begins. Default: Earliest.
	Start Start
	// LeaseFor is how long a lease lasts without renewal, and RenewEvery how
	// old it gets before it is renewed. LeaseFor must be at least three times
	// RenewEvery. Defaults: 30 s and 10 s; RenewEvery defaults to a third of
	// LeaseFor.
	LeaseFor, RenewEvery time.Duration
	// AssignEvery is the time between two takings of a partition: at most one
	// each. Default: 1 s.
	AssignEvery time.Duration
	// MaxBatch is the largest number of events in a batch. Default: 1,000.
	MaxBatch int
	// Attempts is how often a failing event is tried before it becomes a dead
	// letter; rejected events are tried once. Default: 3.
	Attempts int
	// RetryMin and RetryMax bound the waits between attempts and after
	// outages; a wait doubles from one to the next and is varied at random by
	// a quarter. Defaults: 100 ms and 10 s.
	RetryMin, RetryMax time.Duration
	// RedriveEvery is how often an owner looks for dead letters whose retry is
	// due. Default: 1 s.
	RedriveEvery time.Duration
	// BodyLimit is the largest body in bytes, properties included, that a dead
	// letter stores; of a larger one only the pointer is kept, and a retry
	// reads the log. Default: 256 KiB; negative: bodies are never stored.
	BodyLimit int
	// Hooks are called at the turns of a partition's life.
	Hooks Hooks
	// Observer is told everything.
	Observer Observer
	// Clock and Seed replace time and chance in tests. Defaults: the system's.
	Clock Clock
	Seed  uint64
}

func (cfg *Config) withDefaults() (Config, error) {
	var c Config
	if cfg != nil {
		c = *cfg
	}
	if c.Owner == "" {
		c.Owner = ownername.New()
	}
	c.LeaseFor = cmp.Or(c.LeaseFor, 30*time.Second)
	c.RenewEvery = cmp.Or(c.RenewEvery, c.LeaseFor/3)
	c.AssignEvery = cmp.Or(c.AssignEvery, time.Second)
	c.MaxBatch = cmp.Or(c.MaxBatch, 1000)
	c.Attempts = cmp.Or(c.Attempts, 3)
	c.RetryMin = cmp.Or(c.RetryMin, 100*time.Millisecond)
	c.RetryMax = cmp.Or(c.RetryMax, max(10*time.Second, c.RetryMin))
	c.RedriveEvery = cmp.Or(c.RedriveEvery, time.Second)
	c.BodyLimit = cmp.Or(c.BodyLimit, 256<<10)
	if c.Clock == nil {
		c.Clock = clock.New()
	}
	if c.Seed == 0 {
		var b [8]byte
		rand.Read(b[:])
		c.Seed = binary.NativeEndian.Uint64(b[:])
	}
	switch {
	case c.Partitions < Balanced:
		return c, fmt.Errorf("%d partitions: state a positive number, AllPartitions or Balanced", c.Partitions)
	case c.LeaseFor < 0 || c.RenewEvery <= 0 || c.LeaseFor < 3*c.RenewEvery:
		return c, fmt.Errorf("lease of %v renewed every %v: a lease must last at least three renewals, so that one lost renewal does not lose it", c.LeaseFor, c.RenewEvery)
	case c.AssignEvery < 0:
		return c, fmt.Errorf("assign every %v: must be positive", c.AssignEvery)
	case c.MaxBatch < 0:
		return c, fmt.Errorf("batch of at most %d events: must be positive", c.MaxBatch)
	case c.Attempts < 0:
		return c, fmt.Errorf("%d attempts: must be positive", c.Attempts)
	case c.RetryMin < 0 || c.RetryMax < c.RetryMin:
		return c, fmt.Errorf("waits from %v to %v between attempts: must be positive and in order", c.RetryMin, c.RetryMax)
	case c.RedriveEvery < 0:
		return c, fmt.Errorf("redrive every %v: must be positive", c.RedriveEvery)
	}
	return c, nil
}

// Consumer reads its partitions of a topic and delivers their events.
//
// One goroutine takes partitions (this file). Each partition taken is a tenure
// with goroutines of its own: one keeps the lease, one fetches, one delivers
// (tenure.go, deliver.go).
type Consumer struct {
	source   driver.Source
	leases   driver.LeaseStore
	delivery Delivery
	cfg      Config
	rand     *mathrand.Rand // of the goroutine that takes partitions
	balancer *balancer      // nil: partitions are not shared out

	stopping     context.Context    // ends when Stop is called
	stop         context.CancelFunc // ends stopping
	cancel       context.CancelCauseFunc
	running      atomic.Bool
	done         chan struct{} // closed when Run has let go of everything
	assignments  sync.WaitGroup
	suspectToken chan struct{} // a token: one event at a time is tried under suspicion of killing the process

	mu       sync.Mutex // guards what follows; never held over a call
	held     map[string]*assignment
	takeover map[string]takeoverState
	fatal    error // ends Run
}

// floor is what an earlier tenure of a partition has learned.
type takeoverState struct {
	epoch int64         // the next lease's must be above it
	rest  time.Duration // how long to leave the partition alone after it was stolen
	until time.Duration // by Clock.Elapsed
}

// New makes a consumer of the source's topic. A nil cfg takes every default.
func New(source driver.Source, leases driver.LeaseStore, delivery Delivery, cfg *Config) (*Consumer, error) {
	config, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := delivery.check(); err != nil {
		return nil, err
	}
	c := &Consumer{
		source: source, leases: leases, delivery: delivery, cfg: config,
		rand:         mathrand.New(mathrand.NewPCG(config.Seed, 0)),
		done:         make(chan struct{}),
		suspectToken: make(chan struct{}, 1),
		held:         map[string]*assignment{},
		takeover:     map[string]takeoverState{},
	}
	if config.Partitions == Balanced {
		if c.balancer, err = newBalancer(c); err != nil {
			return nil, err
		}
	}
	c.stopping, c.stop = context.WithCancel(context.Background())
	return c, nil
}

// Run takes partitions and delivers their events until the consumer is
// stopped. It returns nil after [Consumer.Stop]. When ctx ends first it stops
// promptly: handlers are cancelled, nothing half-done is committed, leases are
// given back, and it returns ctx's error. It returns early only if the source
// refuses to describe the topic ([ErrRefused]). A consumer runs once.
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
	// While nothing is under way a stop is as good as a cancellation.
	idle, endIdle := context.WithCancel(work)
	defer endIdle()
	defer context.AfterFunc(c.stopping, endIdle)()

	err := c.takePartitions(work, idle)
	if c.balancer != nil {
		c.balancer.leave(work)
	}
	c.assignments.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return cmp.Or(err, c.fatal, ctx.Err())
}

// fail ends Run with an error.
func (c *Consumer) fail(err error) {
	c.mu.Lock()
	c.fatal = cmp.Or(c.fatal, err)
	cancel := c.cancel
	c.mu.Unlock()
	cancel(ErrStopped)
}

// workContext is ctx with a cause that handlers can tell from a lost lease.
func workContext(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	work, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	context.AfterFunc(ctx, func() { cancel(ErrStopped) })
	return work, cancel
}

// takePartitions takes at most one partition every AssignEvery while it has
// fewer than it wants, until idle ends.
func (c *Consumer) takePartitions(work, idle context.Context) error {
	var topic Topic
	var described time.Duration
	wait := c.backoff(c.rand)
	for idle.Err() == nil {
		if topic.Partitions == nil || c.cfg.Clock.Elapsed()-described >= describeEvery {
			ctx, cancel := context.WithTimeout(idle, c.cfg.LeaseFor)
			t, err := c.source.Describe(ctx)
			cancel()
			switch {
			case err == nil:
				topic, described = t, c.cfg.Clock.Elapsed()
				wait.Reset()
			case idle.Err() != nil:
				return nil
			case topic.Partitions == nil && errors.Is(err, ErrRefused):
				return fmt.Errorf("describe topic: %w", err)
			default:
				c.observe(Observation{Kind: KindFailed, Err: fmt.Errorf("describe topic: %w", err)})
				if topic.Partitions == nil {
					_ = c.cfg.Clock.Sleep(idle, wait.Next())
					continue
				}
				described = c.cfg.Clock.Elapsed()
			}
		}
		if err := c.assign(work, idle, topic); err != nil && idle.Err() == nil {
			c.observe(Observation{Kind: KindFailed, Err: err})
		}
		_ = c.cfg.Clock.Sleep(idle, c.cfg.AssignEvery)
	}
	return nil
}

// describeEvery is how often the topic is asked for partitions it has gained.
const describeEvery = time.Minute

// assign takes the first partition that yields, of those that are free.
func (c *Consumer) assign(work, idle context.Context, topic Topic) error {
	free := c.wanted(topic)
	if len(free) == 0 && c.balancer == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(idle, c.cfg.LeaseFor/3)
	listed, err := c.leases.List(ctx, topic.Group)
	cancel()
	if err != nil {
		return fmt.Errorf("list leases: %w", err)
	}
	c.observe(Observation{Kind: KindListed})
	if c.balancer != nil {
		if short, err := c.balancer.balance(work, topic, listed); err != nil || !short {
			return err
		}
	}
	live := map[string]bool{}
	for _, l := range listed {
		live[l.Partition] = l.Live() && l.Owner != c.cfg.Owner
	}
	free = slices.DeleteFunc(free, func(p string) bool { return live[p] })
	c.rand.Shuffle(len(free), func(i, j int) { free[i], free[j] = free[j], free[i] })
	for _, partition := range free {
		if idle.Err() != nil {
			return nil
		}
		t, err := c.acquire(work, topic, partition)
		if errors.Is(err, driver.ErrHeld) {
			continue
		}
		if err != nil {
			return fmt.Errorf("acquire lease of partition %s: %w", partition, err)
		}
		c.assignments.Go(func() {
			t.end(c.delivery.deliver(t))
		})
		return nil
	}
	return nil
}

// wanted lists the partitions to try for, none if enough are held.
func (c *Consumer) wanted(topic Topic) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cfg.Partitions > 0 && len(c.held) >= int(c.cfg.Partitions) {
		return nil
	}
	now := c.cfg.Clock.Elapsed()
	var list []string
	for _, p := range topic.Partitions {
		if c.held[p] == nil && c.takeover[p].until <= now {
			list = append(list, p)
		}
	}
	return list
}

// acquire takes a partition's lease and begins its tenure.
func (c *Consumer) acquire(work context.Context, topic Topic, partition string) (*assignment, error) {
	c.mu.Lock()
	above := c.takeover[partition].epoch
	c.mu.Unlock()
	// The deadline counts from before the request: whatever the store's clock
	// says, no other owner can have the partition before it has passed here.
	until := deadlineIn(c.cfg.Clock, c.cfg.LeaseFor)
	ctx, cancel := context.WithTimeout(work, c.cfg.LeaseFor)
	defer cancel()
	lease, err := c.leases.Acquire(ctx, topic.Group, partition, c.cfg.Owner, c.cfg.LeaseFor, above)
	if err != nil {
		return nil, err
	}
	t := newAssignment(c, work, topic, lease, until)
	c.mu.Lock()
	c.held[partition] = t
	c.mu.Unlock()
	return t, nil
}

// learn notes why a tenure ended, for the next one of the partition.
func (c *Consumer) assignmentEnded(lease Lease, cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.held, lease.Partition)
	f := c.takeover[lease.Partition]
	var fenced *FencedError
	var stolen *StolenError
	switch {
	case errors.As(cause, &fenced):
		f.epoch = max(f.epoch, fenced.Epoch)
	case errors.As(cause, &stolen):
		// Two consumers that don't share a lease store would take the
		// partition from each other for ever; the rest keeps that slow.
		f.epoch = max(f.epoch, stolen.Epoch, lease.Epoch)
		f.rest = min(max(2*f.rest, c.cfg.AssignEvery), c.cfg.RetryMax)
		f.until = c.cfg.Clock.Elapsed() + f.rest
	default:
		f.rest, f.until = 0, 0
	}
	c.takeover[lease.Partition] = f
}

// Stop ends Run in good order: no partition is taken any more, batches in
// progress are finished and committed, leases are given back. It returns when
// Run has let go of everything. If ctx ends first, the batches still in
// progress are cancelled, and Stop returns ctx's error, at the latest a second
// later. It may be called more than once, and before Run.
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
	case <-grace.Done():
	}
	return ctx.Err()
}

// Redrive runs the retries that are due on partitions that nobody owns,
// taking each such partition's lease for the time; partitions that are owned
// are their owners' business. It returns how many dead letters were applied
// and how many failed again. It must not be called on a consumer that runs.
func (c *Consumer) Redrive(ctx context.Context) (applied, failed int, err error) {
	topic, err := c.source.Describe(ctx)
	if err != nil {
		return 0, 0, fmt.Errorf("describe topic: %w", err)
	}
	work, cancel := workContext(ctx)
	defer cancel(ErrStopped)
	for _, partition := range topic.Partitions {
		due, err := c.delivery.redriveDue(ctx, topic.Group, partition)
		if err != nil {
			return applied, failed, fmt.Errorf("look for retries: %w", err)
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

// observe stamps o and passes it on.
func (c *Consumer) observe(o Observation) {
	if c.cfg.Observer == nil {
		return
	}
	o.Time, o.Owner = c.cfg.Clock.Wall(), c.cfg.Owner
	_ = guard(func() error { c.cfg.Observer.Observe(o); return nil })
}

package group

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine"
	"github.com/sluice-go/sluice/internal/engine/partition"
)

// takeoverState is what a consumer has learned about a lease, of a partition or of a
// membership, for its next acquisition.
type takeoverState struct {
	epochFloor int64         // the next lease's epoch must be above it
	rest       time.Duration // how long to leave the lease alone after a failure
	restEnd    time.Duration // the end of the rest, by Clock.Elapsed
	own        ownLease
}

// acquirePartitions requests at most AssignBurst partitions every AssignEvery while the
// consumer holds fewer than it wants, until idle ends.
func (c *Member) acquirePartitions(work, idle context.Context) error {
	var topic topicWatch
	var listing listingPace
	wait := c.cfg.Backoff(c.rand)
	for idle.Err() == nil {
		err := c.describe(idle, &topic)
		switch {
		case idle.Err() != nil:
			return nil
		case err == nil:
			wait.Reset()
		case topic.Partitions == nil && errors.Is(err, driver.ErrRefused):
			return err
		default:
			c.observe(driver.Observation{Kind: driver.KindFailed, Err: err})
			if topic.Partitions == nil {
				_ = c.cfg.Clock.Sleep(idle, wait.Next())
				continue
			}
		}
		if listing.Due(c.cfg.Clock.Elapsed()) {
			settled, listed, err := c.assign(work, idle, topic.Topic)
			if err != nil && idle.Err() == nil {
				c.observe(driver.Observation{Kind: driver.KindFailed, Err: err})
			}
			listing.next(c, settled, listed)
		}
		_ = c.cfg.Clock.Sleep(idle, c.cfg.AssignEvery)
	}
	return nil
}

// topicWatch is the topic as it was last described.
type topicWatch struct {
	driver.Topic
	asked   time.Duration            // by Clock.Elapsed
	every   time.Duration            // after which it is asked for again
	missing map[string]time.Duration // partitions that are held and not in the topic: since when
}

// describeEvery is how often the topic is checked for partitions that were added or
// removed.
const describeEvery = time.Minute

// describeAgain is when the topic is described again after that has failed.
const describeAgain = 10 * time.Second

// describe describes the topic again if that is due.
func (c *Member) describe(idle context.Context, topic *topicWatch) error {
	if topic.Partitions != nil && c.cfg.Clock.Elapsed()-topic.asked < topic.every {
		return nil
	}
	ctx, cancel := context.WithTimeout(idle, c.cfg.LeaseFor/3)
	defer cancel()
	described, err := c.describeTopic(ctx)
	topic.asked, topic.every = c.cfg.Clock.Elapsed(), describeEvery
	if driver.BudgetOf(c.source) > 0 {
		// Processes that were started together do not ask together.
		topic.every += time.Duration(c.rand.Int64N(int64(describeEvery / 2)))
		if topic.Partitions == nil {
			topic.every -= time.Duration(c.rand.Int64N(int64(describeEvery)))
		}
	}
	if err != nil {
		topic.every = describeAgain
		return fmt.Errorf("describe topic: %w", err)
	}
	topic.Topic = described
	c.mu.Lock()
	c.described = described.Group
	c.mu.Unlock()
	c.reportFew(described)
	c.reopenRecreated(described)
	c.releaseMissing(topic)
	return nil
}

// describeTopic asks the log for the topic. If the log ignores case in names, the group is as the
// stores spell it.
func (c *Member) describeTopic(ctx context.Context) (topic driver.Topic, err error) {
	err = engine.CallDriver(func() (err error) { topic, err = c.source.Describe(ctx); return err })
	if err != nil || !topic.AnyCase {
		return topic, err
	}
	c.mu.Lock()
	group := c.group
	c.mu.Unlock()
	if group == (driver.Group{}) {
		lister, _ := c.delivery.Store().(driver.GroupLister)
		err := engine.CallDriver(func() (err error) {
			group, err = driver.Spelling(ctx, topic.Group, c.leases, lister)
			return err
		})
		if err != nil {
			return driver.Topic{}, err
		}
		c.mu.Lock()
		c.group = group
		c.mu.Unlock()
	}
	topic.Group = group
	return topic, nil
}

// reopenRecreated has the log opened again where a reader is of another incarnation of the
// topic. Mostly the broker ends such a reader. One that is silent would stay.
func (c *Member) reopenRecreated(topic driver.Topic) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range c.held {
		a.ReopenOther(topic.Incarnation)
	}
}

// releaseMissing releases the partitions that the topic has not had for describeEvery.
// One description alone may be wrong.
func (c *Member) releaseMissing(topic *topicWatch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	missing := map[string]time.Duration{}
	for p, a := range c.held {
		if slices.Contains(topic.Partitions, p) {
			continue
		}
		since, known := topic.missing[p]
		if !known {
			since = topic.asked
		}
		missing[p] = since
		if topic.asked-since >= describeEvery {
			a.Cancel(fmt.Errorf("partition %s is no longer in topic %s: it is released", p, topic.Topic.Topic))
		}
	}
	topic.missing = missing
}

// listingPace decides how often the leases are listed. Each listing is as long as the group
// has partitions and processes, and each process lists. So where there is nothing to acquire
// or to hand over, long listings are made less often.
type listingPace struct {
	due time.Duration // when the leases are to be listed, by Clock.Elapsed
}

const (
	// listedFreely is how many leases are listed every AssignEvery.
	listedFreely = 256
	// listedSlowest is how many times AssignEvery is between two listings at most.
	listedSlowest = 4
)

func (l *listingPace) Due(now time.Duration) bool { return now >= l.due }

// next sets the time of the next listing. settled says that nothing was to be done after this
// one. The moment at which a lease of another owner expires is not missed.
func (l *listingPace) next(c *Member, settled bool, listed []driver.LeaseInfo) {
	l.due = 0
	if !settled {
		return
	}
	every := c.cfg.AssignEvery
	wait := min(every*time.Duration(len(listed))/listedFreely, listedSlowest*every, c.cfg.RenewEvery/2)
	for i := range listed {
		if lease := &listed[i]; lease.Live() && lease.Owner != c.cfg.Owner {
			wait = min(wait, lease.Remaining)
		}
	}
	if wait > every {
		// Asleep for AssignEvery anyway. Half of that makes up for a sleep that is not exact.
		l.due = c.cfg.Clock.Elapsed() + wait - every/2
	}
}

// assign acquires up to AssignBurst of the free partitions. It takes AssignEvery at most,
// beside the time to list the leases. It returns what was listed, and whether that shows
// nothing to do: no partition is free, and the balanced consumers have their shares.
func (c *Member) assign(work, idle context.Context, topic driver.Topic) (settled bool, listed []driver.LeaseInfo, err error) {
	free, missing := c.wanted(topic)
	if len(free) == 0 && c.balancer == nil {
		c.standby.waits, c.standby.waited = false, false
		return false, nil, nil
	}
	ctx, cancel := context.WithTimeout(idle, c.cfg.LeaseFor/3)
	err = engine.CallDriver(func() (err error) { listed, err = c.leases.List(ctx, topic.Group); return err })
	cancel()
	if err != nil {
		return false, nil, fmt.Errorf("list leases: %w", err)
	}
	c.observe(driver.Observation{Kind: driver.KindListed})
	c.checkOwner(listed)
	c.reportWaiting(topic, free, listed)
	if c.balancer != nil {
		if missing, err = c.balancer.balance(work, topic, listed); err != nil || missing < 0 {
			return false, listed, err
		}
	}
	live := map[string]bool{}
	for _, l := range listed {
		live[l.Partition] = l.Live() && l.Owner != c.cfg.Owner
	}
	if missing == 0 { // balanced: the share is held
		return c.balancer.settled(topic, listed), listed, nil
	}
	free = slices.DeleteFunc(free, func(p string) bool { return live[p] })
	c.rand.Shuffle(len(free), func(i, j int) { free[i], free[j] = free[j], free[i] })
	if len(free) == 0 {
		// A balanced consumer that has too few is about to be given some. A partition that
		// rests after a failure may have no owner.
		return c.balancer == nil && allOwned(topic, listed), listed, nil
	}
	began := c.cfg.Clock.Elapsed()
	quota := min(missing, c.burst(topic))
	for _, partition := range free {
		left := c.cfg.AssignEvery - (c.cfg.Clock.Elapsed() - began)
		if quota <= 0 || idle.Err() != nil || left <= 0 {
			break
		}
		if refused := c.request(work, idle, topic, partition, left); !refused {
			quota--
		}
	}
	return false, listed, nil
}

// allOwned reports whether every partition of the topic has an owner.
func allOwned(topic driver.Topic, listed []driver.LeaseInfo) bool {
	owned := make(map[string]bool, len(listed))
	for i := range listed {
		owned[listed[i].Partition] = listed[i].Live()
	}
	return !slices.ContainsFunc(topic.Partitions, func(p string) bool { return !owned[p] })
}

// burst returns how many partitions an attempt acquires at most.
func (c *Member) burst(topic driver.Topic) int {
	attempts := 64 // that acquire all, so that other processes get some
	if _, alone := c.leases.(*ownLeases); alone {
		attempts = 1
	}
	return cmp.Or(c.cfg.AssignBurst, max(1, len(topic.Partitions)/attempts))
}

// wanted returns the partitions to try to acquire, and how many of them at most. There
// are none if enough are held or requested.
func (c *Member) wanted(topic driver.Topic) (list []string, atMost int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	atMost = len(topic.Partitions)
	if c.cfg.Partitions > 0 {
		atMost = int(c.cfg.Partitions) - len(c.held) - len(c.requested)
	}
	if atMost <= 0 {
		return nil, 0
	}
	now := c.cfg.Clock.Elapsed()
	for _, p := range c.mayTake(topic) {
		if c.held[p] == nil && !c.requested[p] && c.takeover[p].restEnd <= now {
			list = append(list, p)
		}
	}
	return list, atMost
}

// request requests a partition's lease, on a goroutine that delivers the partition's
// events once the lease is acquired. It waits for the answer as long as patience, and
// reports whether the lease was refused. While the
// answer is awaited, other partitions are requested in later rounds, so that one lease
// that does not answer delays no other.
func (c *Member) request(work, idle context.Context, topic driver.Topic, partition string, patience time.Duration) bool {
	if c.stopping.Err() != nil {
		return false // idle ends a moment later, perhaps after a partition was released
	}
	c.mu.Lock()
	c.requested[partition] = true
	c.mu.Unlock()
	var refused atomic.Bool
	answer, answered := context.WithCancel(idle)
	c.assignments.Go(func() {
		defer answered()
		a, err := c.acquire(work, topic, partition)
		if err == nil {
			answered()
			a.Deliver()
			return
		}
		if !errors.Is(err, driver.ErrHeld) && idle.Err() == nil {
			c.observe(driver.Observation{Kind: driver.KindFailed, Err: fmt.Errorf("acquire lease of partition %s: %w", partition, err)})
		}
		refused.Store(true)
	})
	_ = c.cfg.Clock.Sleep(answer, patience)
	return refused.Load()
}

// acquire acquires a partition's lease and starts its assignment.
func (c *Member) acquire(work context.Context, topic driver.Topic, id string) (*partition.Assignment, error) {
	// The deadline counts from before the request. So it passes here before the
	// lease can expire in the store, whatever the store's clock says.
	until := engine.DeadlineIn(c.cfg.Clock, c.cfg.LeaseFor)
	lease, err := c.acquireLease(work, topic.Group, id)
	var a *partition.Assignment
	if err == nil {
		a = partition.Start(c.host, work, topic, lease, until)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.requested, id)
	if err == nil {
		c.held[id] = a
	}
	return a, err
}

// acquireLease acquires the lease of a partition or of a membership. After a failure
// that name rests, so that one lease that does not answer does not take the turn of
// others again and again.
func (c *Member) acquireLease(ctx context.Context, group driver.Group, name string) (driver.Lease, error) {
	c.mu.Lock()
	above := c.takeover[name].epochFloor
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, c.cfg.LeaseFor/3)
	defer cancel()
	var lease driver.Lease
	err := engine.CallDriver(func() (err error) {
		lease, err = c.leases.Acquire(ctx, group, name, c.cfg.Owner, c.cfg.LeaseFor, above)
		return err
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.takeover[name]
	switch {
	case err == nil:
		t.own.acquired(lease.Epoch)
	case !errors.Is(err, driver.ErrHeld):
		t.extendRest(c)
		t.own.unknown(c)
	}
	c.takeover[name] = t
	return lease, err
}

// extendRest makes the lease rest, for longer than the last time.
func (t *takeoverState) extendRest(c *Member) {
	t.rest = min(max(2*t.rest, c.cfg.AssignEvery), c.cfg.RetryMax)
	t.restEnd = c.cfg.Clock.Elapsed() + t.rest
}

// resting reports whether a lease rests after a failure.
func (c *Member) resting(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.takeover[name].restEnd > c.cfg.Clock.Elapsed()
}

// assignmentEnded notes why an assignment ended, for the next one of the partition.
func (c *Member) assignmentEnded(lease driver.Lease, cause error) {
	var fenced *driver.FencedError
	var stolen *driver.StolenError
	_, panicked := errors.AsType[*driver.PanicError](cause)
	c.mu.Lock()
	delete(c.held, lease.Partition)
	t := c.takeover[lease.Partition]
	switch {
	case errors.As(cause, &fenced):
		t.epochFloor = max(t.epochFloor, fenced.Epoch)
	case errors.As(cause, &stolen):
		// Two consumers that do not share a lease store steal the partition from
		// each other again and again. The growing rest slows that down.
		t.epochFloor = max(t.epochFloor, stolen.Epoch, lease.Epoch)
		t.extendRest(c)
	case panicked:
		t.extendRest(c)
	default:
		t.rest, t.restEnd = 0, 0
	}
	c.takeover[lease.Partition] = t
	c.mu.Unlock()
	if fenced != nil && fenced.Owner == c.cfg.Owner && fenced.Epoch > lease.Epoch {
		c.reportSharedOwner("checkpoint", lease.Partition, fenced.Epoch)
	}
}

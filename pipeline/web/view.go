package web

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/health"
	"github.com/sluice-go/sluice/internal/partitionstate"
)

const (
	// refreshEvery is the time between two reads of the stores while a browser is
	// connected, and lookFor how long one may take.
	refreshEvery   = 2 * time.Second
	refreshTimeout = 5 * time.Second
	// describeEvery is how often the topic is asked for its partitions.
	describeEvery = time.Minute
	// boundsAtOnce is how many partitions' ends are read in one refresh, and
	// boundsFor how long such a value, or the consumer's own report, counts.
	boundsAtOnce, boundsWorkers = 64, 8
	boundsMaxAge                = 10 * time.Second
	// unwatchedAfter is how long after the last request refreshing stops.
	unwatchedAfter = 10 * time.Second
)

// view is what the stores report of a pipeline, and its newest snapshot. The
// stores are not read while no browser is connected.
type view struct {
	wake chan struct{} // a browser has connected

	mu       sync.Mutex
	streams  int
	asked    time.Time // of the last request, or when the last browser disconnected
	known    known
	reported []health.Warning // the newest
	snapshot *snapshot
	next     chan struct{} // closed when there is a newer snapshot
}

// leaseStore is the lease store's name on the page.
const leaseStore = "lease store"

// known is what was read from the stores. It is immutable.
type known struct {
	firstRead   time.Time // of the first read; zero before it
	topic       sluice.Topic
	described   time.Time
	leases      map[string]leased
	progress    map[string]sluice.Checkpoint
	bounds      map[string]bounds
	deadLetters deadLetterCount
	failed      map[string]string // errors, by what was read
}

type leased struct {
	driver.LeaseInfo
	expires time.Time
}

type bounds struct {
	driver.Bounds
	time time.Time
}

type deadLetterCount struct {
	dead, retry  int
	perPartition map[string]int // waiting, by partition
}

func (v *view) init() {
	v.wake, v.next = make(chan struct{}, 1), make(chan struct{})
}

// watch counts a connected browser, until the returned function is called.
func (v *view) watch() (done func()) {
	v.mu.Lock()
	v.streams++
	v.mu.Unlock()
	v.ask()
	return func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.streams--
		v.asked = time.Now()
	}
}

// ask records the time of a request.
func (v *view) ask() {
	v.mu.Lock()
	v.asked = time.Now()
	v.mu.Unlock()
	v.refreshNow()
}

// refreshNow makes the next refresh start now.
func (v *view) refreshNow() {
	select {
	case v.wake <- struct{}{}:
	default:
	}
}

func (v *view) watched() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.streams > 0 || time.Since(v.asked) < unwatchedAfter
}

// warn replaces the warnings.
func (v *view) warn(list []health.Warning) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.reported = slices.Clone(list)
}

func (v *view) warnings() []health.Warning {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.reported
}

func (v *view) newest() known {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.known
}

// refresh reads the stores repeatedly until ctx ends.
func (v *view) refresh(ctx context.Context, p *Pipeline) {
	for ctx.Err() == nil {
		if v.watched() {
			k := v.newest()
			k = k.refresh(ctx, p)
			v.mu.Lock()
			v.known = k
			v.mu.Unlock()
		}
		again := time.NewTimer(refreshEvery)
		select {
		case <-again.C:
		case <-v.wake:
			again.Stop()
		case <-ctx.Done():
			again.Stop()
		}
	}
}

// refresh reads all stores at once and returns what is known then. If a store
// does not answer, what was read before stays.
func (k known) refresh(ctx context.Context, p *Pipeline) known {
	ctx, cancel := context.WithTimeout(ctx, refreshTimeout)
	defer cancel()
	var mu sync.Mutex
	failed := map[string]string{}
	var work sync.WaitGroup
	ask := func(what string, fn func() error) {
		work.Go(func() {
			if err := fn(); err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed[what] = reason(err)
			}
		})
	}
	next := k
	ask(leaseStore, func() error {
		list, err := p.Leases.List(ctx, p.Group)
		if err != nil {
			return err
		}
		next.leases = make(map[string]leased, len(list))
		now := time.Now()
		for _, l := range list {
			next.leases[l.Partition] = leased{l, now.Add(l.Remaining)}
		}
		return nil
	})
	if p.Checkpoints != nil {
		ask("checkpoint store", func() error {
			list, err := p.Checkpoints.Read(ctx, p.Group)
			if err != nil {
				return err
			}
			next.progress = make(map[string]sluice.Checkpoint, len(list))
			for _, c := range list {
				next.progress[c.Partition] = c
			}
			return nil
		})
	}
	if p.DeadLetters != nil {
		ask("dead letters", func() (err error) {
			c, err := count(ctx, p)
			if err == nil {
				next.deadLetters = c
			}
			return err
		})
	}
	if time.Since(k.described) >= describeEvery {
		ask("log", func() error {
			topic, err := p.Source.Describe(ctx)
			if err == nil {
				next.topic, next.described = topic, time.Now()
			}
			return err
		})
	}
	work.Wait()
	next.bounds = k.ends(ctx, p, next.topic)
	now := time.Now()
	if next.firstRead.IsZero() {
		next.firstRead = now
	}
	next.failed = failed
	return next
}

func count(ctx context.Context, p *Pipeline) (deadLetterCount, error) {
	counts, err := p.DeadLetters.Count(ctx, p.Group, sluice.DeadLetterFilter{
		Status: []sluice.DeadLetterStatus{sluice.StatusDead, sluice.StatusRetry},
	})
	c := deadLetterCount{perPartition: map[string]int{}}
	for _, n := range counts {
		if n.Status == sluice.StatusRetry {
			c.retry += n.Count
		} else {
			c.dead += n.Count
		}
		c.perPartition[n.Partition] += n.Count
	}
	return c, err
}

// ends reads the ends of some partitions for which neither the log nor the
// consumer here has reported lately, starting with those read longest ago. For a
// paused partition the consumer reports nothing.
func (k *known) ends(ctx context.Context, p *Pipeline, topic sluice.Topic) map[string]bounds {
	next := maps.Clone(k.bounds)
	if next == nil {
		next = map[string]bounds{}
	}
	var here map[string]partitionstate.Partition
	if p.Meter != nil {
		here = p.Meter.stats().Partitions
	}
	paused := p.paused()
	now := time.Now()
	var stale []string
	for _, id := range topic.Partitions {
		h, held := here[id]
		if !paused[id] && (held && now.Sub(h.LagAt) < boundsMaxAge || now.Sub(next[id].time) < boundsMaxAge) {
			continue
		}
		stale = append(stale, id)
	}
	oldestFirst(stale, func(id string) time.Time { return next[id].time })
	stale = stale[:min(len(stale), endsAtOnce(driver.BudgetOf(p.Source), len(topic.Partitions)))]
	var mu sync.Mutex
	var work sync.WaitGroup
	ids := make(chan string, len(stale))
	for _, id := range stale {
		ids <- id
	}
	close(ids)
	for range min(len(stale), boundsWorkers) {
		work.Go(func() {
			for id := range ids {
				b, err := p.Source.Bounds(ctx, id)
				if err != nil {
					continue // Describe and the consumer report errors of the log
				}
				mu.Lock()
				next[id] = bounds{b, time.Now()}
				mu.Unlock()
			}
		})
	}
	work.Wait()
	return next
}

// endsAtOnce returns how many partitions' ends are read in one refresh. Where the log limits such
// requests, that is what the consumers leave of the limit, and at least one: they ask for each
// partition every 5 s, for at most seven eighths of the limit.
func endsAtOnce(budget float64, partitions int) int {
	if budget <= 0 {
		return boundsAtOnce
	}
	left := budget - min(budget*7/8, float64(partitions)/5)
	return max(1, min(boundsAtOnce, int(left*refreshEvery.Seconds())))
}

// paused returns the partitions that are paused in this process.
func (p *Pipeline) paused() map[string]bool {
	if p.Pausable == nil {
		return nil
	}
	set := map[string]bool{}
	for _, id := range p.Pausable.Paused() {
		set[id] = true
	}
	return set
}

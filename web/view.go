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
	// refreshEvery is the time between two looks at the stores while somebody
	// watches, and lookFor how long one may take.
	refreshEvery   = 2 * time.Second
	refreshTimeout = 5 * time.Second
	// describeEvery is how often the topic is asked for its partitions.
	describeEvery = time.Minute
	// boundsAtOnce is how many partitions' ends are asked for in one look, and
	// boundsFor how long an answer, or the consumer's own word, counts.
	boundsAtOnce, boundsWorkers = 64, 8
	boundsMaxAge                = 10 * time.Second
	// deadLettersCounted is how many dead letters are counted, and then it is "more".
	deadLettersCounted = 1000
	// unwatchedAfter is when nobody watches any more.
	unwatchedAfter = 10 * time.Second
)

// view is what is known of a pipeline beyond this process, and the newest
// frame of it. Nothing is asked while nobody watches.
type view struct {
	wake chan struct{} // somebody has begun to watch

	mu       sync.Mutex
	streams  int
	asked    time.Time // when somebody last did, or left
	known    known
	reported []health.Warning // the newest
	snapshot *snapshot
	next     chan struct{} // closed when there is a newer frame
}

// leaseStore is what people know it by.
const leaseStore = "lease store"

// known is what the stores have said. What is in it is not changed any more.
type known struct {
	at          time.Time // of the first look; zero before it
	topic       sluice.Topic
	described   time.Time
	leases      map[string]leased
	progress    map[string]sluice.Checkpoint
	bounds      map[string]bounds
	deadLetters deadLetterCount
	failed      map[string]string // by what was asked
}

type leased struct {
	driver.LeaseInfo
	until time.Time
}

type bounds struct {
	driver.Bounds
	at time.Time
}

type deadLetterCount struct {
	dead, retry int
	more        bool
	by          map[string]int // waiting, by partition
}

func (v *view) init() {
	v.wake, v.next = make(chan struct{}, 1), make(chan struct{})
}

// watch notes that somebody watches, until the returned function is called.
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

// ask notes that somebody has asked.
func (v *view) ask() {
	v.mu.Lock()
	v.asked = time.Now()
	v.mu.Unlock()
	v.refreshNow()
}

// refreshNow has the stores looked at now.
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

// warn takes all warnings that there are.
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

// refresh looks at the stores again and again until ctx ends.
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

// refresh asks all stores at once and returns what is known then. What does not
// answer leaves what was known before.
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
	if next.at.IsZero() {
		next.at = now
	}
	next.failed = failed
	return next
}

func count(ctx context.Context, p *Pipeline) (deadLetterCount, error) {
	list, err := p.DeadLetters.List(ctx, p.Group, sluice.DeadLetterFilter{
		Status: []sluice.DeadLetterStatus{sluice.StatusDead, sluice.StatusRedrive}, Limit: deadLettersCounted + 1,
	})
	c := deadLetterCount{by: map[string]int{}, more: len(list) > deadLettersCounted}
	for _, d := range list[:min(len(list), deadLettersCounted)] {
		if d.Status == sluice.StatusRedrive {
			c.retry++
		} else {
			c.dead++
		}
		c.by[d.Event.Partition]++
	}
	return c, err
}

// ends asks for the ends of some partitions of which neither the log nor the
// consumer here has reported lately, those first that were asked longest ago. Of
// a paused partition the consumer reports nothing.
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
		if !paused[id] && (held && now.Sub(h.LagAt) < boundsMaxAge || now.Sub(next[id].at) < boundsMaxAge) {
			continue
		}
		stale = append(stale, id)
	}
	oldestFirst(stale, func(id string) time.Time { return next[id].at })
	stale = stale[:min(len(stale), boundsAtOnce)]
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

// paused are the partitions that are paused here.
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

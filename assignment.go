package sluice

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice/driver"
)

// tenure is one partition's time with this consumer, from the taking of the
// lease to its loss or return. A goroutine keeps the lease; the delivery runs
// on the goroutine that began the tenure.
type tenure struct {
	c     *Consumer
	topic Topic
	lease Lease
	rand  *rand.Rand // of the delivery's goroutine

	// work ends when the lease is lost or the consumer is cancelled, with the
	// cause: whatever could have an effect runs under it. idle ends also when
	// the consumer is told to stop, or the partition is to be handed over:
	// waiting runs under it.
	work    context.Context
	idle    context.Context
	cancel  context.CancelCauseFunc
	stop    context.CancelFunc // ends idle: the partition is to be given back in good order
	deaf    func() bool        // hears no more of the consumer's stop
	taken   time.Duration      // when, by Clock.Elapsed
	keepers sync.WaitGroup
	hooks   hookQueue // for hooks that must not hold up the keeper

	// For the lag: what the log holds, nil until it was asked; the sequence
	// numbers below which all is done, and up to which events were read.
	bounds     atomic.Pointer[driver.Bounds]
	done, read atomic.Int64
}

// begin starts a tenure whose lease was asked for LeaseFor before until.
func begin(c *Consumer, work context.Context, topic Topic, lease Lease, until deadline) *tenure {
	h := fnv.New64a()
	fmt.Fprint(h, lease.Partition, lease.Epoch)
	t := &tenure{c: c, topic: topic, lease: lease, rand: rand.New(rand.NewPCG(c.cfg.Seed, h.Sum64())), taken: c.cfg.Clock.Elapsed()}
	t.done.Store(driver.Unset.Sequence)
	t.read.Store(driver.Unset.Sequence)
	t.work, t.cancel = context.WithCancelCause(work)
	t.idle, t.stop = context.WithCancel(t.work)
	t.deaf = context.AfterFunc(c.stopping, t.stop)
	t.observe(Observation{Kind: KindAcquired})
	t.keepers.Go(func() { t.keep(until) })
	t.keepers.Go(t.watchLag)
	return t
}

// end gives the partition up after the delivery has come to its end.
func (t *tenure) end(cause error) {
	if t.work.Err() != nil {
		cause = context.Cause(t.work)
	}
	t.cancel(ErrStopped)
	t.deaf()
	t.keepers.Wait()
	if errors.Is(cause, ErrStopped) {
		cause = nil
	}
	if cause != nil {
		t.observe(Observation{Kind: KindLost, Err: cause})
	}
	// Given back also when it was lost: a lease that expired here but not
	// there would keep a successor waiting.
	ctx, cancel := t.parting()
	err := t.c.leases.Release(ctx, t.lease)
	cancel()
	if err == nil {
		t.observe(Observation{Kind: KindReleased})
	} else {
		t.failed(fmt.Errorf("release lease: %w", err))
	}
	if hook := t.c.cfg.Hooks.Released; hook != nil {
		ctx := context.WithoutCancel(t.work)
		t.hook("released", func() error { return hook(ctx, t.lease, cause) })
	}
	t.hooks.close()
	t.c.learn(t.lease, cause)
}

// keep renews the lease when it is RenewEvery old, and ends the tenure's work
// at its deadline, or as soon as the store says that it is lost.
func (t *tenure) keep(until deadline) {
	cfg := &t.c.cfg
	tick := min(time.Second, cfg.RenewEvery)
	due := deadline{wall: until.wall.Add(cfg.RenewEvery - cfg.LeaseFor), elapsed: until.elapsed + cfg.RenewEvery - cfg.LeaseFor}
	for {
		left := until.left(cfg.Clock)
		if left <= 0 {
			t.cancel(fmt.Errorf("partition %s: not renewed for %v: %w", t.lease.Partition, cfg.LeaseFor, ErrLeaseExpired))
			return
		}
		if due.left(cfg.Clock) <= 0 {
			next := deadlineIn(cfg.Clock, cfg.LeaseFor)
			// A third of the lease: a request that hangs leaves time for another.
			ctx, cancel := context.WithTimeout(t.work, min(left, cfg.LeaseFor/3))
			began := cfg.Clock.Elapsed()
			err := t.c.leases.Renew(ctx, t.lease, cfg.LeaseFor)
			cancel()
			switch {
			case t.work.Err() != nil:
				return
			case err == nil:
				until = next
				due = deadline{wall: next.wall.Add(cfg.RenewEvery - cfg.LeaseFor), elapsed: next.elapsed + cfg.RenewEvery - cfg.LeaseFor}
				t.observe(Observation{Kind: KindRenewed, Duration: cfg.Clock.Elapsed() - began})
				if hook := cfg.Hooks.Renewed; hook != nil {
					t.hooks.push(func() {
						t.hook("renewed", func() error { return hook(t.work, t.lease) })
					})
				}
				continue
			case errors.Is(err, ErrFenced):
				t.cancel(fmt.Errorf("renew lease: %w", err))
				return
			default:
				t.failed(fmt.Errorf("renew lease: %w", err))
			}
		}
		if cfg.Clock.Sleep(t.work, min(tick, max(until.left(cfg.Clock), 0))) != nil {
			return
		}
	}
}

// lagEvery is how often the log is asked for a partition's end.
const lagEvery = 5 * time.Second

// watchLag keeps the partition's bounds, which the lag is computed from.
func (t *tenure) watchLag() {
	if t.c.cfg.Observer == nil {
		return
	}
	for {
		if b, err := t.c.source.Bounds(t.idle, t.lease.Partition); err == nil {
			t.bounds.Store(&b)
		}
		if t.c.cfg.Clock.Sleep(t.idle, lagEvery) != nil {
			return
		}
	}
}

// note keeps what the lag is computed from.
func (t *tenure) note(o *Observation) {
	switch at := o.To.Sequence; o.Kind {
	case KindClaimed:
		t.done.Store(at)
	case KindOpened:
		// A first start has no checkpoint when it is claimed.
		t.done.CompareAndSwap(driver.Unset.Sequence, at)
		t.read.Store(at)
	case KindCommitted, KindWritten:
		t.done.Store(max(at, t.done.Load()))
	}
}

// behind is the lag at a position: how many events the log holds behind it, -1
// if the log has not been asked. Events that were read since it was asked count.
func (t *tenure) behind(p Position) int64 {
	b := t.bounds.Load()
	if b == nil {
		return -1
	}
	known := *b
	known.Last.Sequence = max(known.Last.Sequence, t.read.Load())
	return known.Lag(p)
}

// fetched is the lag after events up to a sequence number were read: none of
// them is done yet.
func (t *tenure) fetched(last int64) int64 {
	t.read.Store(last)
	return t.behind(Position{Sequence: t.done.Load()})
}

// brief bounds a request that should be quick, so that one that hangs is told.
func (t *tenure) brief() (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.idle, t.c.cfg.LeaseFor)
}

// parting bounds what is still to be done after the work has ended.
func (t *tenure) parting() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(t.work), min(t.c.cfg.RenewEvery, 5*time.Second))
}

// pause waits, and returns an error if the tenure ends or is to stop.
func (t *tenure) pause(d time.Duration) error {
	if t.c.cfg.Clock.Sleep(t.idle, d) != nil {
		return t.ended()
	}
	return nil
}

// ended is why the tenure must come to its end: the loss's cause or ErrStopped.
func (t *tenure) ended() error {
	if t.work.Err() != nil {
		return context.Cause(t.work)
	}
	return ErrStopped
}

func (t *tenure) observe(o Observation) {
	o.Partition, o.Epoch = t.lease.Partition, t.lease.Epoch
	t.note(&o)
	t.c.observe(o)
	hook := t.c.cfg.Hooks.Error
	if hook == nil {
		return
	}
	switch o.Kind {
	case KindFailed, KindLost, KindFenced, KindUnknown, KindStopped:
		t.hooks.push(func() {
			t.hook("error", func() error { return hook(t.work, t.lease, o.Err) })
		})
	}
}

func (t *tenure) failed(err error) { t.observe(Observation{Kind: KindFailed, Err: err}) }

// hook calls a hook; its error or panic is observed and changes nothing.
func (t *tenure) hook(name string, fn func() error) {
	if err := guard(fn); err != nil {
		t.c.observe(Observation{Kind: KindHookFailed, Partition: t.lease.Partition, Epoch: t.lease.Epoch, Err: fmt.Errorf("%s hook: %w", name, err)})
	}
}

// hookQueue runs hooks one after the other on a goroutine of its own, which
// lives while there are any. What comes while it is full is dropped: a hook
// that hangs misses what happens meanwhile.
type hookQueue struct {
	mu      sync.Mutex
	waiting []func()
	busy    bool
	running sync.WaitGroup
}

const hookQueueLen = 64

func (q *hookQueue) push(fn func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) >= hookQueueLen {
		return
	}
	q.waiting = append(q.waiting, fn)
	if !q.busy {
		q.busy = true
		q.running.Go(q.run)
	}
}

func (q *hookQueue) run() {
	for {
		q.mu.Lock()
		if len(q.waiting) == 0 {
			q.busy = false
			q.mu.Unlock()
			return
		}
		fn := q.waiting[0]
		q.waiting = q.waiting[1:]
		q.mu.Unlock()
		fn()
	}
}

// close waits for the hooks that are queued.
func (q *hookQueue) close() { q.running.Wait() }

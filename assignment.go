package sluice

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/memory"
)

// assignment is one partition that this consumer holds, from the acquisition of
// its lease to the release or the loss of it.
//
// Four goroutines belong to it. The one that calls the delivery reads the
// partition and drives the delivery's worker (reading.go). One renews the lease.
// One asks the log for the partition's end, for the lag. One watches what the others
// do, and reports what lasts too long (stall.go). Beside them, one fetches while the
// log is read, one runs hooks while there are any, and one copies dead letters if it is
// to (copies.go).
type assignment struct {
	c       *Consumer
	topic   Topic
	lease   Lease
	rand    *rand.Rand      // of the delivery's goroutine
	process context.Context // the consumer's work

	// work ends when the lease is lost or the consumer is cancelled; its cause
	// says why. Everything that can have an effect runs under it. idle also ends
	// when the consumer is to stop or the partition is to be handed over. Waiting
	// runs under it.
	work       context.Context
	idle       context.Context
	cancel     context.CancelCauseFunc
	stop       context.CancelFunc // ends idle: the partition is to be released cleanly
	detachStop func() bool        // detaches idle from the consumer's stop
	acquired   time.Duration      // by Clock.Elapsed
	background sync.WaitGroup     // the goroutines that renew and that ask for the end
	watching   sync.WaitGroup     // the goroutine that watches for stalls
	endWatch   context.CancelFunc // ends that
	hooks      hookQueue          // for hooks that must not delay the renewal
	lag        lagTracker
	progress   progress
	parked     atomic.Bool             // a dead letter was stored since copyDeadLetters looked
	memory     *memory.Partition       // what is charged for it
	tracks                             // what the goroutines are doing
	reading    atomic.Pointer[reading] // nil: no reader is open

	// The delivery's goroutine sets these. The first claim that succeeds sets the
	// incarnation. The background goroutine of AtLeastOnce reads it when there are dead
	// letters, which is after that; only under Replay does it ever change.
	incarnation  string   // the topic's, which the claimed checkpoint is of
	assignedHook bool     // Hooks.Assigned was called, if there is one
	unanswered   int      // how many requests in a row had no answer, at most two
	start        Position // that was chosen; Unset if the partition had a checkpoint
	seekAgain    bool     // the start is to be chosen again

	// unread: this assignment has chosen the start and has read no event since. The
	// delivery's goroutine sets it. While the log is read, the one that fetches does.
	unread bool
	marked string // the incarnation that the lease is marked with
}

// newAssignment starts the assignment of a lease that was requested LeaseFor
// before the deadline.
func newAssignment(c *Consumer, work context.Context, topic Topic, lease Lease, until deadline) *assignment {
	h := fnv.New64a()
	fmt.Fprint(h, lease.Partition, lease.Epoch)
	a := &assignment{c: c, topic: topic, lease: lease, marked: lease.Began, process: work, start: driver.Unset, rand: rand.New(rand.NewPCG(c.cfg.Seed, h.Sum64())), acquired: c.cfg.Clock.Elapsed()}
	a.lag.init()
	a.openMemory()
	a.work, a.cancel = context.WithCancelCause(memory.With(work, a.memory))
	a.idle, a.stop = context.WithCancel(a.work)
	a.detachStop = context.AfterFunc(c.stopping, a.stop)
	a.observe(Observation{Kind: KindAcquired})
	a.background.Go(func() { a.survive(func() { a.renewLease(until) }) })
	a.background.Go(func() { a.survive(a.watchEnd) })
	if c.cfg.CopyDeadLetters != nil {
		a.background.Go(func() { a.survive(func() { a.copyDeadLetters(c.delivery.copyMarks()) }) })
	}
	watch, endWatch := context.WithCancel(context.WithoutCancel(work))
	a.endWatch = endWatch
	a.watching.Go(func() { a.watchStalls(watch) })
	return a
}

// deliver delivers the partition's events until the assignment ends, and releases it. The
// delivery has a goroutine of its own: if code that is not guarded ends that, the lease
// must not be renewed for ever with nothing delivered.
func (a *assignment) deliver() {
	var cause error
	returns(func() { a.survive(func() { cause = a.c.delivery.deliver(a) }) })
	a.end(cause)
}

// end releases the partition after the delivery has returned cause.
func (a *assignment) end(cause error) {
	if a.work.Err() != nil {
		cause = context.Cause(a.work)
	}
	a.cancel(ErrStopped)
	a.detachStop()
	a.background.Wait()
	a.memory.Close()
	a.notePosition()
	if errors.Is(cause, ErrStopped) {
		cause = nil
	}
	if cause != nil {
		a.observe(Observation{Kind: KindLost, Err: cause})
	}
	// A lost lease is released too: one that has expired here but not in the
	// store would make a successor wait.
	ctx, cancel := a.shutdownCtx()
	err := callDriver(func() error { return a.c.leases.Release(ctx, a.lease) })
	cancel()
	if err == nil {
		a.observe(Observation{Kind: KindReleased})
	} else {
		a.failed(fmt.Errorf("release lease: %w", err))
	}
	if hook := a.c.cfg.Hooks.Released; hook != nil && a.assignedHook {
		ctx := context.WithoutCancel(a.work)
		released := a.delivery.doing(activityReleased, 0, 0)
		a.hook("released", func() error { return hook(ctx, a.lease, cause) })
		released.done()
	}
	a.hooks.close()
	a.endWatch()
	a.watching.Wait()
	a.c.assignmentEnded(a.lease, cause)
}

// renewLease renews the lease when it is RenewEvery old. It cancels the
// assignment's work at the lease's deadline, or as soon as the store reports that
// the lease is lost.
func (a *assignment) renewLease(until deadline) {
	cfg := &a.c.cfg
	tick := min(time.Second, cfg.RenewEvery)
	renewAt := func(until deadline) deadline {
		age := cfg.RenewEvery - cfg.LeaseFor
		return a.c.renewals.due(deadline{wall: until.wall.Add(age), elapsed: until.elapsed + age})
	}
	due := renewAt(until)
	alone := false // after a round that has failed
	for {
		left := until.left(cfg.Clock)
		if left <= 0 {
			a.cancel(fmt.Errorf("partition %s: not renewed for %v: %w", a.lease.Partition, cfg.LeaseFor, ErrLeaseExpired))
			return
		}
		if due.left(cfg.Clock) <= 0 {
			next := deadlineIn(cfg.Clock, cfg.LeaseFor)
			began := cfg.Clock.Elapsed()
			var err error
			if alone || !a.c.renewals.together(a, left) {
				alone = true
				next = deadlineIn(cfg.Clock, cfg.LeaseFor)
				// A third of the lease: after a request that hangs there is time for
				// another.
				ctx, cancel := context.WithTimeout(a.work, min(until.left(cfg.Clock), cfg.LeaseFor/3))
				err = a.c.leases.Renew(ctx, a.lease, cfg.LeaseFor)
				cancel()
			}
			switch {
			case a.work.Err() != nil:
				return
			case err == nil:
				alone = false
				until, due = next, renewAt(next)
				a.observe(Observation{Kind: KindRenewed, Duration: cfg.Clock.Elapsed() - began})
				if hook := cfg.Hooks.Renewed; hook != nil {
					a.queueHook("renewed", func() error { return hook(a.work, a.lease) })
				}
				continue
			case errors.Is(err, ErrFenced):
				a.cancel(fmt.Errorf("renew lease: %w", err))
				return
			default:
				a.failed(fmt.Errorf("renew lease: %w", err))
			}
		}
		if cfg.Clock.Sleep(a.work, min(a.c.renewals.pause(tick, due), max(until.left(cfg.Clock), 0))) != nil {
			return
		}
	}
}

// requestCtx bounds a request to the log or a store, well within the lease, so that
// one that hangs is reported and repeated.
func (a *assignment) requestCtx(parent context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(parent, a.c.cfg.LeaseFor/3)
}

// request runs a request to the log or a store from the delivery's goroutine, for a
// limited time: as requestCtx, and twice as long after each that had no answer, up to
// LeaseFor, because a store may let requests wait for their turn. what says in its errors
// what it is for.
func (a *assignment) request(parent context.Context, what string, fn func(context.Context) error) error {
	limit := min(a.c.cfg.LeaseFor/3<<a.unanswered, a.c.cfg.LeaseFor)
	ctx, cancel := context.WithTimeout(parent, limit)
	defer cancel()
	span := a.delivery.doing(&activity{"request to " + what + " has not returned", "the driver ignores the time limit of its context"}, 0, 0)
	defer span.done()
	err := fn(ctx)
	switch {
	case err == nil:
		a.unanswered = 0
		return nil
	case ctx.Err() != nil && parent.Err() == nil:
		a.unanswered = min(a.unanswered+1, 2)
		return fmt.Errorf("%s: no answer within %v: %w", what, limit, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// shutdownCtx bounds what remains to be done after the work has ended.
func (a *assignment) shutdownCtx() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(a.work), min(a.c.cfg.RenewEvery, 5*time.Second))
}

// pause waits for d. It returns an error if the assignment is to end.
func (a *assignment) pause(d time.Duration) error {
	if a.c.cfg.Clock.Sleep(a.idle, d) != nil {
		return a.ended()
	}
	return nil
}

// ended returns why the assignment is to end: the cause of the loss, or
// ErrStopped.
func (a *assignment) ended() error {
	if a.work.Err() != nil {
		return context.Cause(a.work)
	}
	return ErrStopped
}

// observe adds the partition and the epoch to an observation, and passes it to
// the observer and to the error hook.
func (a *assignment) observe(o Observation) {
	o.Partition, o.Epoch = a.lease.Partition, a.lease.Epoch
	a.progress.note(&o, a.lag.note(&o))
	if o.Kind == KindParked {
		a.parked.Store(true)
	}
	a.c.observe(o)
	hook := a.c.cfg.Hooks.Error
	if hook == nil {
		return
	}
	switch o.Kind {
	case KindFailed, KindLost, KindFenced, KindUnknown, KindStopped, KindStalled, KindCopyFailed:
		err := o.Err // o stays where it is
		a.queueHook("error", func() error { return hook(a.work, a.lease, err) })
	}
}

func (a *assignment) failed(err error) { a.observe(Observation{Kind: KindFailed, Err: err}) }

// queueHook has a hook called on the goroutine of the hook queue.
func (a *assignment) queueHook(name string, fn func() error) {
	a.hooks.push(func() {
		defer a.hookQueue.doing(activityHookQueue, 0, 0).done()
		a.hook(name, fn)
	})
}

// hook calls a hook. Its error or panic is observed and changes nothing.
func (a *assignment) hook(name string, fn func() error) {
	if err := guardGoexit("function", fn); err != nil {
		a.c.observe(Observation{Kind: KindHookFailed, Partition: a.lease.Partition, Epoch: a.lease.Epoch, Err: fmt.Errorf("%s hook: %w", name, err)})
	}
}

// lagEvery is how often the log is asked for a partition's end. A consumer that holds many
// partitions asks more seldom, so that the partitions together ask every lagPace: logs limit
// such requests. To detect silent readers in time it asks at least three times in
// [Config].SilentAfter, up to four times that pace.
const (
	lagEvery = 5 * time.Second
	lagPace  = 100 * time.Millisecond
)

// watchEnd keeps the partition's bounds, which the lag is computed from. It reports if
// the log has not answered for LeaseFor.
func (a *assignment) watchEnd() {
	budget := driver.BudgetOf(a.c.source)
	var failing time.Duration // since when, or since the last report, by Clock.Elapsed; 0: it is not
	for {
		ctx, cancel := a.requestCtx(a.idle)
		b, err := a.c.source.Bounds(ctx, a.lease.Partition)
		cancel()
		if err == nil {
			a.tracks.setHeld(b.Held)
			a.lag.bounds.Store(&b)
			a.lag.answers.Add(1)
			failing = 0
		} else if now := a.c.cfg.Clock.Elapsed(); failing == 0 {
			failing = now
		} else if a.idle.Err() == nil && now-failing >= a.c.cfg.LeaseFor {
			failing = now
			a.failed(fmt.Errorf("get the partition's end, for the lag: %w", err))
		}
		every := a.c.endEvery(len(a.topic.Partitions))
		if budget > 0 {
			every = a.untilTurn(every)
		}
		if a.c.cfg.Clock.Sleep(a.idle, every) != nil {
			return
		}
	}
}

// endsPart is the part of a [driver.BoundsBudget] that the consumers take. Watchers take the rest
// (othersPart in package health).
const endsPart = 7.0 / 8

// endEvery returns how often the log is asked for a partition's end, given how many the topic
// has: if the log limits that, each process asks for the partitions that it holds so that all
// processes together stay within the limit.
func (c *Consumer) endEvery(partitions int) time.Duration {
	c.mu.Lock()
	held := len(c.held)
	c.mu.Unlock()
	every := max(min(max(lagEvery, time.Duration(held)*lagPace), c.cfg.SilentAfter/3), time.Duration(held)*lagPace/4)
	if budget := driver.BudgetOf(c.source); budget > 0 {
		every = max(every, time.Duration(float64(partitions)/(budget*endsPart)*float64(time.Second)))
	}
	return every
}

// untilTurn returns the time until a partition's turn, if each partition of the topic has one in
// every. The turns follow the time of day: so the processes of a group, which may have
// acquired all partitions at the same moment, do not ask for their ends at the same moment.
func (a *assignment) untilTurn(every time.Duration) time.Duration {
	i, n := slices.Index(a.topic.Partitions, a.lease.Partition), len(a.topic.Partitions)
	turn := time.Duration(float64(every) * float64(i) / float64(n))
	wait := (turn - time.Duration(a.c.cfg.Clock.Wall().UnixNano()%int64(every)) + every) % every
	if wait < every/16 { // it has just been
		wait += every
	}
	return wait
}

// lagTracker computes a partition's lag: how many events the log holds that are
// not done. It is safe for concurrent use.
type lagTracker struct {
	bounds  atomic.Pointer[driver.Bounds] // what the log holds; nil until it was asked
	answers atomic.Int64                  // how often the log has answered that
	done    atomic.Int64                  // all events up to this sequence number are done
	read    atomic.Int64                  // events up to this sequence number were read
}

func (l *lagTracker) init() {
	l.done.Store(driver.Unset.Sequence)
	l.read.Store(driver.Unset.Sequence)
}

// restart forgets what was done: the next reading starts from the beginning.
func (l *lagTracker) restart() { l.done.Store(driver.Unset.Sequence) }

// note takes from an observation how far the partition has got. It returns true if more is done.
func (l *lagTracker) note(o *Observation) bool {
	switch at := o.To.Sequence; o.Kind {
	case KindClaimed:
		l.done.Store(at)
	case KindOpened:
		// On a first start the claim finds no checkpoint; Replay has none.
		l.done.CompareAndSwap(driver.Unset.Sequence, at)
		l.read.Store(at)
	case KindCommitted, KindWritten:
		before := l.done.Load()
		l.done.Store(max(at, before))
		return at > before
	}
	return false
}

// behind returns the lag at a position, or -1 if the log has not been asked.
// Events that were read since it was asked count.
func (l *lagTracker) behind(p Position) int64 {
	b := l.bounds.Load()
	if b == nil {
		return -1
	}
	known := *b
	known.Last.Sequence = max(known.Last.Sequence, l.read.Load())
	return known.Lag(p)
}

// missing returns how many events the log holds that were not read, as far as is known.
func (l *lagTracker) missing() int64 {
	b := l.bounds.Load()
	if b == nil {
		return 0
	}
	return max(0, b.Last.Sequence-l.read.Load())
}

// fetched returns the lag after events up to a sequence number were read: none of
// them is done yet.
func (l *lagTracker) fetched(last int64) int64 {
	l.read.Store(last)
	return l.behind(Position{Sequence: l.done.Load()})
}

package partition

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
	"github.com/sluice-go/sluice/internal/engine"
	"github.com/sluice-go/sluice/internal/memory"
)

// Assignment is one partition that this consumer holds, from the acquisition of
// its lease to the release or the loss of it.
//
// Four goroutines belong to it. The one that calls the delivery reads the
// partition and drives the delivery's worker (reading.go). One renews the lease.
// One asks the log for the partition's end, for the lag. One watches what the others
// do, and reports what lasts too long (stall.go). Beside them, one fetches while the
// log is read, one runs hooks while there are any, and one copies dead letters if it is
// to (copies.go).
type Assignment struct {
	Host     *Host
	Settings *engine.Settings
	Topic    driver.Topic
	Lease    driver.Lease
	Rand     *rand.Rand      // of the delivery's goroutine
	Process  context.Context // the consumer's work

	// Work ends when the lease is lost or the consumer is cancelled; its cause
	// says why. Everything that can have an effect runs under it. idle also ends
	// when the consumer is to stop or the partition is to be handed over. Waiting
	// runs under it.
	Work       context.Context
	Idle       context.Context
	Cancel     context.CancelCauseFunc
	stop       context.CancelFunc // ends idle: the partition is to be released cleanly
	detachStop func() bool        // detaches idle from the consumer's stop
	Acquired   time.Duration      // by Clock.Elapsed
	background sync.WaitGroup     // the goroutines that renew and that ask for the end
	watching   sync.WaitGroup     // the goroutine that watches for stalls
	endWatch   context.CancelFunc // ends that
	hooks      hookQueue          // for hooks that must not delay the renewal
	Lag        lagTracker
	Progress   progress
	storeClock atomic.Int64            // the store's time, in Unix nanoseconds, when Clock.Elapsed was 0; 0: unknown
	parked     atomic.Bool             // a dead letter was stored since copyDeadLetters looked
	hungCopy   *Span                   // of the call of CopyDeadLetters, of which the last one timed out; nil: none did
	Memory     *memory.Partition       // what is charged for it
	tracks                             // what the goroutines are doing
	reading    atomic.Pointer[reading] // nil: no reader is open

	// The delivery's goroutine sets these. The first claim that succeeds sets the
	// incarnation. The background goroutine of AtLeastOnce reads it when there are dead
	// letters, which is after that; only under Replay does it ever change.
	Incarnation  string          // the topic's, which the claimed checkpoint is of
	assignedHook bool            // Hooks.Assigned was called, if there is one
	unanswered   int             // how many requests in a row had no answer, at most two
	Start        driver.Position // that was chosen; Unset if the partition had a checkpoint
	seekAgain    bool            // the start is to be chosen again

	// unread: this assignment has chosen the start and has read no event since. The
	// delivery's goroutine sets it. While the log is read, the one that fetches does.
	unread bool
	marked string // the incarnation that the lease is marked with
}

// Start starts the assignment of a lease that was requested LeaseFor
// before the deadline.
func Start(host *Host, work context.Context, topic driver.Topic, lease driver.Lease, until engine.Deadline) *Assignment {
	h := fnv.New64a()
	fmt.Fprint(h, lease.Partition, lease.Epoch)
	a := &Assignment{Host: host, Settings: host.Settings, Topic: topic, Lease: lease, marked: lease.Began, Process: work, Start: driver.Unset, Rand: rand.New(rand.NewPCG(host.Settings.Seed, h.Sum64())), Acquired: host.Settings.Clock.Elapsed()}
	a.Lag.init()
	a.openMemory()
	a.Work, a.Cancel = context.WithCancelCause(memory.NewContext(work, a.Memory))
	a.Idle, a.stop = context.WithCancel(a.Work)
	a.detachStop = context.AfterFunc(host.Stopping, a.stop)
	a.Observe(driver.Observation{Kind: driver.KindAcquired})
	a.checkFloors()
	a.background.Go(func() { a.Survive(func() { a.renewLease(until) }) })
	a.background.Go(func() { a.Survive(a.watchEnd) })
	if marks, is := host.Delivery.Store().(driver.CopyMarks); is && a.Settings.CopyDeadLetters != nil {
		a.background.Go(func() { a.Survive(func() { a.copyDeadLetters(marks) }) })
	}
	watch, endWatch := context.WithCancel(context.WithoutCancel(work))
	a.endWatch = endWatch
	a.watching.Go(func() { a.watchStalls(watch) })
	return a
}

// Deliver delivers the partition's events until the assignment ends, and releases it. The
// delivery has a goroutine of its own: if code that is not guarded ends that, the lease
// must not be renewed for ever with nothing delivered.
func (a *Assignment) Deliver() {
	var cause error
	engine.Returns(func() { a.Survive(func() { cause = a.Host.Delivery.Deliver(a) }) })
	a.End(cause)
}

// End releases the partition after the delivery has returned cause.
func (a *Assignment) End(cause error) {
	if a.Work.Err() != nil {
		cause = context.Cause(a.Work)
	}
	a.Cancel(driver.ErrStopped)
	a.detachStop()
	a.background.Wait()
	a.Memory.Close()
	a.notePosition()
	if errors.Is(cause, driver.ErrStopped) {
		cause = nil
	}
	if cause != nil {
		a.Observe(driver.Observation{Kind: driver.KindLost, Err: cause})
	}
	// A lost lease is released too: one that has expired here but not in the
	// store would make a successor wait.
	ctx, cancel := a.ShutdownCtx()
	err := engine.CallDriver(func() error { return a.Host.Leases.Release(ctx, a.Lease) })
	cancel()
	if err == nil {
		a.Observe(driver.Observation{Kind: driver.KindReleased})
	} else {
		a.Failed(fmt.Errorf("release lease: %w", err))
	}
	if hook := a.Settings.Hooks.Released; hook != nil && a.assignedHook {
		ctx := context.WithoutCancel(a.Work)
		released := a.Delivery.Doing(activityReleased, 0, 0)
		a.Hook("released", func() error { return hook(ctx, a.Lease, cause) })
		released.Done()
	}
	a.hooks.close()
	a.endWatch()
	a.watching.Wait()
	a.Host.Ended(a.Lease, cause)
}

// renewLease renews the lease when it is RenewEvery old. It cancels the
// assignment's work at the lease's deadline, or as soon as the store reports that
// the lease is lost.
func (a *Assignment) renewLease(until engine.Deadline) {
	cfg := a.Settings
	tick := min(time.Second, cfg.RenewEvery)
	renewAt := func(until engine.Deadline) engine.Deadline {
		age := cfg.RenewEvery - cfg.LeaseFor
		return a.Host.Renewals.Due(engine.Deadline{Wall: until.Wall.Add(age), Elapsed: until.Elapsed + age})
	}
	due := renewAt(until)
	alone := false // after a round that has failed
	for {
		left := until.Left(cfg.Clock)
		if left <= 0 {
			a.Cancel(fmt.Errorf("partition %s: not renewed for %v: %w", a.Lease.Partition, cfg.LeaseFor, driver.ErrLeaseExpired))
			return
		}
		if due.Left(cfg.Clock) <= 0 {
			next := engine.DeadlineIn(cfg.Clock, cfg.LeaseFor)
			began := cfg.Clock.Elapsed()
			var err error
			if alone || !a.Host.Renewals.Together(a, left) {
				alone = true
				next = engine.DeadlineIn(cfg.Clock, cfg.LeaseFor)
				// A third of the lease: after a request that hangs there is time for
				// another.
				ctx, cancel := context.WithTimeout(a.Work, min(until.Left(cfg.Clock), cfg.LeaseFor/3))
				err = a.Host.Leases.Renew(ctx, a.Lease, cfg.LeaseFor)
				cancel()
			}
			switch {
			case a.Work.Err() != nil:
				return
			case err == nil:
				alone = false
				until, due = next, renewAt(next)
				a.Observe(driver.Observation{Kind: driver.KindRenewed, Duration: cfg.Clock.Elapsed() - began})
				if hook := cfg.Hooks.Renewed; hook != nil {
					a.queueHook("renewed", func() error { return hook(a.Work, a.Lease) })
				}
				continue
			case errors.Is(err, driver.ErrFenced):
				a.Cancel(fmt.Errorf("renew lease: %w", err))
				return
			default:
				a.Failed(fmt.Errorf("renew lease: %w", err))
			}
		}
		if cfg.Clock.Sleep(a.Work, min(a.Host.Renewals.Pause(tick, due), max(until.Left(cfg.Clock), 0))) != nil {
			return
		}
	}
}

// RequestCtx bounds a request to the log or a store, well within the lease, so that
// one that hangs is reported and repeated.
func (a *Assignment) RequestCtx(parent context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(parent, a.Settings.LeaseFor/3)
}

// Request runs a request to the log or a store from the delivery's goroutine, for a
// limited time: as requestCtx, and twice as long after each that had no answer, up to
// LeaseFor, because a store may let requests wait for their turn. what says in its errors
// what it is for.
func (a *Assignment) Request(parent context.Context, what string, fn func(context.Context) error) error {
	limit := min(a.Settings.LeaseFor/3<<a.unanswered, a.Settings.LeaseFor)
	ctx, cancel := context.WithTimeout(parent, limit)
	defer cancel()
	span := a.Delivery.Doing(&activity{"request to " + what + " has not returned", "the driver ignores the time limit of its context"}, 0, 0)
	defer span.Done()
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

// ShutdownCtx bounds what remains to be done after the work has ended.
func (a *Assignment) ShutdownCtx() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(a.Work), min(a.Settings.RenewEvery, 5*time.Second))
}

// Pause waits for d. It returns an error if the assignment is to end.
func (a *Assignment) Pause(d time.Duration) error {
	if a.Settings.Clock.Sleep(a.Idle, d) != nil {
		return a.Ended()
	}
	return nil
}

// Ended returns why the assignment is to end: the cause of the loss, or
// ErrStopped.
func (a *Assignment) Ended() error {
	if a.Work.Err() != nil {
		return context.Cause(a.Work)
	}
	return driver.ErrStopped
}

// Observe adds group, partition and epoch to an observation, and passes it to
// the observer and to the error hook.
func (a *Assignment) Observe(o driver.Observation) {
	o.Group, o.Partition, o.Epoch = a.Lease.Group, a.Lease.Partition, a.Lease.Epoch
	a.Progress.note(&o, a.Lag.note(&o))
	if (o.Kind == driver.KindParked || o.Kind == driver.KindRedriveFailed) && o.RetriedIn == 0 {
		a.parked.Store(true)
	}
	a.Settings.Observe(o)
	hook := a.Settings.Hooks.Error
	if hook == nil {
		return
	}
	switch o.Kind {
	case driver.KindFailed, driver.KindLost, driver.KindFenced, driver.KindUnknown, driver.KindHalted, driver.KindStalled, driver.KindCopyFailed:
		err := o.Err // o stays where it is
		a.queueHook("error", func() error { return hook(a.Work, a.Lease, err) })
	}
}

func (a *Assignment) Failed(err error) {
	a.Observe(driver.Observation{Kind: driver.KindFailed, Err: err})
}

// queueHook has a hook called on the goroutine of the hook queue.
func (a *Assignment) queueHook(name string, fn func() error) {
	a.hooks.push(func() {
		defer a.hookQueue.Doing(activityHookQueue, 0, 0).Done()
		a.Hook(name, fn)
	})
}

// Hook calls a hook. Its error or panic is observed and changes nothing.
func (a *Assignment) Hook(name string, fn func() error) {
	if err := engine.GuardGoexit("function", fn); err != nil {
		a.Settings.Observe(driver.Observation{Kind: driver.KindHookFailed, Group: a.Lease.Group, Partition: a.Lease.Partition, Epoch: a.Lease.Epoch, Err: fmt.Errorf("%s hook: %w", name, err)})
	}
}

// lagEvery is how often the log is asked for a partition's end. A consumer that holds many
// partitions asks more seldom, so that the partitions together ask every lagPace: logs limit
// such requests. To detect silent readers in time it asks at least three times in
// sluice.Config.SilentAfter, up to four times that pace.
const (
	lagEvery = 5 * time.Second
	lagPace  = 100 * time.Millisecond
)

// watchEnd keeps the partition's bounds, which the lag is computed from. It reports if
// the log has not answered for LeaseFor.
func (a *Assignment) watchEnd() {
	budget := driver.BudgetOf(a.Host.Source)
	var failing time.Duration // since when, or since the last report, by Clock.Elapsed; 0: it is not
	for {
		ctx, cancel := a.RequestCtx(a.Idle)
		b, err := a.Host.Source.Bounds(ctx, a.Lease.Partition)
		cancel()
		if err == nil {
			a.tracks.setHeld(b.Held)
			a.Lag.bounds.Store(&b)
			a.Lag.answers.Add(1)
			failing = 0
		} else if now := a.Settings.Clock.Elapsed(); failing == 0 {
			failing = now
		} else if a.Idle.Err() == nil && now-failing >= a.Settings.LeaseFor {
			failing = now
			a.Failed(fmt.Errorf("get the partition's end, for the lag: %w", err))
		}
		every := a.endEvery(len(a.Topic.Partitions))
		if budget > 0 {
			every = a.untilTurn(every)
		}
		if a.Settings.Clock.Sleep(a.Idle, every) != nil {
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
func (a *Assignment) endEvery(partitions int) time.Duration {
	held := a.Host.Held()
	every := max(min(max(lagEvery, time.Duration(held)*lagPace), a.Settings.SilentAfter/3), time.Duration(held)*lagPace/4)
	if budget := driver.BudgetOf(a.Host.Source); budget > 0 {
		every = max(every, time.Duration(float64(partitions)/(budget*endsPart)*float64(time.Second)))
	}
	return every
}

// untilTurn returns the time until a partition's turn, if each partition of the topic has one in
// every. The turns follow the time of day: so the processes of a group, which may have
// acquired all partitions at the same moment, do not ask for their ends at the same moment.
func (a *Assignment) untilTurn(every time.Duration) time.Duration {
	i, n := slices.Index(a.Topic.Partitions, a.Lease.Partition), len(a.Topic.Partitions)
	turn := time.Duration(float64(every) * float64(i) / float64(n))
	wait := (turn - time.Duration(a.Settings.Clock.Wall().UnixNano()%int64(every)) + every) % every
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

// Restart forgets what was done: the next reading starts from the beginning.
func (l *lagTracker) Restart() { l.done.Store(driver.Unset.Sequence) }

// note takes from an observation how far the partition has got. It returns true if more is done.
func (l *lagTracker) note(o *driver.Observation) bool {
	switch at := o.To.Sequence; o.Kind {
	case driver.KindClaimed:
		l.done.Store(at)
	case driver.KindOpened:
		// On a first start the claim finds no checkpoint; Replay has none.
		l.done.CompareAndSwap(driver.Unset.Sequence, at)
		l.read.Store(at)
	case driver.KindCommitted, driver.KindWritten:
		before := l.done.Load()
		l.done.Store(max(at, before))
		return at > before
	}
	return false
}

// Measure returns the lag at a position, or -1 if the log has not been asked.
// Events that were read since it was asked count.
func (l *lagTracker) Measure(p driver.Position) int64 {
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

// State returns the number up to which all events are done, -1 if none is, and the lag.
func (l *lagTracker) State() (done, lag int64) {
	done = l.done.Load()
	return max(done, driver.Origin.Sequence), l.Measure(driver.Position{Sequence: done})
}

// fetched returns the lag after events up to a sequence number were read: none of
// them is done yet.
func (l *lagTracker) fetched(last int64) int64 {
	l.read.Store(last)
	return l.Measure(driver.Position{Sequence: l.done.Load()})
}

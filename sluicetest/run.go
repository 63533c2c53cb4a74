package sluicetest

import (
	"cmp"
	"context"
	"crypto/rand"
	"log/slog"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/suite"
)

// Result is the result of a [Run].
type Result struct {
	// Checkpoints has the checkpoints, by partition.
	Checkpoints []sluice.Checkpoint
	// DeadLetters are the events that were parked, with bodies, lowest id
	// first. It is nil if the store is not a [driver.DeadLetterStore] as well.
	DeadLetters []sluice.DeadLetter
}

// Run delivers events to a handler through the real engine until each of them is committed or parked:
//
//	store := new(sluicetest.Store)
//	result := sluicetest.Run(t, store, handler, sluicetest.Bodies("1", "2", "oops"), nil)
//	// look at store.Rows("table") and result.DeadLetters
//
// The store is one in memory or the user's own. Every Run uses a new group, so that a database can be
// used several times. An event goes to the partition that it names, a small number, by default "0".
// Sequence numbers count from 0 in each partition.
//
// A nil cfg means the defaults of [sluice.Config], except that attempts follow each other within
// milliseconds. Run takes all partitions, whatever cfg says. The test fails if a partition stops, or
// if nothing is committed for 30 seconds. Handlers must not call t.FailNow or t.Fatal, which are for
// the test's own goroutine.
func Run[Tx any](t testing.TB, store driver.TxStore[Tx], handler sluice.Handler[Tx], events []*sluice.Event, cfg *sluice.Config) Result {
	t.Helper()
	hub, last := load(t, events)
	watch := &watcher{news: make(chan struct{}, 1), stopped: make(chan error, 1)}
	consumer, err := sluice.New(hub, new(Leases), sluice.Transactional(store, handler), watch.config(cfg))
	suite.NoError(t, "make a consumer", err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := suite.Spawn(t, func() error { return consumer.Run(ctx) })

	stall := time.NewTimer(suite.Patience)
	defer stall.Stop()
	for {
		progress, err := store.Read(ctx, hub.group)
		suite.NoError(t, "read the checkpoints", err)
		if reached(progress, last) {
			suite.NoError(t, "stop the consumer", consumer.Stop(ctx))
			suite.NoError(t, "run the consumer", <-ended)
			return result(ctx, t, store, hub.group)
		}
		select {
		case <-watch.news:
			stall.Reset(suite.Patience)
		case err := <-watch.stopped:
			t.Fatalf("a partition has stopped: %v", err)
		case err := <-ended:
			t.Fatalf("the consumer has ended: %v", err)
		case <-stall.C:
			progress, _ = store.Read(ctx, hub.group)
			t.Fatalf("nothing was committed for %v; checkpoints are at %v, want %v; the last failure: %v", suite.Patience, positions(progress), last, watch.failure())
		}
	}
}

// maxPartitions bounds what a mistyped partition costs.
const maxPartitions = 1024

// load makes a hub of the events, and returns the last position of each partition.
func load(t testing.TB, events []*sluice.Event) (*Hub, map[string]sluice.Position) {
	t.Helper()
	n := 1
	for i, e := range events {
		p, err := strconv.Atoi(cmp.Or(e.Partition, "0"))
		if err != nil || p < 0 || p >= maxPartitions || strconv.Itoa(p) != cmp.Or(e.Partition, "0") {
			t.Fatalf("event %d is for partition %q: state a number below %d", i, e.Partition, maxPartitions)
		}
		n = max(n, p+1)
	}
	hub := NewHub(sluice.Group{Namespace: "sluicetest", Topic: t.Name(), Name: rand.Text()}, n)
	last := make(map[string]sluice.Position)
	for _, e := range events {
		p := cmp.Or(e.Partition, "0")
		last[p] = hub.Append(p, e)
	}
	return hub, last
}

// reached reports whether no event is left.
func reached(progress []sluice.Checkpoint, last map[string]sluice.Position) bool {
	left := len(last)
	for _, p := range progress {
		if end, some := last[p.Partition]; some && p.Position.Sequence >= end.Sequence {
			left--
		}
	}
	return left == 0
}

func result[Tx any](ctx context.Context, t testing.TB, store driver.TxStore[Tx], group sluice.Group) Result {
	t.Helper()
	var r Result
	var err error
	r.Checkpoints, err = store.Read(ctx, group)
	suite.NoError(t, "read the checkpoints", err)
	deadLetters, is := store.(driver.DeadLetterStore)
	if !is {
		return r
	}
	r.DeadLetters, err = deadLetters.List(ctx, group, sluice.DeadLetterFilter{})
	suite.NoError(t, "list the dead letters", err)
	for i, l := range r.DeadLetters {
		r.DeadLetters[i], err = deadLetters.Get(ctx, group, l.ID)
		suite.NoError(t, "get a dead letter", err)
	}
	return r
}

func positions(progress []sluice.Checkpoint) map[string]sluice.Position {
	at := make(map[string]sluice.Position)
	for _, p := range progress {
		at[p.Partition] = p.Position
	}
	return at
}

// watcher observes the engine.
type watcher struct {
	news    chan struct{} // something was committed
	stopped chan error    // the first partition that can't go on

	mu     sync.Mutex
	failed error // the last failure
}

func (w *watcher) failure() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failed
}

// config returns the caller's configuration with shorter waits and the watcher.
func (w *watcher) config(cfg *sluice.Config) *sluice.Config {
	var c sluice.Config
	if cfg != nil {
		c = *cfg
	}
	c.Partitions = sluice.AllPartitions // no other consumer takes the rest
	c.AssignEvery = cmp.Or(c.AssignEvery, time.Millisecond)
	if c.RetryMin == 0 && c.RetryMax == 0 {
		c.RetryMin, c.RetryMax = time.Millisecond, 10*time.Millisecond
	}
	c.Observer = driver.Observers(c.Observer, w)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler) // a test looks at the result
	}
	return &c
}

// Observe implements [driver.Observer].
func (w *watcher) Observe(o driver.Observation) {
	switch o.Kind {
	case driver.KindCommitted, driver.KindParked:
		select {
		case w.news <- struct{}{}:
		default:
		}
	case driver.KindFailed, driver.KindRetried:
		w.mu.Lock()
		defer w.mu.Unlock()
		w.failed = o.Err
	case driver.KindHalted:
		select {
		case w.stopped <- o.Err:
		default:
		}
	}
}

package sluicetest

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"reflect"
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

// Run delivers events to a handler through the real engine until each of them is committed or
// parked:
//
//	store := new(sluicetest.Store)
//	result := sluicetest.Run(t, store, handler, sluicetest.Bodies("1", "2", "oops"), nil)
//	// look at store.Rows("table") and result.DeadLetters
//
// The store is one in memory or the user's own. Every Run uses a new group, so that a database can
// be used several times. An event goes to the partition that it names, a small number, by default
// "0". Sequence numbers count from 0 in each partition.
//
// A nil cfg means the defaults of [sluice.Config], except that attempts follow each other within
// milliseconds, and that an event that has used them up is parked and not tried again. Run takes
// all partitions, whatever cfg says. The test fails if a partition stops, if the handler has
// changed an event or ended its transaction, or if nothing is committed for 30 seconds, in a bubble
// of testing/synctest for a day. Handlers must not call t.FailNow or t.Fatal, which are for the
// test's own goroutine.
func Run[Tx any](t testing.TB, store driver.TxStore[Tx], handler sluice.Handler[Tx], events []*sluice.Event, cfg *sluice.Config) Result {
	t.Helper()
	hub, last := load(t, events)
	var positions map[string]sluice.Position
	deliver(t, hub, sluice.Transactional(store, handler), cfg, func(ctx context.Context, _ *sluice.Consumer) (bool, string) {
		progress, err := store.Read(ctx, hub.group)
		suite.NoError(t, "read the checkpoints", err)
		positions = positionsOf(progress)
		return reached(positions, last), fmt.Sprintf("checkpoints are at %v, want %v", positions, last)
	})
	return result(t, store, hub.group)
}

// Deliver delivers events as [Run] does, by any delivery: [sluice.AtLeastOnce], [sluice.Batches],
// [sluice.Replay] or [sluice.Transactional], until all events are done or dead letters. What they
// became is where the delivery puts it: in its store, and in what its handler or sink has noted.
func Deliver(t testing.TB, delivery sluice.Delivery, events []*sluice.Event, cfg *sluice.Config) {
	t.Helper()
	hub, last := load(t, events)
	deliver(t, hub, delivery, cfg, func(_ context.Context, c *sluice.Consumer) (bool, string) {
		done := map[string]sluice.Position{}
		for _, a := range c.Assignments() {
			done[a.Lease.Partition] = sluice.Position{Sequence: a.Done}
		}
		return reached(done, last), fmt.Sprintf("events are done up to %v, want %v", done, last)
	})
}

// deliver runs a consumer until done says that it is, or why it is not.
func deliver(t testing.TB, hub *Hub, delivery sluice.Delivery, cfg *sluice.Config, done func(context.Context, *sluice.Consumer) (is bool, why string)) {
	t.Helper()
	watch := &watcher{news: make(chan struct{}, 1), stopped: make(chan error, 1)}
	source := &watchedSource{Source: hub, hub: hub}
	consumer, err := sluice.New(source, new(Leases), delivery, watch.config(cfg))
	suite.NoError(t, "make a consumer", err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := suite.Spawn(t, func() error { return consumer.Run(ctx) })

	patience := suite.Patience
	if inBubble() {
		patience = 24 * time.Hour
	}
	// Besides after each commit it looks now and then: some deliveries report late.
	stall, look := time.NewTimer(patience), time.NewTicker(patience/3000)
	defer stall.Stop()
	defer look.Stop()
	for {
		is, why := done(ctx, consumer)
		if is {
			suite.NoError(t, "stop the consumer", consumer.Stop(ctx))
			suite.NoError(t, "run the consumer", <-ended)
			source.checkUnchanged(t)
			return
		}
		select {
		case <-watch.news:
			stall.Reset(patience)
		case <-look.C:
		case err := <-watch.stopped:
			t.Fatalf("a partition has stopped: %v", err)
		case err := <-ended:
			t.Fatalf("the consumer has ended: %v", err)
		case <-stall.C:
			source.checkUnchanged(t)
			t.Fatalf("nothing was committed for %v; %s; the last failure: %v", patience, why, watch.failure())
		}
	}
}

// inBubble reports whether the test runs in a bubble of testing/synctest, whose clock begins in the
// year 2000: there waiting takes no time, and a handler may ask for hours.
func inBubble() bool { return time.Now().Year() < 2010 }

// watchedSource remembers the events that it has returned, to compare them with those of the hub.
type watchedSource struct {
	driver.Source
	hub *Hub

	mu       sync.Mutex
	returned []*sluice.Event
}

// Open implements [driver.Source].
func (s *watchedSource) Open(ctx context.Context, partition string, after sluice.Position, epoch int64) (driver.Reader, error) {
	r, err := s.Source.Open(ctx, partition, after, epoch)
	if err != nil {
		return nil, err
	}
	return &watchedReader{r, s}, nil
}

type watchedReader struct {
	driver.Reader
	source *watchedSource
}

// Read implements [driver.Reader].
func (r *watchedReader) Read(ctx context.Context, max int) ([]*sluice.Event, error) {
	events, err := r.Reader.Read(ctx, max)
	r.source.mu.Lock()
	defer r.source.mu.Unlock()
	r.source.returned = append(r.source.returned, events...)
	return events, err
}

// checkUnchanged fails the test if an event that was delivered is not what it was.
func (s *watchedSource) checkUnchanged(t testing.TB) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.returned {
		if sent := s.hub.event(e); !reflect.DeepEqual(e, sent) {
			t.Errorf("event %d of partition %s was changed by the handler: it is %+v, and was %+v: events are shared, copy what is to be changed", sent.Sequence, sent.Partition, *e, *sent)
			return
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
func reached(done, last map[string]sluice.Position) bool {
	for p, end := range last {
		if at, some := done[p]; !some || at.Sequence < end.Sequence {
			return false
		}
	}
	return true
}

func result[Tx any](t testing.TB, store driver.TxStore[Tx], group sluice.Group) Result {
	t.Helper()
	ctx := t.Context()
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

func positionsOf(progress []sluice.Checkpoint) map[string]sluice.Position {
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
	if c.RetryLater == nil {
		c.RetryLater = []time.Duration{}
	}
	most := time.Second
	if !inBubble() {
		c.AssignEvery = cmp.Or(c.AssignEvery, time.Millisecond)
		most = 10 * time.Millisecond
	}
	if c.RetryMin == 0 && c.RetryMax == 0 {
		c.RetryMin, c.RetryMax = time.Millisecond, most
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
	case driver.KindCommitted, driver.KindWritten, driver.KindParked:
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

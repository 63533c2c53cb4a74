package wire

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/sluicetest"
)

// How long a world lasts, in virtual time.
const (
	lyingFor   = 10 * time.Minute
	recoverIn  = 10 * time.Minute // after the lies: the longest back-offs and leases, and the events
	silentFor  = 75 * time.Second // the longest that nothing is done and nothing is reported
	partitions = 3
)

// source is a driver's source.
type source interface {
	driver.Source
	Group() sluice.Group
	Close(ctx context.Context) error
}

// broker is the model of a broker.
type broker interface {
	// open opens a driver's source.
	open(n *network, prefetchBytes int) (source, error)
	// send appends an event to a partition.
	send(ctx context.Context, partition int, body string) error
	protocol() protocol
	close()
}

// world is one run.
type world struct {
	t       *testing.T
	rand    *rand.Rand
	network *network
	broker  broker
	group   sluice.Group
	leases  sluicetest.Leases
	store   sluicetest.Store

	mu       sync.Mutex
	links    uint64 // that were made
	lies     lies
	told     map[string]int
	sent     map[string][]string  // bodies by partition, in order
	written  map[string][]string  // by AtLeastOnce
	done     map[string]time.Time // when a partition got on last
	reported map[string]time.Time // when something was last reported of it
	silent   []string
}

// themes are the lies of a world.
var themes = []lies{
	{Cut: 15}, {Stall: 3}, {Late: 20}, {Replay: 10}, {Empty: 100}, {Many: 2}, {Split: 300}, {Split: 100, Mix: 200}, {Forge: 30}, {Forge: 300}, {Topic: 500},
	{Cut: 5, Stall: 1, Late: 10, Replay: 3, Empty: 20, Split: 50, Mix: 50, Forge: 20, Topic: 100},
}

// run runs a world whose broker start returns.
func run(t *testing.T, seed uint64, start func(t *testing.T, n *network) broker) map[string]int {
	w := &world{
		t: t, rand: rand.New(rand.NewPCG(seed, 1)), network: newNetwork(),
		told: map[string]int{}, sent: map[string][]string{}, written: map[string][]string{}, done: map[string]time.Time{}, reported: map[string]time.Time{},
	}
	w.broker = start(t, w.network)
	defer w.broker.close()
	theme := themes[w.rand.IntN(len(themes))]
	w.lies = theme
	w.network.dishonest = func(l *link) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.links++
		l.protocol, l.lies, l.rand = w.broker.protocol(), theme, rand.New(rand.NewPCG(seed, w.links))
		l.told = func(lie string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.told[lie]++
		}
	}
	streams := w.rand.IntN(2) == 0
	var stops []func()
	for i := range 1 + w.rand.IntN(3) {
		stops = append(stops, w.process(fmt.Sprint("process ", i), streams))
	}
	var working sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	working.Go(func() { w.watch(ctx) })
	w.produce(lyingFor * 8 / 10)
	time.Sleep(lyingFor * 2 / 10)
	w.network.honest()
	w.mu.Lock()
	w.lies = lies{}
	w.mu.Unlock()
	if !w.finishes(streams) {
		t.Errorf("after the lies not all events were done: %s", w.state(streams))
	}
	for _, stop := range stops {
		stop()
	}
	cancel()
	working.Wait()
	w.check(streams)
	if t.Failed() {
		t.Logf("seed %d: lies %+v, told %v, at least once %v", seed, theme, w.told, streams)
	}
	return w.told
}

// lying returns how many answers about the topic are lies now, per thousand.
func (w *world) lying() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lies.Topic
}

// process starts a consumer. The function it returns stops it.
func (w *world) process(owner string, streams bool) func() {
	prefetch := 0
	if w.rand.IntN(2) == 0 {
		prefetch = 1 + w.rand.IntN(8<<10) // a few events
	}
	opened, err := w.broker.open(w.network, prefetch)
	if err != nil {
		w.t.Fatal(err)
	}
	w.group = opened.Group()
	src := &answers{source: opened, perMille: w.lying, rand: rand.New(rand.NewPCG(w.rand.Uint64(), 2)), known: map[string]driver.Bounds{}}
	delivery := sluice.Transactional(&w.store, func(_ context.Context, tx *sluicetest.Tx, b sluice.Batch) error {
		for _, e := range b.Events {
			if err := tx.Insert("rows", b.Partition+" "+string(e.Body)); err != nil {
				return err
			}
		}
		return nil
	})
	if streams {
		sink, err := sluice.Workers(16, func(ctx context.Context, e *sluice.Event) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			partition := driver.FencingTokenOf(ctx).Lease.Partition
			w.written[partition] = append(w.written[partition], string(e.Body))
			return nil
		})
		if err != nil {
			w.t.Fatal(err)
		}
		delivery = sluice.AtLeastOnce(&w.store, sluice.EventAsRecord, sink, nil)
	}
	c, err := sluice.New(src, &w.leases, delivery, &sluice.Config{Owner: owner, Logger: slog.New(slog.DiscardHandler), Observer: w, Start: sluice.Earliest(), MaxBatch: 1 + w.rand.IntN(100), PrefetchBytes: prefetch})
	if err != nil {
		w.t.Fatal(err)
	}
	ran := make(chan error, 1)
	go func() { ran <- c.Run(context.WithoutCancel(w.t.Context())) }()
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(w.t.Context()), 2*time.Minute)
		defer cancel()
		if err := errors.Join(c.Stop(ctx), <-ran, src.Close(ctx)); err != nil {
			w.t.Errorf("%s: stop: %v", owner, err)
		}
	}
}

// produce sends events for some time, with bursts and pauses.
func (w *world) produce(during time.Duration) {
	end := time.Now().Add(during)
	for n := 0; time.Now().Before(end); n++ {
		p := w.rand.IntN(partitions)
		for i := range 1 + w.rand.IntN(40) {
			body := fmt.Sprintf("event %d.%d%s", n, i, strings.Repeat(".", w.rand.IntN(300)))
			if err := w.broker.send(w.t.Context(), p, body); err != nil {
				w.t.Fatal(err)
			}
			w.mu.Lock()
			w.sent[fmt.Sprint(p)] = append(w.sent[fmt.Sprint(p)], body)
			w.mu.Unlock()
		}
		time.Sleep(time.Duration(w.rand.Int64N(int64(4 * time.Second))))
	}
}

// effects returns the bodies that took effect, by partition, in order.
func (w *world) effects(streams bool) map[string][]string {
	if streams {
		w.mu.Lock()
		defer w.mu.Unlock()
		all := map[string][]string{}
		for p, list := range w.written {
			all[p] = slices.Clone(list)
		}
		return all
	}
	all := map[string][]string{}
	for _, r := range w.store.Rows("rows") {
		p, body, _ := strings.Cut(r.(string), " ")
		all[p] = append(all[p], body)
	}
	return all
}

// finishes waits until each event has had its effect, and reports whether that came in time.
func (w *world) finishes(streams bool) bool {
	for end := time.Now().Add(recoverIn); time.Now().Before(end); time.Sleep(time.Second) {
		if w.missing(streams) == "" {
			return true
		}
	}
	return false
}

// missing names a partition of which events have had no effect.
func (w *world) missing(streams bool) string {
	effects := w.effects(streams)
	w.mu.Lock()
	defer w.mu.Unlock()
	for p, sent := range w.sent {
		if len(distinct(effects[p])) < len(sent) {
			return p
		}
	}
	return ""
}

func distinct(list []string) []string { return slices.Compact(slices.Sorted(slices.Values(list))) }

func (w *world) state(streams bool) string {
	effects := w.effects(streams)
	w.mu.Lock()
	defer w.mu.Unlock()
	var b strings.Builder
	for p, sent := range w.sent {
		fmt.Fprintf(&b, "partition %s: %d of %d; ", p, len(distinct(effects[p])), len(sent))
	}
	return b.String()
}

// check compares the effects with what was sent.
func (w *world) check(streams bool) {
	for p, got := range w.effects(streams) {
		want := w.sent[p]
		switch {
		case !streams && !slices.Equal(got, want[:min(len(got), len(want))]):
			w.t.Errorf("partition %s: effects differ from the events, in number, order or content: %d of %d", p, len(got), len(want))
		case streams:
			for _, body := range distinct(got) {
				if !slices.Contains(want, body) {
					w.t.Errorf("partition %s: %.40q was written and never sent", p, body)
				}
			}
		}
	}
	dead, err := w.store.List(context.Background(), w.group, sluice.DeadLetterFilter{})
	if err != nil || len(dead) > 0 {
		w.t.Errorf("%d dead letters, %v: %+v", len(dead), err, dead)
	}
	for _, text := range w.silent {
		w.t.Error(text)
	}
}

// Observe implements [driver.Observer].
func (w *world) Observe(o driver.Observation) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case o.Kind == driver.KindCommitted, o.Kind == driver.KindWritten && o.Events > 0:
		w.done[o.Partition] = time.Now()
	case o.Err != nil && o.Partition == "":
		for p := range partitions {
			w.reported[fmt.Sprint(p)] = time.Now()
		}
	case o.Err != nil:
		w.reported[o.Partition] = time.Now()
	}
}

// watch looks for partitions that stand still although events wait, with no report of it.
func (w *world) watch(ctx context.Context) {
	began := time.Now()
	for {
		select {
		case <-time.After(5 * time.Second):
		case <-ctx.Done():
			return
		}
		effects := w.effects(false)
		w.mu.Lock()
		for p, sent := range w.sent {
			waits := len(sent) > max(len(effects[p]), len(distinct(w.written[p])))
			if !waits {
				w.done[p] = time.Now()
			}
			last := w.done[p]
			for _, at := range []time.Time{w.reported[p], began} {
				if at.After(last) {
					last = at
				}
			}
			if silent := time.Since(last); silent > silentFor {
				w.silent = append(w.silent, fmt.Sprintf("partition %s stood still for %v with no report", p, silent))
				w.done[p] = time.Now()
			}
		}
		w.mu.Unlock()
	}
}

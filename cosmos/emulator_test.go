package cosmos

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/internal/proof/need"
)

// embedded is the embedded account, with a container docs in the database db.
func embedded(t testing.TB, c emulator.CosmosContainer, cfg *emulator.CosmosConfig) *emulator.Cosmos {
	t.Helper()
	c.Database, c.Name = "db", "docs"
	if c.KeyPaths == nil {
		c.KeyPaths = []string{"/key"}
	}
	var resolved emulator.CosmosConfig
	if cfg != nil {
		resolved = *cfg
	}
	if resolved.AsAzure == nil {
		resolved.AsAzure = asAzure
	}
	srv, err := emulator.StartCosmos([]emulator.CosmosContainer{c}, &resolved)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := srv.Close(); err != nil {
			t.Errorf("close the account: %v", err)
		}
	})
	return srv
}

func openSink(t testing.TB, srv *emulator.Cosmos, cfg *Config) *Sink {
	t.Helper()
	return open(t, srv.Endpoint(), srv.Key(), cfg)
}

func stats(t testing.TB, srv *emulator.Cosmos) emulator.CosmosContainerStats {
	t.Helper()
	st, err := srv.ContainerStats("db", "docs")
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// delivery is the outcome of documents that were submitted as the engine does.
type delivery struct {
	retries, outages atomic.Int64
	rejected         atomic.Int64
	last             atomic.Value // the last error
	done             atomic.Int64
	waited           atomic.Int64 // for the budget, in ns
}

// deliver submits documents, n at once, until ctx ends or make returns false,
// and each again after what the sink says, until it is written or rejected.
func deliver(ctx context.Context, s *Sink, n int, make func(i int) (Document, bool)) *delivery {
	d := &delivery{}
	room := newSemaphore(n)
	var submit func(doc Document)
	var waits sync.WaitGroup
	again := func(doc Document, after time.Duration) {
		waits.Go(func() {
			<-time.After(after)
			submit(doc)
		})
	}
	submit = func(doc Document) {
		s.Submit(context.Background(), doc, func(r driver.WriteResult) {
			d.waited.Add(int64(r.Waited))
			if r.Err == nil {
				d.done.Add(1)
				room.give()
				return
			}
			d.last.Store(r.Err.Error())
			retry, _ := errors.AsType[*driver.RetryError](r.Err)
			switch {
			case retry != nil:
				d.retries.Add(1)
				again(doc, retry.After+time.Millisecond)
			case errors.Is(r.Err, sluice.ErrOutage):
				d.outages.Add(1)
				again(doc, 50*time.Millisecond)
			default:
				d.rejected.Add(1)
				room.give()
			}
		})
	}
	for i := 0; ctx.Err() == nil; i++ {
		doc, more := make(i)
		if !more {
			break
		}
		room.take()
		submit(doc)
	}
	room.drain(n)
	waits.Wait()
	return d
}

type semaphore chan struct{}

func newSemaphore(n int) semaphore { return semaphore(make(chan struct{}, n)) }
func (s semaphore) take()          { s <- struct{}{} }
func (s semaphore) give()          { <-s }
func (s semaphore) drain(n int) {
	for range n {
		s.take()
	}
}

func upTo(n int) func(int) (Document, bool) {
	return func(i int) (Document, bool) { return document(i), i < n }
}

func TestEmulator(t *testing.T) {
	hierarchical := func(i int) Document {
		return Document{ID: strconv.Itoa(i), PartitionKey: []any{"t" + strconv.Itoa(i%7), i % 50, i%2 == 0}, Body: fmt.Appendf(nil, `{"tenant":"t%d","user":%d,"even":%v}`, i%7, i%50, i%2 == 0)}
	}
	for name, c := range map[string]struct {
		container emulator.CosmosContainer
		cfg       Config
		document  func(i int) Document
	}{
		"bulk":         {emulator.CosmosContainer{Partitions: 5}, Config{}, document},
		"point":        {emulator.CosmosContainer{Partitions: 5}, Config{Mode: Point}, document},
		"version 1":    {emulator.CosmosContainer{Partitions: 3, KeyVersion: 1}, Config{}, document},
		"hierarchical": {emulator.CosmosContainer{Partitions: 4, KeyPaths: []string{"/tenant", "/user", "/even"}}, Config{}, hierarchical},
		"conditional": {emulator.CosmosContainer{Partitions: 2}, Config{}, func(i int) Document {
			d := document(i)
			d.Source = &Source{Partition: "0", Sequence: int64(i)}
			return d
		}},
	} {
		t.Run(name, func(t *testing.T) {
			srv := embedded(t, c.container, nil)
			s := openSink(t, srv, &c.cfg)
			const n = 3000
			d := deliver(t.Context(), s, 1000, func(i int) (Document, bool) { return c.document(i), i < n })
			st, all := stats(t, srv), srv.Stats()
			if d.retries.Load()+d.outages.Load()+d.rejected.Load() > 0 || st.Documents != n {
				t.Errorf("%d documents, %d retries, %d outages, %d rejected: %v", st.Documents, d.retries.Load(), d.outages.Load(), d.rejected.Load(), d.last.Load())
			}
			if most := int64(len(st.Ranges)*s.cfg.Concurrency + 3); all.Connections > most {
				t.Errorf("%d connections, at most %d are needed", all.Connections, most)
			}
			if s.cfg.Mode == Bulk && all.Requests > n/10 {
				t.Errorf("%d requests for %d documents", all.Requests, n)
			}
		})
	}
}

func TestCheckOfContainer(t *testing.T) {
	srv := embedded(t, emulator.CosmosContainer{}, nil)
	if err := openSink(t, srv, nil).Check(t.Context()); err != nil {
		t.Error(err)
	}
	for want, s := range map[string]func() (*Sink, error){
		"401 Unauthorized": func() (*Sink, error) { return New(srv.Endpoint(), testKey, "db", "docs", nil) },
		"404 Not Found":    func() (*Sink, error) { return New(srv.Endpoint(), srv.Key(), "db", "none", nil) },
		"no response":      func() (*Sink, error) { return New("https://127.0.0.1:1", testKey, "db", "docs", nil) },
	} {
		s, err := s()
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Check(t.Context()); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, want %s", err, want)
		} else {
			t.Log(err)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// Physical partitions are split while documents are written: nothing is lost,
// and no document has failed for it.
func TestEmulatorSplits(t *testing.T) {
	need.RealTime(t)
	for _, mode := range []Mode{Bulk, Point} {
		srv := embedded(t, emulator.CosmosContainer{Partitions: 2}, nil)
		s := openSink(t, srv, &Config{Mode: mode, RU: 1e6})
		const n = 10_000
		d := deliver(t.Context(), s, 2000, func(i int) (Document, bool) {
			if i%2000 == 1999 {
				if err := srv.Split("db", "docs", ""); err != nil {
					t.Error(err)
				}
			}
			return document(i), i < n
		})
		st := stats(t, srv)
		if d.retries.Load()+d.outages.Load()+d.rejected.Load() > 0 || st.Documents != n || len(st.Ranges) != 7 {
			t.Errorf("%d documents in %d ranges, %d retries, %d outages, %d rejected: %v", st.Documents, len(st.Ranges), d.retries.Load(), d.outages.Load(), d.rejected.Load(), d.last.Load())
		}
		// Point requests name no range: the account finds it.
		if got := len(s.routes.Load().queues); mode == Bulk && got != 7 {
			t.Errorf("the sink knows %d ranges", got)
		}
	}
}

// Faults of all kinds at once: lost answers, broken connections, statuses of
// requests and of operations. Nothing is rejected, and all of it is written,
// conditional writes as the newest event has it.
func TestEmulatorFaults(t *testing.T) {
	srv := embedded(t, emulator.CosmosContainer{Partitions: 3}, nil)
	for _, f := range []emulator.CosmosFault{
		{Kind: emulator.CosmosFaultLoseAnswer, On: emulator.OnCosmosBatch, Times: 10},
		{Kind: emulator.CosmosFaultDrop, On: emulator.OnCosmosBatch, Times: 10},
		{Kind: emulator.CosmosFaultStatus, Status: 503, On: emulator.OnCosmosBatch, Times: 5},
		{Kind: emulator.CosmosFaultStatus, Status: 449, On: emulator.OnCosmosBatch, Each: true, Times: 50},
		{Kind: emulator.CosmosFaultStatus, Status: 429, RetryAfter: 5 * time.Millisecond, On: emulator.OnCosmosBatch, Each: true, Times: 50},
		{Kind: emulator.CosmosFaultStatus, Status: 500, On: emulator.OnCosmosBatch, Times: 3},
		{Kind: emulator.CosmosFaultStatus, Status: 410, Substatus: 1008, On: emulator.OnCosmosBatch, Times: 5},
		{Kind: emulator.CosmosFaultStatus, Status: 503, On: emulator.OnCosmosRanges, Times: 2},
		{Kind: emulator.CosmosFaultStatus, Status: 403, On: emulator.OnCosmosMetadata, Times: 2},
	} {
		if _, err := srv.Faults().Add(f); err != nil {
			t.Fatal(err)
		}
	}
	s := openSink(t, srv, nil)
	const n, ids = 6000, 2000
	d := deliver(t.Context(), s, 500, func(i int) (Document, bool) {
		doc := document(i % ids)
		doc.Source = &Source{Partition: "0", Epoch: 1, Sequence: int64(i)}
		return doc, i < n
	})
	if d.retries.Load() < 100 || d.outages.Load() < 3 || d.rejected.Load() > 0 || stats(t, srv).Documents != ids {
		t.Errorf("%d documents, %d retries, %d outages, %d rejected: %v", stats(t, srv).Documents, d.retries.Load(), d.outages.Load(), d.rejected.Load(), d.last.Load())
	}
	for _, f := range srv.Faults().List() {
		if f.Hits < f.Fault.Times {
			t.Errorf("%+v happened %d times", f.Fault, f.Hits)
		}
	}
}

// Two sinks that both believe they own the partition, one a third behind the
// other, while answers are lost, requests are held up and partitions split: no
// document goes back to an older event, and the newest is there in the end.
func TestEmulatorZombie(t *testing.T) {
	need.RealTime(t)
	const n, ids = 6000, 500
	var mu sync.Mutex
	newest, back := map[string]int64{}, 0
	srv := embedded(t, emulator.CosmosContainer{Partitions: 2}, &emulator.CosmosConfig{OnWrite: func(w emulator.CosmosWrite) {
		_, stamp, _ := strings.Cut(string(w.Body), `"_sluice":"`)
		stamp, _, _ = strings.Cut(stamp, " ")
		sequence, err := strconv.ParseInt(stamp, 10, 64)
		mu.Lock()
		defer mu.Unlock()
		if err != nil || sequence < newest[w.ID] {
			back++
		}
		newest[w.ID] = sequence
	}})
	for _, f := range []emulator.CosmosFault{
		{Kind: emulator.CosmosFaultLoseAnswer, On: emulator.OnCosmosBatch, Times: 20},
		{Kind: emulator.CosmosFaultDelay, Delay: 150 * time.Millisecond, On: emulator.OnCosmosBatch, Times: 20},
		{Kind: emulator.CosmosFaultDrop, On: emulator.OnCosmosBatch, Times: 20},
	} {
		if _, err := srv.Faults().Add(f); err != nil {
			t.Fatal(err)
		}
	}
	run := func(epoch, from, to int64) func() {
		s := openSink(t, srv, &Config{MaxOperations: 20, Timeout: 100 * time.Millisecond}) // so that some requests are given up and land later
		return func() {
			d := deliver(t.Context(), s, ids/2, func(i int) (Document, bool) {
				sequence := from + int64(i)
				doc := document(int(sequence % ids))
				doc.Source = &Source{Topic: "hub", Partition: "0", Epoch: epoch, Sequence: sequence}
				return doc, sequence < to
			})
			if d.rejected.Load() > 0 {
				t.Errorf("%d rejected: %v", d.rejected.Load(), d.last.Load())
			}
		}
	}
	var both sync.WaitGroup
	both.Go(run(1, 0, n*2/3))
	both.Go(run(2, n/3, n))
	both.Go(func() {
		for range 3 {
			if err := srv.Split("db", "docs", ""); err != nil {
				t.Error(err)
			}
			<-time.After(50 * time.Millisecond)
		}
	})
	both.Wait()
	mu.Lock()
	defer mu.Unlock()
	if back > 0 || len(newest) != ids {
		t.Errorf("%d writes went back, %d documents", back, len(newest))
	}
	for i := range ids {
		if got, want := newest[strconv.Itoa(i)], int64(n-ids+i); got != want {
			t.Fatalf("document %d is of event %d, want %d", i, got, want)
		}
	}
}

// What conditional writes cost beside unconditional ones, in the account's own
// figures.
func TestEmulatorCosts(t *testing.T) {
	srv := embedded(t, emulator.CosmosContainer{}, nil)
	cost := func(s *Sink, d Document) float64 {
		t.Helper()
		r := submit(t, s, d)[0]
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		return r.Cost
	}
	s := openSink(t, srv, nil)
	plain, plainAgain := cost(s, document(1)), cost(s, document(1))
	at := func(sequence int64) Document {
		d := document(2)
		d.Source = &Source{Partition: "0", Epoch: 1, Sequence: sequence}
		return d
	}
	fresh, known, repeated := cost(s, at(1)), cost(s, at(2)), cost(s, at(2))
	other := openSink(t, srv, nil)
	unknown, behind := cost(other, at(3)), cost(other, at(1))
	stale := cost(openSink(t, srv, nil), at(1))
	t.Logf("upsert %.2f new, %.2f over another; conditional %.2f new, %.2f over a known one, %.2f over an unknown one; repeat %.2f, %.2f, of an unknown one %.2f", plain, plainAgain, fresh, known, unknown, repeated, behind, stale)
	if fresh > plain+0.25 || known > plainAgain+0.25 || unknown > plainAgain+2.6 || repeated != 0 || behind != 0 || stale > 2.6 {
		t.Error("more than the package comment says")
	}
}

// A key that is revoked for a while: everything waits, nothing is rejected.
func TestEmulatorKeyRevoked(t *testing.T) {
	srv := embedded(t, emulator.CosmosContainer{Partitions: 2}, nil)
	s := openSink(t, srv, nil)
	const n = 10_000
	d := deliver(t.Context(), s, 500, func(i int) (Document, bool) {
		if i == 2000 {
			if err := srv.RevokeKey(srv.Key()); err != nil {
				t.Error(err)
			}
			time.AfterFunc(300*time.Millisecond, func() {
				for srv.Stats().Unauthorized == 0 && t.Context().Err() == nil {
					<-time.After(time.Millisecond)
				}
				if err := srv.RestoreKey(srv.Key()); err != nil {
					t.Error(err)
				}
			})
		}
		return document(i), i < n
	})
	if d.outages.Load() == 0 || d.retries.Load()+d.rejected.Load() > 0 || stats(t, srv).Documents != n {
		t.Errorf("%d documents, %d retries, %d outages, %d rejected: %v", stats(t, srv).Documents, d.retries.Load(), d.outages.Load(), d.rejected.Load(), d.last.Load())
	}
}

// The rate in RU is used, and hardly anything is turned away. On a machine that
// is busy with other things the sink may fall behind for a while, so the rate is
// far below what a core can do, and the best of several stretches counts.
func TestEmulatorPacing(t *testing.T) {
	need.RealTime(t)
	const ru, stretch = 20_000, 3 * time.Second
	srv := embedded(t, emulator.CosmosContainer{Partitions: 2, Throughput: ru}, nil)
	s := openSink(t, srv, &Config{RU: ru})
	ctx, stop := context.WithCancel(t.Context())
	result := make(chan *delivery, 1)
	go func() { result <- deliver(ctx, s, 5_000, upTo(1<<30)) }()
	eventually(t, "it runs", func() bool { return stats(t, srv).Spent > ru/2 })
	var best float64
	for tries := 0; tries < 20 && best < 0.97; tries++ {
		spent, began := stats(t, srv).Spent, time.Now()
		<-time.After(stretch)
		used := (stats(t, srv).Spent - spent) / time.Since(began).Seconds() / ru
		t.Logf("%.1f%% of %d RU/s used over %v", 100*used, ru, stretch)
		best = max(best, used)
	}
	stop()
	d, all := <-result, srv.Stats()
	t.Logf("%d of %d operations throttled", all.Throttled, all.Operations)
	if best < 0.97 || best > 1.01 || float64(all.Throttled) > 0.001*float64(all.Operations) || d.rejected.Load()+d.outages.Load() > 0 {
		t.Errorf("%d rejected, %d outages: %v", d.rejected.Load(), d.outages.Load(), d.last.Load())
	}
	if waited := time.Duration(d.waited.Load()); waited < stretch {
		t.Errorf("reported %v of waiting for two budgets that were both used up", waited)
	}
}

// With half of the request units that are offered to it, without pacing, the
// sink finds the account's limit by its 429s: nothing is lost, and it does not
// hammer.
func TestEmulatorThrottles(t *testing.T) {
	const ru, n = 5000, 2500 // 15,700 RU, which any machine can ask for in three seconds
	srv := embedded(t, emulator.CosmosContainer{Partitions: 1, Throughput: ru}, nil)
	s := openSink(t, srv, nil)
	d := deliver(t.Context(), s, 1000, upTo(n))
	all := srv.Stats()
	t.Logf("%d of %d operations throttled", all.Throttled, all.Operations)
	if stats(t, srv).Documents != n || d.rejected.Load()+d.outages.Load() > 0 || d.retries.Load() == 0 {
		t.Errorf("%d documents, %d retries, %d outages, %d rejected: %v", stats(t, srv).Documents, d.retries.Load(), d.outages.Load(), d.rejected.Load(), d.last.Load())
	}
	if d.waited.Load() != 0 {
		t.Errorf("waited %v for a budget, and has none", time.Duration(d.waited.Load()))
	}
	if all.Throttled > n {
		t.Errorf("%d operations throttled, for %d documents", all.Throttled, n)
	}
}

package cosmos

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
)

const patience = 2 * time.Minute

// open returns a sink on the fake, which the test closes.
func (f *fake) open(t testing.TB, cfg *Config) *Sink {
	t.Helper()
	return open(t, f.URL, testKey, cfg)
}

func open(t testing.TB, endpoint, key string, cfg *Config) *Sink {
	t.Helper()
	s, err := New(endpoint, key, "db", "docs", cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

func document(i int) Document {
	return Document{ID: strconv.Itoa(i), PartitionKey: []any{"k" + strconv.Itoa(i%97)}, Body: fmt.Appendf(nil, `{"key":"k%d","n":%d}`, i%97, i)}
}

// submit submits documents and returns their results in the same order.
func submit(t testing.TB, s *Sink, docs ...Document) []driver.WriteResult {
	t.Helper()
	return submitUnder(t, t.Context(), s, docs...)
}

func submitUnder(t testing.TB, ctx context.Context, s *Sink, docs ...Document) []driver.WriteResult {
	t.Helper()
	results := make([]driver.WriteResult, len(docs))
	var left sync.WaitGroup
	left.Add(len(docs))
	times := make([]atomic.Int32, len(docs))
	for i, d := range docs {
		s.Submit(ctx, d, func(r driver.WriteResult) {
			if times[i].Add(1) > 1 {
				t.Errorf("document %d is done twice", i)
				return
			}
			results[i] = r
			left.Done()
		})
	}
	over := make(chan struct{})
	go func() { left.Wait(); close(over) }()
	select {
	case <-over:
	case <-time.After(patience):
		t.Fatal("not all documents are done")
	}
	return results
}

func documents(n int) []Document {
	docs := make([]Document, n)
	for i := range docs {
		docs[i] = document(i)
	}
	return docs
}

func TestBulk(t *testing.T) {
	f := newFake(t)
	f.ranges = twoRanges
	s := f.open(t, nil)
	const n = 1000
	for i, r := range submit(t, s, documents(n)...) {
		if r.Err != nil || r.Cost != 6 {
			t.Fatalf("document %d: %+v", i, r)
		}
	}
	if f.count() != n {
		t.Errorf("%d documents, want %d", f.count(), n)
	}
	if len(f.batches) > 2*n/maxOperations+4 {
		t.Errorf("%d batches for %d documents", len(f.batches), n)
	}
	spread := map[string]int{}
	for i, h := range f.headers {
		id := h.Get("x-ms-documentdb-partitionkeyrangeid")
		spread[id] += len(f.batches[i])
		if len(f.batches[i]) > maxOperations || h.Get("x-ms-cosmos-batch-atomic") != "false" || h.Get("x-ms-cosmos-batch-continue-on-error") != "true" ||
			h.Get("x-ms-cosmos-is-batch-request") != "True" || h.Get("x-ms-cosmos-batch-ordered") != "" || h.Get("Prefer") != "" || !strings.HasPrefix(h.Get("Authorization"), "type%3Dmaster") {
			t.Errorf("batch of %d with headers %v", len(f.batches[i]), h)
		}
	}
	if spread["1"] < n/3 || spread["2"] < n/3 || spread["1"]+spread["2"] != n {
		t.Errorf("the ranges got %v", spread)
	}
	if f.connections > 2*8+2 {
		t.Errorf("%d connections", f.connections)
	}
}

// One connection serves one request after the other.
func TestConnectionsAreKept(t *testing.T) {
	for _, mode := range []Mode{Bulk, Point} {
		f := newFake(t)
		s := f.open(t, &Config{Mode: mode, FlushAfter: time.Nanosecond})
		for i := range 50 {
			submit(t, s, document(i))
		}
		if len(f.batches) != 50 || f.connections > 2 {
			t.Errorf("mode %d: %d requests on %d connections", mode, len(f.batches), f.connections)
		}
	}
}

func TestOperations(t *testing.T) {
	for _, mode := range []Mode{Bulk, Point} {
		f := newFake(t)
		s := f.open(t, &Config{Mode: mode})
		d := document(1)
		do := func(op Operation) error {
			d.Operation = op
			return submit(t, s, d)[0].Err
		}
		if err := do(Replace); !errors.Is(err, sluice.ErrRejected) || !strings.Contains(err.Error(), "document to replace does not exist") {
			t.Errorf("replace of nothing: %v", err)
		}
		if err := do(Create); err != nil {
			t.Errorf("create: %v", err)
		}
		if err := do(Create); !errors.Is(err, sluice.ErrRejected) || !strings.Contains(err.Error(), `document "1": 409 Conflict`) {
			t.Errorf("create again: %v", err)
		}
		if err := do(Replace); err != nil {
			t.Errorf("replace: %v", err)
		}
		if err := do(Upsert); err != nil {
			t.Errorf("upsert: %v", err)
		}
	}
}

func TestEndedContexts(t *testing.T) {
	f := newFake(t)
	s := f.open(t, &Config{FlushAfter: time.Hour})
	ended, end := context.WithCancel(t.Context())
	end()
	if r := submitUnder(t, ended, s, document(0))[0]; r.Err != context.Canceled {
		t.Error(r.Err)
	}
	// While it is queued.
	later, cancel := context.WithCancel(t.Context())
	results := make(chan driver.WriteResult, 2)
	s.Submit(later, document(1), func(r driver.WriteResult) { results <- r })
	s.Submit(later, document(2), func(r driver.WriteResult) { results <- r })
	cancel()
	for range 2 {
		select {
		case r := <-results:
			if r.Err != context.Canceled {
				t.Error(r.Err)
			}
		case <-time.After(patience):
			t.Fatal("not done")
		}
	}
	if len(f.batches) != 0 {
		t.Errorf("sent %v", f.batches)
	}
}

// Nothing is sent for a context that has ended, even before the sink has noticed.
func TestContextEndsBehindARequest(t *testing.T) {
	f := newFake(t)
	arrived, release := make(chan struct{}, 10), make(chan struct{})
	f.answer = func(w http.ResponseWriter, r *http.Request, batch []fakeOperation) bool {
		arrived <- struct{}{}
		<-release
		return false
	}
	s := f.open(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	var cancelled atomic.Int32
	done.Add(1000)
	for i := range 1000 {
		s.Submit(ctx, document(i), func(r driver.WriteResult) {
			if r.Err == context.Canceled {
				cancelled.Add(1)
			}
			done.Done()
		})
	}
	<-arrived
	cancel()
	close(release)
	done.Wait()
	if n := f.count(); n > maxOperations || int(cancelled.Load()) != 1000-n || len(f.batches) != 1 {
		t.Errorf("%d documents in %d batches, %d cancelled", n, len(f.batches), cancelled.Load())
	}
}

// A request in flight is waited for: a completed write must not take effect later.
func TestContextEndsOnTheWay(t *testing.T) {
	f := newFake(t)
	arrived, release := make(chan struct{}), make(chan struct{})
	f.answer = func(w http.ResponseWriter, r *http.Request, batch []fakeOperation) bool {
		close(arrived)
		<-release
		return false
	}
	s := f.open(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan driver.WriteResult, 1)
	s.Submit(ctx, document(1), func(r driver.WriteResult) { done <- r })
	<-arrived
	cancel()
	select {
	case r := <-done:
		t.Fatalf("done before the answer: %v", r.Err)
	case <-time.After(300 * time.Millisecond):
	}
	close(release)
	if r := <-done; r.Err != nil {
		t.Error(r.Err)
	}
}

func TestClose(t *testing.T) {
	f := newFake(t)
	s, err := New(f.URL, testKey, "db", "docs", &Config{FlushAfter: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	results := make(chan driver.WriteResult, 10)
	for i := range 10 {
		s.Submit(t.Context(), document(i), func(r driver.WriteResult) { results <- r })
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	for range 10 {
		if r := <-results; r.Err != nil {
			t.Error(r.Err)
		}
	}
	s.Submit(t.Context(), document(1), func(r driver.WriteResult) { results <- r })
	if r := <-results; !errors.Is(r.Err, ErrClosed) || !errors.Is(r.Err, sluice.ErrOutage) {
		t.Error(r.Err)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// An account that does not answer: Close ends with its context, and everything
// is done.
func TestCloseInVain(t *testing.T) {
	f := newFake(t)
	release := make(chan struct{})
	defer close(release)
	f.answer = func(w http.ResponseWriter, r *http.Request, batch []fakeOperation) bool { <-release; return true }
	s, err := New(f.URL, testKey, "db", "docs", &Config{MaxOperations: 2})
	if err != nil {
		t.Fatal(err)
	}
	results := make(chan driver.WriteResult, 10)
	for i := range 10 {
		s.Submit(t.Context(), document(i), func(r driver.WriteResult) { results <- r })
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := s.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	for range 10 {
		if r := <-results; r.Err == nil || errors.Is(r.Err, sluice.ErrRejected) {
			t.Error(r.Err)
		}
	}
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); !ok(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("still not: %s", what)
		}
	}
}

func TestConfig(t *testing.T) {
	secret := "AccountEndpoint=https://a/;AccountKey=" + testKey
	for _, c := range []struct {
		endpoint, key, database, container string
		cfg                                *Config
	}{
		{secret, testKey, "db", "docs", nil}, {"ftp://x", testKey, "db", "docs", nil}, {"https://u:p@x", testKey, "db", "docs", nil}, {"https://x/y", testKey, "db", "docs", nil},
		{"https://x", secret, "db", "docs", nil}, {"https://x", "", "db", "docs", nil}, {"https://x", testKey, "", "docs", nil}, {"https://x", testKey, "db", "a/b", nil},
		{"https://x", testKey, "db", "docs", &Config{MaxOperations: 101}}, {"https://x", testKey, "db", "docs", &Config{MaxBytes: 3 << 20}},
		{"https://x", testKey, "db", "docs", &Config{RU: -1}}, {"https://x", testKey, "db", "docs", &Config{Concurrency: -1}}, {"https://x", testKey, "db", "docs", &Config{Mode: 2}},
		{"https://x", testKey, "db", "docs", &Config{Timeout: -1}}, {"https://x", testKey, "db", "docs", &Config{FlushAfter: -1}}, {"https://x", testKey, "db", "docs", &Config{CachedVersions: -1}},
	} {
		if _, err := New(c.endpoint, c.key, c.database, c.container, c.cfg); err == nil || strings.Contains(err.Error(), testKey) || strings.Contains(err.Error(), "u:p") {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if _, err := NewEntra("http://x", nil, "db", "docs", nil); err == nil {
		t.Error("no credential")
	}
}

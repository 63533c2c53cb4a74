package cosmos

import (
	"bytes"
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
	"github.com/sluice-go/sluice/internal/epk"
)

const patience = 30 * time.Second

// open makes a sink on the fake, which the test closes.
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
func submit(t testing.TB, s *Sink, docs ...Document) []sluice.Result {
	t.Helper()
	return submitUnder(t, t.Context(), s, docs...)
}

func submitUnder(t testing.TB, ctx context.Context, s *Sink, docs ...Document) []sluice.Result {
	t.Helper()
	results := make([]sluice.Result, len(docs))
	var left sync.WaitGroup
	left.Add(len(docs))
	times := make([]atomic.Int32, len(docs))
	for i, d := range docs {
		s.Submit(ctx, d, func(r sluice.Result) {
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
		if err := do(Replace); !errors.Is(err, sluice.ErrRejected) || !strings.Contains(err.Error(), "nothing to replace") {
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

// Each status of an operation, alone in a batch among others that go well.
func TestOutcomesOfOperations(t *testing.T) {
	for _, c := range []struct {
		status, sub int
		after       time.Duration
		want        error // nil: a RetryError with after
	}{
		{status: 429, sub: 3200, after: 1500 * time.Millisecond},
		{status: 408}, {status: 449}, {status: 503}, {status: 424}, {status: 410, sub: 1022}, {status: 404, sub: 1002},
		{status: 400, want: sluice.ErrRejected}, {status: 409, want: sluice.ErrRejected}, {status: 413, want: sluice.ErrRejected},
		{status: 404, want: sluice.ErrRejected}, {status: 403, sub: 1014, want: sluice.ErrRejected},
		{status: 400, sub: 1001, want: sluice.ErrRejected},                                                     // and the container is the same
		{status: 410, sub: 1002}, {status: 410, sub: 1007}, {status: 410, sub: 1008}, {status: 410, sub: 1000}, // and the ranges are the same
		{status: 401, want: sluice.ErrOutage}, {status: 403, want: sluice.ErrOutage}, {status: 404, sub: 1003, want: sluice.ErrOutage},
		{status: 500, want: sluice.ErrOutage}, {status: 502, want: sluice.ErrOutage}, {status: 999, want: sluice.ErrOutage},
	} {
		t.Run(fmt.Sprint(c.status, " ", c.sub), func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			f.operation = func(op fakeOperation) map[string]any {
				if op.ResourceBody["id"] != "1" {
					return nil
				}
				return map[string]any{"statusCode": c.status, "subStatusCode": c.sub, "requestCharge": 0.5, "retryAfterMilliseconds": c.after.Milliseconds()}
			}
			results := submit(t, f.open(t, nil), document(0), document(1), document(2))
			if results[0].Err != nil || results[2].Err != nil {
				t.Errorf("the neighbours: %v, %v", results[0].Err, results[2].Err)
			}
			expect(t, results[1], c.status, c.sub, c.after, c.want, "", 0.5)
		})
	}
}

func expect(t *testing.T, r sluice.Result, status, sub int, after time.Duration, want error, activity string, cost float64) {
	t.Helper()
	var e *Error
	if !errors.As(r.Err, &e) || e.Status != status || e.SubStatus != sub || e.ActivityID != activity || r.Cost != cost {
		t.Errorf("%+v (%#v)", r, e)
		return
	}
	retry, _ := errors.AsType[*sluice.RetryError](r.Err)
	switch {
	case want == nil && (retry == nil || retry.After != after):
		t.Errorf("%v: no retry after %v, but %+v", r.Err, after, retry)
	case want != nil && (retry != nil || !errors.Is(r.Err, want)):
		t.Errorf("%v: not %v", r.Err, want)
	}
	if errors.Is(r.Err, sluice.ErrRejected) && errors.Is(r.Err, sluice.ErrOutage) {
		t.Errorf("%v is both", r.Err)
	}
	if text := r.Err.Error(); strings.Contains(text, "\n") || status != 0 && !strings.Contains(text, "/db/docs: ") || strings.Contains(text, testKey) {
		t.Errorf("the text is %s", text)
	}
}

// Each status of a whole batch.
func TestOutcomesOfRequests(t *testing.T) {
	for _, c := range []struct {
		status, sub int
		after       time.Duration
		want        error
	}{
		{status: 429, sub: 3200, after: 1500 * time.Millisecond},
		{status: 408}, {status: 449}, {status: 503}, {status: 410, sub: 1022}, {status: 410, sub: 1002}, {status: 404, sub: 1002},
		{status: 401, want: sluice.ErrOutage}, {status: 403, want: sluice.ErrOutage}, {status: 404, sub: 1003, want: sluice.ErrOutage}, {status: 404, want: sluice.ErrOutage},
		{status: 500, want: sluice.ErrOutage}, {status: 502, want: sluice.ErrOutage}, {status: 409, want: sluice.ErrOutage}, {status: 302, want: sluice.ErrOutage},
	} {
		t.Run(fmt.Sprint(c.status, " ", c.sub), func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			f.answer = func(w http.ResponseWriter, r *http.Request, batch []fakeOperation) bool {
				w.Header().Set("x-ms-substatus", strconv.Itoa(c.sub))
				w.Header().Set("x-ms-retry-after-ms", strconv.FormatInt(c.after.Milliseconds(), 10))
				w.Header().Set("x-ms-activity-id", "a-1")
				w.WriteHeader(c.status)
				fmt.Fprint(w, `{"code":"Code","message":"in the account's words\nand more"}`)
				return true
			}
			for _, r := range submit(t, f.open(t, nil), document(0), document(1)) {
				expect(t, r, c.status, c.sub, c.after, c.want, "a-1", 0)
				if !strings.Contains(r.Err.Error(), "(in the account's words)") {
					t.Errorf("%v", r.Err)
				}
			}
		})
	}
}

func TestAccountIsAway(t *testing.T) {
	f := newFake(t)
	f.Server.Close()
	r := submit(t, f.open(t, nil), document(0))[0]
	expect(t, r, 0, 0, 0, sluice.ErrOutage, "", 0)
	if !strings.Contains(r.Err.Error(), "check the endpoint") {
		t.Errorf("%v", r.Err)
	}
}

// A key that is refused at the start and mended later must not be remembered.
func TestAccountComesBack(t *testing.T) {
	f := newFake(t)
	handler := f.Config.Handler
	var away atomic.Bool
	away.Store(true)
	f.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if away.Load() {
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprint(w, `{"code":"Unauthorized","message":"not this key"}`)
			return
		}
		handler.ServeHTTP(w, r)
	})
	s := f.open(t, nil)
	r := submit(t, s, document(0))[0]
	expect(t, r, 401, 0, 0, sluice.ErrOutage, "", 0)
	if !strings.Contains(r.Err.Error(), "check the key") {
		t.Errorf("%v", r.Err)
	}
	away.Store(false)
	if r := submit(t, s, document(0))[0]; r.Err != nil {
		t.Error(r.Err)
	}
}

func TestTimeoutAndBrokenConnection(t *testing.T) {
	f := newFake(t)
	release := make(chan struct{})
	f.answer = func(w http.ResponseWriter, r *http.Request, batch []fakeOperation) bool {
		if batch[0].ResourceBody["id"] == "0" {
			<-release
			return true
		}
		panic(http.ErrAbortHandler)
	}
	s := f.open(t, &Config{Timeout: 100 * time.Millisecond})
	r := submit(t, s, document(0))[0]
	close(release)
	expect(t, r, 0, 0, 0, nil, "", 0)
	if !errors.Is(r.Err, context.DeadlineExceeded) {
		t.Error(r.Err)
	}
	expect(t, submit(t, s, document(1))[0], 0, 0, 0, nil, "", 0)
}

// The region that takes writes has moved: the SDK looks for the new one, and
// nobody hears of it. If there is none, it is an outage.
func TestWriteRegionMoves(t *testing.T) {
	f := newFake(t)
	var refusals atomic.Int32
	f.answer = func(w http.ResponseWriter, r *http.Request, batch []fakeOperation) bool {
		if refusals.Add(-1) < 0 {
			return false
		}
		w.Header().Set("x-ms-substatus", "3")
		w.WriteHeader(http.StatusForbidden)
		return true
	}
	s := f.open(t, &Config{Timeout: 3 * time.Second})
	refusals.Store(1)
	if r := submit(t, s, document(0))[0]; r.Err != nil || f.count() != 1 {
		t.Errorf("%+v", r)
	}
	refusals.Store(1000)
	expect(t, submit(t, s, document(1))[0], 403, 3, 0, sluice.ErrOutage, "", 0)
}

// Only the part of a batch that is too large is refused.
func TestTooLargeIsHalved(t *testing.T) {
	for _, status := range []int{http.StatusRequestEntityTooLarge, http.StatusBadRequest} {
		f := newFake(t)
		f.answer = func(w http.ResponseWriter, r *http.Request, batch []fakeOperation) bool {
			for _, op := range batch {
				if op.ResourceBody["id"] == "77" {
					w.WriteHeader(status)
					return true
				}
			}
			return false
		}
		for i, r := range submit(t, f.open(t, nil), documents(100)...) {
			if i == 77 {
				expect(t, r, status, 0, 0, sluice.ErrRejected, "", 0)
			} else if r.Err != nil {
				t.Errorf("document %d: %v", i, r.Err)
			}
		}
		if f.count() != 99 {
			t.Errorf("%d documents", f.count())
		}
	}
}

// An account that takes no batches at all must not cost any document.
func TestBatchesAreNotUnderstood(t *testing.T) {
	f := newFake(t)
	f.answer = func(w http.ResponseWriter, r *http.Request, batch []fakeOperation) bool {
		if r.Header.Get("x-ms-cosmos-is-batch-request") != "" {
			w.WriteHeader(http.StatusBadRequest)
			return true
		}
		return false
	}
	for i, r := range submit(t, f.open(t, nil), documents(10)...) {
		if r.Err != nil {
			t.Errorf("document %d: %v", i, r.Err)
		}
	}
}

func TestAnswersThatMakeNoSense(t *testing.T) {
	for _, answer := range []string{``, `{`, `[]`, `{}`, `[{"statusCode":201}]`, `[{"statusCode":201},`, `[1,2]`, `["x",{"statusCode":"y"}]`, `[{"statusCode":201},{"statusCode":201},{"statusCode":201},{"statusCode":500}]`} {
		f := newFake(t)
		f.answer = func(w http.ResponseWriter, r *http.Request, batch []fakeOperation) bool {
			w.WriteHeader(http.StatusMultiStatus)
			fmt.Fprint(w, answer)
			return true
		}
		bad := 0
		for _, r := range submit(t, f.open(t, nil), documents(3)...) {
			if r.Err != nil {
				bad++
				if errors.Is(r.Err, sluice.ErrRejected) {
					t.Errorf("%s: %v", answer, r.Err)
				}
			}
		}
		if want := 3 - strings.Count(answer, "201"); bad != want {
			t.Errorf("%s: %d errors, want %d", answer, bad, want)
		}
	}
}

func TestSplit(t *testing.T) {
	f := newFake(t)
	s := f.open(t, nil)
	submit(t, s, documents(10)...)
	f.replace(func() {
		f.ranges = strings.TrimSuffix(oneRange, "]") + "," + strings.TrimPrefix(twoRanges, "[") // the parent is still listed
		f.answer = func(w http.ResponseWriter, r *http.Request, batch []fakeOperation) bool {
			if r.Header.Get("x-ms-documentdb-partitionkeyrangeid") != "0" {
				return false
			}
			w.Header().Set("x-ms-substatus", "1002")
			w.WriteHeader(http.StatusGone)
			return true
		}
	})
	for i, r := range submit(t, s, documents(1000)...) {
		if r.Err != nil {
			t.Fatalf("document %d: %v", i, r.Err)
		}
	}
	if f.count() != 1000 || f.looks > 10 {
		t.Errorf("%d documents, %d looks at the ranges", f.count(), f.looks)
	}
}

// A list of ranges that was read in the middle of a split is read again.
func TestRangesWithAGap(t *testing.T) {
	f := newFake(t)
	f.ranges = `[{"id":"1","minInclusive":"","maxExclusive":"1FFF"}]`
	s := f.open(t, nil)
	if err := submit(t, s, document(0))[0].Err; !errors.As(err, new(*sluice.RetryError)) {
		t.Error(err)
	}
	f.replace(func() { f.ranges = twoRanges })
	if err := submit(t, s, document(0))[0].Err; err != nil {
		t.Error(err)
	}
}

// A container that is recreated with another key definition.
func TestRecreated(t *testing.T) {
	f := newFake(t)
	s := f.open(t, nil)
	submit(t, s, document(0))
	f.replace(func() {
		f.container, f.ranges = `{"_rid":"r2","partitionKey":{"paths":["/key"],"kind":"Hash"}}`, twoRanges
		f.operation = func(op fakeOperation) map[string]any { return nil }
		f.answer = func(w http.ResponseWriter, r *http.Request, batch []fakeOperation) bool {
			if r.Header.Get("x-ms-documentdb-partitionkeyrangeid") != "0" {
				return false
			}
			w.Header().Set("x-ms-substatus", "1000")
			w.WriteHeader(http.StatusGone)
			return true
		}
	})
	for _, r := range submit(t, s, documents(20)...) {
		if r.Err != nil {
			t.Error(r.Err)
		}
	}
	if d := s.table.Load().hash; d.Version != 1 {
		t.Errorf("the definition is %+v", d)
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
	results := make(chan sluice.Result, 2)
	s.Submit(later, document(1), func(r sluice.Result) { results <- r })
	s.Submit(later, document(2), func(r sluice.Result) { results <- r })
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

// Nothing goes out for a context that has ended, even if nobody has noticed yet.
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
		s.Submit(ctx, document(i), func(r sluice.Result) {
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

// A request on its way is waited for: what is done must not take effect later.
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
	done := make(chan sluice.Result, 1)
	s.Submit(ctx, document(1), func(r sluice.Result) { done <- r })
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
	results := make(chan sluice.Result, 10)
	for i := range 10 {
		s.Submit(t.Context(), document(i), func(r sluice.Result) { results <- r })
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	for range 10 {
		if r := <-results; r.Err != nil {
			t.Error(r.Err)
		}
	}
	s.Submit(t.Context(), document(1), func(r sluice.Result) { results <- r })
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
	results := make(chan sluice.Result, 10)
	for i := range 10 {
		s.Submit(t.Context(), document(i), func(r sluice.Result) { results <- r })
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

// The window grows while all goes well, and is halved by a 429.
func TestConcurrencyAdapts(t *testing.T) {
	f := newFake(t)
	var now, most atomic.Int64
	var throttle atomic.Bool
	f.answer = func(w http.ResponseWriter, r *http.Request, batch []fakeOperation) bool {
		n := now.Add(1)
		defer now.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		if throttle.Load() {
			w.Header().Set("x-ms-retry-after-ms", "1")
			w.WriteHeader(http.StatusTooManyRequests)
			return true
		}
		<-time.After(time.Millisecond) // the way there and back
		return false
	}
	s := f.open(t, &Config{MaxOperations: 10, Concurrency: 5})
	submit(t, s, documents(3000)...)
	q := s.table.Load().queues[0]
	window := func() float64 {
		q.mu.Lock()
		defer q.mu.Unlock()
		return q.window
	}
	if window() < 4 || most.Load() < 4 || most.Load() > 5 {
		t.Errorf("window %v, at most %d at once", window(), most.Load())
	}
	throttle.Store(true)
	submit(t, s, documents(100)...)
	eventually(t, "the window is 1 again", func() bool { return window() == 1 })
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
		{"https://x", testKey, "db", "docs", &Config{Timeout: -1}}, {"https://x", testKey, "db", "docs", &Config{FlushAfter: -1}}, {"https://x", testKey, "db", "docs", &Config{Remember: -1}},
	} {
		if _, err := New(c.endpoint, c.key, c.database, c.container, c.cfg); err == nil || strings.Contains(err.Error(), testKey) || strings.Contains(err.Error(), "u:p") {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if _, err := NewEntra("http://x", nil, "db", "docs", nil); err == nil {
		t.Error("no credential")
	}
}

func TestFifo(t *testing.T) {
	var f fifo
	next, want := 0, 0
	push := func(n int) {
		for range n {
			f.push(&record{bytes: 10, rounds: next})
			next++
		}
	}
	take := func(n, bytes, got int) {
		t.Helper()
		batch := f.take(n, bytes)
		if len(batch) != got {
			t.Fatalf("took %d, want %d", len(batch), got)
		}
		for _, r := range batch {
			if r.rounds != want {
				t.Fatalf("record %d, want %d", r.rounds, want)
			}
			want++
		}
		if f.bytes != 10*f.len() {
			t.Fatalf("%d bytes of %d records", f.bytes, f.len())
		}
	}
	push(5000)
	take(100, 95, 9)
	take(100, 1, 1)
	take(3000, 1e9, 3000)
	push(100)
	if out := f.drop(func(r *record) bool { return r.rounds >= want+500 }); len(out) != next-want-500 || f.len() != 500 {
		t.Errorf("dropped %d, %d are left", len(out), f.len())
	}
	take(1000, 1e9, 500)
	if f.head != 0 || len(f.list) != 0 {
		t.Errorf("%d, %d", f.head, len(f.list))
	}
}

// No part of a key is in what a fault leaves behind.
func TestSecret(t *testing.T) {
	f := newFake(t)
	f.answer = func(w http.ResponseWriter, r *http.Request, batch []fakeOperation) bool {
		if bytes.Contains([]byte(fmt.Sprint(r.Header)), []byte(testKey)) {
			t.Error("the key is in the request")
		}
		w.WriteHeader(http.StatusUnauthorized)
		return true
	}
	s := f.open(t, nil)
	err := submit(t, s, document(0))[0].Err
	for _, text := range []string{err.Error(), fmt.Sprintf("%+v", err), fmt.Sprintf("%#v", err)} {
		if strings.Contains(text, testKey) || strings.Contains(text, "canary") {
			t.Errorf("%s", text)
		}
	}
}

// Whatever the account answers, each record is done once, or on its way to be.
func FuzzAnswer(f *testing.F) {
	for _, s := range []string{`[{"statusCode":201,"requestCharge":6.29,"eTag":"\"e\""},{"statusCode":429,"retryAfterMilliseconds":12},{"statusCode":409}]`, `[{"statusCode":1e9}]`, `[[]]`, `[`} {
		f.Add([]byte(s))
	}
	s, err := New("http://127.0.0.1:1", testKey, "db", "docs", nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			f.Error(err)
		}
	})
	f.Fuzz(func(t *testing.T, answer []byte) {
		q := newQueue(s, "0", epk.Whole)
		var done [4]atomic.Int32
		var batch []*record
		for i := range done {
			d := document(i)
			if i > 1 {
				d.Source = &Source{Partition: "0", Sequence: 1}
			}
			r := &record{ctx: t.Context(), doc: d, done: func(sluice.Result) { done[i].Add(1) }}
			if err := r.check(); err != nil {
				t.Fatal(err)
			}
			s.plan(r)
			s.live.Add(1)
			batch = append(batch, r)
		}
		req := &request{status: 207, head: http.Header{}}
		req.answer.Write(answer)
		q.land(batch, req)
		for _, r := range q.leave() {
			s.finish(r, sluice.Result{})
		}
		eventually(t, "all are done", func() bool { return s.live.Load() == 0 })
		for i := range done {
			if n := done[i].Load(); n != 1 {
				t.Errorf("record %d is done %d times", i, n)
			}
		}
	})
}

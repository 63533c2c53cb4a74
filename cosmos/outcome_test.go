package cosmos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/partitionkey"
	"github.com/sluice-go/sluice/internal/proof/need"
)

// Each status of an operation, alone in a batch among others that go well.
func TestOutcomesOfOperations(t *testing.T) {
	for _, c := range []struct {
		status, sub int
		retryAfter  time.Duration
		want        error // nil: a RetryError with after
	}{
		{status: 429, sub: 3200, retryAfter: 1500 * time.Millisecond},
		{status: 408}, {status: 449}, {status: 503}, {status: 424}, {status: 410, sub: 1022}, {status: 404, sub: 1002},
		{status: 400, want: sluice.ErrRejected}, {status: 413, want: sluice.ErrRejected},
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
				return map[string]any{"statusCode": c.status, "subStatusCode": c.sub, "requestCharge": 0.5, "retryAfterMilliseconds": c.retryAfter.Milliseconds()}
			}
			results := submit(t, f.open(t, nil), document(0), document(1), document(2))
			if results[0].Err != nil || results[2].Err != nil {
				t.Errorf("the neighbours: %v, %v", results[0].Err, results[2].Err)
			}
			expect(t, results[1], c.status, c.sub, c.retryAfter, c.want, "", 0.5)
		})
	}
}

func expect(t *testing.T, r driver.WriteResult, status, sub int, after time.Duration, want error, activity string, cost float64) {
	t.Helper()
	var e *Error
	if !errors.As(r.Err, &e) || e.Status != status || e.SubStatus != sub || e.ActivityID != activity || r.Cost != cost {
		t.Errorf("%+v (%#v)", r, e)
		return
	}
	retry, _ := errors.AsType[*driver.RetryError](r.Err)
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
		retryAfter  time.Duration
		want        error
	}{
		{status: 429, sub: 3200, retryAfter: 1500 * time.Millisecond},
		{status: 408}, {status: 449}, {status: 503}, {status: 410, sub: 1022}, {status: 410, sub: 1002}, {status: 404, sub: 1002},
		{status: 401, want: sluice.ErrOutage}, {status: 403, want: sluice.ErrOutage}, {status: 404, sub: 1003, want: sluice.ErrOutage}, {status: 404, want: sluice.ErrOutage},
		{status: 500, want: sluice.ErrOutage}, {status: 502, want: sluice.ErrOutage}, {status: 409, want: sluice.ErrOutage}, {status: 302, want: sluice.ErrOutage},
	} {
		t.Run(fmt.Sprint(c.status, " ", c.sub), func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			f.answer = func(w http.ResponseWriter, r *http.Request, batch []fakeOperation) bool {
				w.Header().Set("x-ms-substatus", strconv.Itoa(c.sub))
				w.Header().Set("x-ms-retry-after-ms", strconv.FormatInt(c.retryAfter.Milliseconds(), 10))
				w.Header().Set("x-ms-activity-id", "a-1")
				w.WriteHeader(c.status)
				fmt.Fprint(w, `{"code":"Code","message":"in the account's words\nand more"}`)
				return true
			}
			for _, r := range submit(t, f.open(t, nil), document(0), document(1)) {
				expect(t, r, c.status, c.sub, c.retryAfter, c.want, "a-1", 0)
				if !strings.Contains(r.Err.Error(), "(in the account's words)") {
					t.Errorf("%v", r.Err)
				}
			}
		})
	}
}

// In a request of its own a document that is not found is one thing, and a
// container another.
func TestOutcomesOfPointRequests(t *testing.T) {
	for _, c := range []struct {
		op          Operation
		status, sub int
		want        error
	}{
		{Upsert, 404, 0, sluice.ErrOutage}, {Create, 404, 0, sluice.ErrOutage}, {Replace, 404, 0, sluice.ErrRejected}, {Replace, 404, 1003, sluice.ErrOutage},
		{Upsert, 400, 0, sluice.ErrRejected}, {Upsert, 413, 0, sluice.ErrRejected}, {Upsert, 429, 3200, nil}, {Upsert, 401, 0, sluice.ErrOutage}, {Upsert, 500, 0, sluice.ErrOutage},
	} {
		f := newFake(t)
		f.answer = func(w http.ResponseWriter, r *http.Request, batch []fakeOperation) bool {
			w.Header().Set("x-ms-substatus", strconv.Itoa(c.sub))
			w.WriteHeader(c.status)
			return true
		}
		d := document(0)
		d.Operation = c.op
		expect(t, submit(t, f.open(t, &Config{Mode: Point}), d)[0], c.status, c.sub, 0, c.want, "", 0)
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

// A key that is refused at the start and accepted later must not stay refused.
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
		switch batch[0].ResourceBody["id"] {
		case "0":
			<-release
			return true
		case "1":
			panic(http.ErrAbortHandler)
		}
		return false
	}
	s := f.open(t, &Config{Timeout: time.Second})
	untilWritten(t, s, document(2)) // which looks the container up, under the same timeout
	r := submit(t, s, document(0))[0]
	close(release)
	expect(t, r, 0, 0, 0, nil, "", 0)
	if !errors.Is(r.Err, context.DeadlineExceeded) {
		t.Error(r.Err)
	}
	expect(t, submit(t, s, document(1))[0], 0, 0, 0, nil, "", 0)
}

// The region that takes writes has moved: the SDK looks for the new one, every second, and
// nobody hears of it. If there is none, it is an outage.
func TestWriteRegionMoves(t *testing.T) {
	need.RealTime(t)
	t.Parallel()
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
	s := f.open(t, &Config{Timeout: 5500 * time.Millisecond})
	refusals.Store(1)
	if r := submit(t, s, document(0))[0]; r.Err != nil || f.count() != 1 {
		t.Errorf("%+v", r)
	}
	refusals.Store(1000)
	expect(t, submit(t, s, document(1))[0], 403, 3, 0, sluice.ErrOutage, "", 0)
}

// A region that does not answer in time after it has refused a write has refused it.
func TestRefusedThenSilent(t *testing.T) {
	need.RealTime(t)
	t.Parallel()
	f := newFake(t)
	release := make(chan struct{})
	var times atomic.Int32
	f.answer = func(w http.ResponseWriter, r *http.Request, batch []fakeOperation) bool {
		if batch[0].ResourceBody["id"] != "1" {
			return false
		}
		if times.Add(1) > 1 {
			<-release
			return true
		}
		w.Header().Set("x-ms-substatus", "3")
		w.WriteHeader(http.StatusForbidden)
		return true
	}
	s := f.open(t, &Config{Timeout: 4 * time.Second})
	untilWritten(t, s, document(0))
	r := submit(t, s, document(1))[0]
	close(release)
	expect(t, r, 403, 3, 0, sluice.ErrOutage, "", 0)
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
		if bad != 3 { // which operation an outcome belongs to is not known
			t.Errorf("%s: %d errors, want 3", answer, bad)
		}
	}
}

// No error contains a part of a key.
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
		q := newQueue(s, "0", partitionkey.Whole)
		var done [4]atomic.Int32
		var batch []*record
		for i := range done {
			d := document(i)
			if i > 1 {
				d.Source = &Source{Partition: "0", Sequence: 1}
			}
			r := &record{ctx: t.Context(), doc: d, done: func(driver.WriteResult) { done[i].Add(1) }}
			if err := r.check(); err != nil {
				t.Fatal(err)
			}
			s.firstStep(r)
			s.pending.Add(1)
			batch = append(batch, r)
		}
		req := &request{status: 207, head: http.Header{}}
		req.answer.Write(answer)
		q.complete(batch, req)
		for _, r := range q.close() {
			s.finish(r, driver.WriteResult{})
		}
		eventually(t, "all are done", func() bool { return s.pending.Load() == 0 })
		for i := range done {
			if n := done[i].Load(); n != 1 {
				t.Errorf("record %d is done %d times", i, n)
			}
		}
	})
}

// TestAnswerIsTooLarge: 413 with the sub-status 3402 says that the answer to a batch was
// too large, not the document. The operation is tried again, with fewer others, and
// never rejected.
func TestAnswerIsTooLarge(t *testing.T) {
	const fits = 3 // operations of a batch
	f := newFake(t)
	answered := 0
	f.answer = func(_ http.ResponseWriter, r *http.Request, batch []fakeOperation) bool {
		f.replace(func() { answered = 0 })
		return false
	}
	f.operation = func(op fakeOperation) map[string]any {
		f.mu.Lock()
		defer f.mu.Unlock()
		if answered++; answered > fits {
			return map[string]any{"statusCode": 413, "subStatusCode": 3402, "requestCharge": 0.5}
		}
		return nil
	}
	s := f.open(t, &Config{Concurrency: 1})
	for i, r := range submit(t, s, documents(20)...) {
		if r.Err != nil {
			t.Errorf("document %d: %v", i, r.Err)
		}
	}
	if f.count() != 20 {
		t.Errorf("%d documents", f.count())
	}

	f.replace(func() {
		f.operation = func(fakeOperation) map[string]any { return map[string]any{"statusCode": 413, "subStatusCode": 3402} }
	})
	if r := submit(t, s, document(30))[0]; errors.Is(r.Err, sluice.ErrRejected) || !strings.Contains(fmt.Sprint(r.Err), "the answer") {
		t.Errorf("alone: %v", r.Err)
	}
}

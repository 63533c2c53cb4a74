package cosmos

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/need"
)

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
		<-time.After(20 * time.Millisecond) // a round trip, in which the other requests begin on a busy machine too
		return false
	}
	s := f.open(t, &Config{MaxOperations: 10, Concurrency: 5})
	submit(t, s, documents(3000)...)
	q := s.routes.Load().queues[0]
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

func TestFifo(t *testing.T) {
	var f fifo
	next, want := 0, 0
	push := func(n int) {
		for range n {
			f.push(&record{bytes: 10, attempts: next})
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
			if r.attempts != want {
				t.Fatalf("record %d, want %d", r.attempts, want)
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
	if out := f.drop(func(r *record) bool { return r.attempts >= want+500 }); len(out) != next-want-500 || f.len() != 500 {
		t.Errorf("dropped %d, %d are left", len(out), f.len())
	}
	take(1000, 1e9, 500)
	if f.head != 0 || len(f.list) != 0 {
		t.Errorf("%d, %d", f.head, len(f.list))
	}
}

// A batch that is not full is sent at once while no request is in flight, and after
// FlushAfter otherwise.
func TestFlush(t *testing.T) {
	need.RealTime(t)
	const flushAfter = 10 * time.Second // five documents are submitted within it
	f := newFake(t)
	arrived, release := make(chan int, 10), make(chan struct{})
	f.answer = func(w http.ResponseWriter, r *http.Request, batch []fakeOperation) bool {
		arrived <- len(batch)
		<-release
		return false
	}
	s := f.open(t, &Config{FlushAfter: flushAfter, Timeout: time.Minute}) // the first request stays
	defer close(release)
	if err := s.lookUpOnce(t); err != nil {
		t.Fatal(err)
	}
	q := s.routes.Load().queues[0]
	q.mu.Lock()
	q.window = 2
	q.mu.Unlock()
	send := func(n int) time.Duration {
		began := time.Now()
		for i := range n {
			s.Submit(t.Context(), document(i), func(driver.WriteResult) {})
		}
		if got := <-arrived; got != n {
			t.Errorf("a batch of %d, want %d", got, n)
		}
		return time.Since(began)
	}
	send(1)
	if took := send(5); took < flushAfter {
		t.Errorf("a part-filled batch went after %v, while another was on its way", took)
	}
}

// lookUpOnce makes the sink know the container.
func (s *Sink) lookUpOnce(t *testing.T) error {
	if _, e := s.updateRoutes(t.Context()); e != nil {
		return e
	}
	return nil
}

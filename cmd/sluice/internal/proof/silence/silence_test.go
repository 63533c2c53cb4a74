//go:build linux

package silence

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/need"
	"github.com/sluice-go/sluice/sluicetest"
	"github.com/sluice-go/sluice/sqlstore"
)

// leaseFor is short, so that the tests are.
const leaseFor = 3 * time.Second

var group = driver.Group{Namespace: "ns", Topic: "flights", Name: "$Default"}

// watch measures from a strike to the first report of it, and to the first progress after that.
type watch struct {
	clock    clock
	mu       sync.Mutex
	struck   time.Duration // by the clock; 0: not yet
	reported time.Duration
	report   string
	moved    time.Duration
	done     chan struct{} // closed when all is measured
	works    chan struct{} // gets one when the consumer has committed
	void     chan struct{} // gets one when the strike must be repeated; nil if it can't be
}

func newWatch(t *testing.T) *watch {
	now := time.Now()
	w := &watch{clock: clock{began: now, last: now}, done: make(chan struct{}), works: make(chan struct{}, 1)}
	every(t, func(int) error {
		w.clock.read()
		return nil
	})
	return w
}

// strike begins the measurement.
func (w *watch) strike() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.struck = w.clock.read()
}

// clock stands still while a busy machine does not let this process run. It must be read every
// tick.
type clock struct {
	mu          sync.Mutex
	began, last time.Time
	lost        time.Duration
}

const tick = 10 * time.Millisecond

func (c *clock) read() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if late := now.Sub(c.last) - tick; late > tick {
		c.lost += late
	}
	c.last = now
	return now.Sub(c.began) - c.lost
}

func (w *watch) Observe(o driver.Observation) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if o.Kind == driver.KindCommitted && o.Events > 0 {
		signal(w.works)
	}
	switch {
	case w.struck == 0 || w.moved != 0:
	case w.reported == 0 && o.Kind == driver.KindLost && w.void != nil:
		// The machine was too busy to renew the lease. The reader and the work that were struck are
		// gone.
		w.struck = 0
		signal(w.void)
	case w.reported == 0 && o.Err != nil && (o.Kind == driver.KindFailed || o.Kind == driver.KindStalled || o.Kind == driver.KindUnknown):
		w.reported, w.report = w.clock.read()-w.struck, o.Err.Error()
	case w.reported != 0 && o.Kind == driver.KindCommitted && o.Events > 0:
		w.moved = w.clock.read() - w.struck
		close(w.done)
	}
}

func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// measure runs a consumer until strike has been called and its effect is measured. It fails the
// test if the report took longer than a lease, or the progress longer than two.
func measure(t *testing.T, w *watch, source driver.Source, leases driver.LeaseStore, delivery sluice.Delivery, strike func()) {
	t.Helper()
	consumer, err := sluice.New(source, leases, delivery, &sluice.Config{
		LeaseFor: leaseFor, SilentAfter: leaseFor / 4, AssignEvery: 50 * time.Millisecond, RetryMin: 20 * time.Millisecond, RetryMax: 200 * time.Millisecond, Observer: w,
	})
	if err != nil {
		t.Fatal(err)
	}
	if strike != nil {
		w.void = make(chan struct{}, 1)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- consumer.Run(ctx) }()
	defer func() {
		stop()
		<-ended
	}()
	timeout := time.After(time.Minute)
	await := func(what string, done <-chan struct{}) bool {
		select {
		case <-done:
		case <-w.void:
			return false
		case err := <-ended:
			ended <- nil
			t.Fatalf("the consumer ended: %v", err)
		case <-timeout:
			t.Fatalf("not within a minute: %s (%s)", what, w.report)
		}
		return true
	}
	for over := false; !over; over = await("it goes on after the strike", w.done) {
		signal(w.works)
		<-w.works // one from before
		await("the consumer works", w.works)
		if strike != nil {
			strike()
			w.strike()
		}
	}
	t.Logf("lease %v: reported after %v (%s), moving again after %v", leaseFor, w.reported.Round(time.Millisecond), w.report, w.moved.Round(time.Millisecond))
	const busy = time.Second // what a busy machine may add unseen by the clock
	if w.reported > leaseFor+busy || w.moved > 2*leaseFor+busy {
		t.Errorf("reported after %v, moving again after %v: want at most %v and %v", w.reported, w.moved, leaseFor, 2*leaseFor)
	}
}

// filling is a hub in memory to which an event is appended every ten milliseconds.
func filling(t *testing.T) *sluicetest.Hub {
	hub := sluicetest.NewHub(group, 1)
	every(t, func(n int) error {
		hub.Append("0", &driver.Event{Body: fmt.Append(nil, n)})
		return nil
	})
	return hub
}

// every calls fn every tick until the test's end.
func every(t *testing.T, fn func(n int) error) {
	ctx, stop := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() {
		defer close(over)
		ticker := time.NewTicker(tick)
		defer ticker.Stop()
		for n := 0; ; n++ {
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return
			}
			if err := fn(n); err != nil && ctx.Err() == nil {
				t.Error(err)
				return
			}
		}
	}()
	t.Cleanup(func() { stop(); <-over })
}

// Another process holds the write lock of the SQLite file for a lease.
func TestSQLite(t *testing.T) {
	need.RealTime(t)
	path := filepath.Join(t.TempDir(), "x.db")
	s, err := sqlstore.OpenSQLite(path, &sqlstore.Config{BusyTimeout: leaseFor / 3})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	w := newWatch(t)
	delivery := sluice.Transactional(s, func(context.Context, *sqlstore.Tx, sluice.Batch) error { return nil })
	measure(t, w, filling(t), s.Leases(), delivery, func() {
		tx, err := s.DB().BeginTx(t.Context(), nil)
		if err == nil {
			_, err = tx.Exec("CREATE TABLE held (x)") // takes the lock
		}
		if err != nil {
			t.Fatal(err)
		}
		timer := time.AfterFunc(leaseFor, func() { tx.Rollback() })
		t.Cleanup(func() { timer.Stop(); tx.Rollback() })
	})
}

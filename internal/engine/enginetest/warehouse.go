package enginetest

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
)

// Warehouse is a sink whose records are events: it takes its time, and says
// no as it is told to.
type Warehouse struct {
	Takes func(e *sluice.Event) time.Duration
	Says  func(e *sluice.Event, attempt int) error

	Mu       sync.Mutex // guards what follows
	calls    sync.WaitGroup
	attempts map[int64]int
	written  []int64        // in the order of their completion
	Sent     []time.Time    // when each attempt began
	Flying   map[string]int // in flight now, by key
	Most     map[string]int // in flight at once, by key
	all      int
	AllMost  int // in flight at once
}

// NewWarehouse returns a sink that takes all records, each in a millisecond.
func NewWarehouse(t *testing.T) *Warehouse {
	w := &Warehouse{attempts: map[int64]int{}, Flying: map[string]int{}, Most: map[string]int{}}
	t.Cleanup(w.calls.Wait)
	return w
}

// HangsAt makes event n take an hour, and the others a millisecond.
func (w *Warehouse) HangsAt(n int64) {
	w.Takes = func(e *sluice.Event) time.Duration {
		if e.Sequence == n {
			return time.Hour
		}
		return time.Millisecond
	}
}

// Submit is driver.Sink.
func (w *Warehouse) Submit(ctx context.Context, e *sluice.Event, done func(driver.WriteResult)) {
	w.Mu.Lock()
	defer w.Mu.Unlock()
	w.Sent = append(w.Sent, time.Now())
	w.attempts[e.Sequence]++
	attempt := w.attempts[e.Sequence]
	w.Flying[e.Key]++
	w.all++
	w.Most[e.Key] = max(w.Most[e.Key], w.Flying[e.Key])
	w.AllMost = max(w.AllMost, w.all)
	takes := time.Millisecond
	if w.Takes != nil {
		takes = w.Takes(e)
	}
	w.calls.Go(func() {
		var err error
		select {
		case <-time.After(takes):
			if w.Says != nil {
				err = w.Says(e, attempt)
			}
		case <-ctx.Done():
			err = ctx.Err()
		}
		w.Mu.Lock()
		if err == nil {
			w.written = append(w.written, e.Sequence)
		}
		w.Flying[e.Key]--
		w.all--
		w.Mu.Unlock()
		done(driver.WriteResult{Err: err, Cost: 2})
	})
}

// Rows returns the events that were written, in the order of their completion.
func (w *Warehouse) Rows() []int64 {
	w.Mu.Lock()
	defer w.Mu.Unlock()
	return slices.Clone(w.written)
}

// Tries returns how often an event was submitted.
func (w *Warehouse) Tries(sequence int64) int {
	w.Mu.Lock()
	defer w.Mu.Unlock()
	return w.attempts[sequence]
}

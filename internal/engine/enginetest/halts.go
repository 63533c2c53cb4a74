package enginetest

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/sluicetest"
)

// Halts collects the errors that halt a partition, and the failures.
type Halts struct {
	mu             sync.Mutex
	Halted, Failed []error
}

// Observe is driver.Observer.
func (h *Halts) Observe(o driver.Observation) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch o.Kind {
	case driver.KindHalted:
		h.Halted = append(h.Halted, o.Err)
	case driver.KindFailed:
		h.Failed = append(h.Failed, o.Err)
	}
}

// Read runs a consumer for a minute and returns the events that took effect.
func (h *Halts) Read(t *testing.T, source driver.Source, leases *Ledger, store *sluicetest.Store, atLeastOnce bool, start sluice.Start) []int64 {
	w := NewWarehouse(t)
	var mu sync.Mutex
	var applied []int64
	delivery := sluice.AtLeastOnce(store, sluice.EventAsRecord, w, nil)
	if !atLeastOnce {
		delivery = sluice.Transactional(store, func(_ context.Context, _ *sluicetest.Tx, b sluice.Batch) error {
			mu.Lock()
			defer mu.Unlock()
			for _, e := range b.Events {
				applied = append(applied, e.Sequence)
			}
			return nil
		})
	}
	c := Must(sluice.New(source, leases, delivery, &sluice.Config{Start: start, Observer: h}))
	ran := make(chan error, 1)
	go func() { ran <- c.Run(t.Context()) }()
	time.Sleep(time.Minute)
	if err := c.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-ran; err != nil {
		t.Error(err)
	}
	if atLeastOnce {
		applied = w.Rows()
		slices.Sort(applied)
	}
	return applied
}

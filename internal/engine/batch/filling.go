package batch

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine"
	"github.com/sluice-go/sluice/internal/engine/partition"
)

// filling is the wait of a batch for further events.
type filling struct {
	waits bool
	until time.Duration // by Clock.Elapsed
	wakes atomic.Bool   // a goroutine will wake the delivery, for this batch or for an earlier one
}

// take returns the next batch, nothing while it waits for further events. Then a goroutine of
// wakers wakes the delivery when the wait is over.
func (w *worker[Tx]) take(ctx context.Context, wakers *sync.WaitGroup) ([]*driver.Event, error) {
	cfg := w.a.Settings
	rest := w.filling.wait(w.buffer, w.limit.now, cfg)
	if rest == 0 {
		return w.buffer.TakeBatch(w.limit.now, int64(cfg.PrefetchBytes))
	}
	if w.filling.wakes.CompareAndSwap(false, true) {
		wakers.Go(func() { w.filling.wake(ctx, cfg.Clock, rest, w.buffer.Ready) })
	}
	return nil, nil
}

// wait returns for how long a batch of up to n events still waits for further ones at most.
func (f *filling) wait(buffer *partition.Buffer, n int, cfg *engine.Settings) time.Duration {
	if cfg.FillFor == 0 {
		return 0
	}
	some, full := buffer.Filled(n, int64(cfg.FillTo))
	now := cfg.Clock.Elapsed()
	switch {
	case !some || full || f.waits && now >= f.until:
		f.waits = false
		return 0
	case !f.waits:
		f.waits, f.until = true, now+cfg.FillFor
	}
	return f.until - now
}

// wake wakes the delivery after a time, unless ctx ends before.
func (f *filling) wake(ctx context.Context, clock driver.Clock, after time.Duration, delivery chan struct{}) {
	err := clock.Sleep(ctx, after)
	f.wakes.Store(false)
	if err == nil {
		partition.Wake(delivery)
	}
}

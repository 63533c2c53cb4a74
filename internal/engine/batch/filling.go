package batch

import (
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine"
	"github.com/sluice-go/sluice/internal/engine/partition"
)

// filling is the wait of a batch for further events.
type filling struct {
	waits bool
	end   time.Duration // by Clock.Elapsed
}

// take returns the next batch, nothing while it waits for further events.
func (w *worker[Tx]) take() ([]*driver.Event, error) {
	cfg := w.a.Settings
	if w.filling.wait(w.buffer, w.limit.now, cfg) {
		return nil, nil
	}
	return w.buffer.TakeBatch(w.limit.now, int64(cfg.PrefetchBytes))
}

// wait reports whether a batch of up to n events waits for further ones.
func (f *filling) wait(buffer *partition.Buffer, n int, cfg *engine.Settings) bool {
	if cfg.FillFor == 0 {
		return false
	}
	some, full := buffer.Filled(n, int64(cfg.FillTo))
	now := cfg.Clock.Elapsed()
	switch {
	case !some || full || f.waits && now >= f.end:
		f.waits = false
	case !f.waits:
		f.waits, f.end = true, now+cfg.FillFor
	}
	return f.waits
}

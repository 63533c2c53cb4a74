package batch

import (
	"time"

	"github.com/sluice-go/sluice/internal/engine"
)

// batchLimit is how many events a transaction may take. Few large transactions cost the
// database less than many small ones. But a transaction must end well within the lease,
// and a crash undoes all of it. So the limit grows only while transactions are short.
type batchLimit struct {
	now         int
	first, most int           // it grows from first to most; below first only a failure brings it
	short, long time.Duration // shorter transactions let it grow, longer ones halve it
}

// firstLimit is how many events a transaction may take before it is known how long it takes.
const firstLimit = 1000

func newBatchLimit(cfg *engine.Settings) batchLimit {
	first := min(firstLimit, cfg.MaxBatch)
	if cfg.FillFor > 0 {
		first = cfg.MaxBatch // batches are to be as large as is configured
	}
	return batchLimit{now: first, first: first, most: cfg.MaxBatch, short: cfg.LeaseFor / 20, long: cfg.LeaseFor / 5}
}

// shrink halves the limit after a transaction of n events was not done: what is too much
// for one transaction may fit into two, and an event that no transaction gets past is found
// and named.
func (l *batchLimit) shrink(n int) { l.now = max(n/2, 1) }

// adapt changes the limit after a transaction of n events was done.
func (l *batchLimit) adapt(n int, took time.Duration) {
	switch {
	case l.now < l.first:
		l.now = min(2*l.now, l.first)
	case took > l.long:
		l.now = max(l.now/2, l.first)
	case took < l.short && n > l.now/2:
		l.now = min(2*l.now, l.most)
	}
}

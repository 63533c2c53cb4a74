package sim

import (
	"context"
	"time"
)

// roundTrip is how long a driver's own round trip within Commit may take, as
// [driver.TxStore] demands. The engine bounds its other requests itself.
const roundTrip = 10 * time.Second

// neverHung are requests that do not hang in this way: a reader falls silent instead,
// and a sink has a time limit of its own.
var neverHung = []string{"fetch", "write", "append"}

// bounded returns the context of a driver's own round trip.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, roundTrip)
}

// fallsSilent decides whether a reader returns nothing from now on.
func (r *reader) fallsSilent() bool {
	if r.silent || !r.w.has(silentReaders) || r.secondStage || !r.w.troubled() {
		return r.silent
	}
	r.silent = r.w.coin(0.02, r.name+" silence "+r.partition)
	if r.silent {
		r.w.count("reader that falls silent")
		r.w.mu.Lock()
		r.w.laneOf(r.topic(), r.partition).silence = &silence{process: r.process, life: r.w.life, read: r.last}
		r.w.mu.Unlock()
	}
	return r.silent
}

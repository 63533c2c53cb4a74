package sqlstore

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/sluice-go/sluice/internal/clock"
)

// SQLite has one write lock and no queue for it: a process that waits for it polls. A process that
// begins its next transaction immediately after the last would lock the others out for ever,
// because none of them polls in that moment. Therefore a process that has written without a pause
// for a turn pauses, long enough for every waiting process to poll.
const (
	askEvery = time.Millisecond
	turn     = 200 * time.Millisecond
	interval = 4 * askEvery
)

// turns limits how long a process writes without a pause. The zero value is ready to use.
type turns struct {
	mu    sync.Mutex
	began time.Time // of the turn
	ended time.Time // of the last transaction
}

// take pauses for the interval if the turn is over. The caller holds the writing connection, so
// that no other goroutine of this process writes meanwhile.
func (t *turns) take(ctx context.Context) error {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	idle := time.Since(t.ended)
	if idle < interval && time.Since(t.began) < turn {
		return nil
	}
	if idle < interval {
		if err := clock.Sleep(ctx, interval-idle); err != nil {
			return err
		}
	}
	t.began = time.Now()
	return nil
}

// end records the end of a transaction.
func (t *turns) end() {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = time.Now()
}

// retryBusy calls ask until the database is not held by another process, or until busy has passed.
func retryBusy(ctx context.Context, d dialect, busy time.Duration, ask func() error) error {
	deadline := time.Now().Add(busy)
	for {
		err := ask()
		if d.fault(err) != faultBusy || time.Now().After(deadline) {
			return err
		}
		if err := clock.Sleep(ctx, askEvery+rand.N(askEvery)); err != nil {
			return err
		}
	}
}

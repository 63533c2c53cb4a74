package sqlstore

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/sluice-go/sluice/internal/clock"
)

// SQLite has one write lock and no queue for it: who waits asks now and then.
// A process that begins its next transaction the moment one has ended would
// keep the others out for ever, because none asks in just that moment. So a
// process that has written without a break for a turn makes one, long enough
// that all who wait ask in it.
const (
	askEvery = time.Millisecond
	turn     = 200 * time.Millisecond
	interval = 4 * askEvery
)

// turns keeps a process's turns. The zero value is ready to use.
type turns struct {
	mu    sync.Mutex
	began time.Time // of the turn
	ended time.Time // of the last transaction
}

// take waits for the interval if the turn is over. It is called with the
// writing connection in hand, so that nobody of this process goes in between.
func (t *turns) take(ctx context.Context) error {
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

// end notes the end of a transaction.
func (t *turns) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = time.Now()
}

// retryBusy asks until the database is not held by another process, or until
// busy is over.
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

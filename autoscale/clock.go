package autoscale

import (
	"context"
	"time"

	"github.com/sluice-go/sluice"
)

// systemClock is the time of the system, or of a bubble of testing/synctest.
type systemClock struct{ origin time.Time }

func (c systemClock) Wall() time.Time        { return time.Now() }
func (c systemClock) Elapsed() time.Duration { return time.Since(c.origin) }

func (c systemClock) Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func clockOr(c sluice.Clock) sluice.Clock {
	if c == nil {
		return systemClock{origin: time.Now()}
	}
	return c
}

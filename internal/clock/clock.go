// Package clock reads the system's time; in a bubble of testing/synctest, the
// bubble's.
package clock

import (
	"context"
	"time"
)

// System is the system's clock. Make it with [New].
type System struct{ origin time.Time }

// New makes a clock whose elapsed time starts now.
func New() System { return System{time.Now()} }

// Wall returns the time of day, which can be set and can jump.
func (System) Wall() time.Time { return time.Now() }

// Elapsed returns the monotonic time since the clock was made.
func (c System) Elapsed() time.Duration { return time.Since(c.origin) }

// Sleep is [Sleep].
func (System) Sleep(ctx context.Context, d time.Duration) error { return Sleep(ctx, d) }

// Sleep returns nil after d, or ctx's error if that ends first.
func Sleep(ctx context.Context, d time.Duration) error {
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

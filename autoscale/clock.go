package autoscale

import (
	"context"
	"time"

	"github.com/sluice-go/sluice/internal/clock"
)

// Clock is the time that the parts work with. The default is the system's; tests
// replace it. Implementations must be safe for concurrent use.
type Clock interface {
	// Wall returns the time of day, which can be set and can jump.
	Wall() time.Time
	// Elapsed returns the monotonic time since some fixed moment.
	Elapsed() time.Duration
	// Sleep returns nil after d, or ctx's error if ctx ends first.
	Sleep(ctx context.Context, d time.Duration) error
}

// clockOr returns c, or the system's clock if c is nil.
func clockOr(c Clock) Clock {
	if c == nil {
		return clock.New()
	}
	return c
}

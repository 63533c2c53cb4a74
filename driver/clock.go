package driver

import (
	"context"
	"time"
)

// Clock is the engine's time. The default is the system's; tests replace it.
type Clock interface {
	// Wall is the time of day, which can be set and can jump.
	Wall() time.Time
	// Elapsed is monotonic time since some fixed moment. It may stand still
	// while the machine is suspended.
	Elapsed() time.Duration
	// Sleep returns nil after d, or ctx's error if that ends first.
	Sleep(ctx context.Context, d time.Duration) error
}

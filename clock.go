package sluice

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

// deadline is a moment that has passed as soon as either clock says so: the
// wall clock notices a suspended machine, the monotonic one a wall clock that
// was set back.
type deadline struct {
	wall    time.Time
	elapsed time.Duration
}

func deadlineIn(c Clock, d time.Duration) deadline {
	return deadline{wall: c.Wall().Round(0).Add(d), elapsed: c.Elapsed() + d}
}

// left is the time until the deadline, not positive once it has passed.
func (d deadline) left(c Clock) time.Duration {
	return min(d.wall.Sub(c.Wall().Round(0)), d.elapsed-c.Elapsed())
}

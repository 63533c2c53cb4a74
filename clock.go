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

// deadline is a moment that has passed as soon as either clock says so. The wall clock
// notices that the machine was suspended, the monotonic clock that the wall clock was set
// back.
type deadline struct {
	wall    time.Time
	elapsed time.Duration
}

func deadlineIn(c Clock, d time.Duration) deadline {
	return deadline{wall: c.Wall().Round(0).Add(d), elapsed: c.Elapsed() + d}
}

// left returns the time until the deadline. It is not positive once that has passed.
func (d deadline) left(c Clock) time.Duration {
	return min(d.wall.Sub(c.Wall().Round(0)), d.elapsed-c.Elapsed())
}

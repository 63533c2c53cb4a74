package sluice

import (
	"time"

	"github.com/sluice-go/sluice/driver"
)

// deadline is a moment that has passed as soon as either clock says so. The wall clock
// notices that the machine was suspended, the monotonic clock that the wall clock was set
// back.
type deadline struct {
	wall    time.Time
	elapsed time.Duration
}

func deadlineIn(c driver.Clock, d time.Duration) deadline {
	return deadline{wall: c.Wall().Round(0).Add(d), elapsed: c.Elapsed() + d}
}

// left returns the time until the deadline. It is not positive once that has passed.
func (d deadline) left(c driver.Clock) time.Duration {
	return min(d.wall.Sub(c.Wall().Round(0)), d.elapsed-c.Elapsed())
}

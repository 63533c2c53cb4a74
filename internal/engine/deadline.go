package engine

import (
	"time"

	"github.com/sluice-go/sluice/driver"
)

// Deadline is a moment that has passed as soon as either clock says so. The wall clock
// notices that the machine was suspended, the monotonic clock that the wall clock was set
// back.
type Deadline struct {
	Wall    time.Time
	Elapsed time.Duration
}

func DeadlineIn(c driver.Clock, d time.Duration) Deadline {
	return Deadline{Wall: c.Wall().Round(0).Add(d), Elapsed: c.Elapsed() + d}
}

// Left returns the time until the deadline. It is not positive once that has passed.
func (d Deadline) Left(c driver.Clock) time.Duration {
	return min(d.Wall.Sub(c.Wall().Round(0)), d.Elapsed-c.Elapsed())
}

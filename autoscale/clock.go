package autoscale

import (
	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/clock"
)

// clockOr is the clock given, or else the system's.
func clockOr(c sluice.Clock) sluice.Clock {
	if c == nil {
		return clock.New()
	}
	return c
}

package pipelines

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestWithin: what has not ended in time after the interruption is late; without one it never is.
func TestWithin(t *testing.T) {
	for name, c := range map[string]struct {
		interrupted bool
		lasts       time.Duration // after the interruption
		want        bool
	}{
		"in time":         {true, 29 * time.Second, false},
		"late":            {true, 31 * time.Second, true},
		"no interruption": {false, time.Hour, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				interrupted, interrupt := context.WithCancel(t.Context())
				defer interrupt()
				var after time.Duration
				ended := watchdog(interrupted, 30*time.Second, func(limit time.Duration) { after = limit })
				time.Sleep(time.Hour) // the time before the interruption does not count
				if c.interrupted {
					interrupt()
				}
				time.Sleep(c.lasts)
				ended()
				if (after != 0) != c.want {
					t.Errorf("late after %v", after)
				}
			})
		})
	}
}

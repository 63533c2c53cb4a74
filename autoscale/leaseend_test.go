package autoscale

import (
	"testing"
	"time"
)

// TestLeaseEnd: a lease has ended when either clock has reached its end: a machine that was
// suspended has only the wall clock to see it by, and one whose clock was set back only the
// monotonic one.
func TestLeaseEnd(t *testing.T) {
	now := time.Now()
	for _, c := range []struct{ monotonic, wall, want time.Duration }{
		{12 * time.Second, 12 * time.Second, 12 * time.Second},
		{12 * time.Second, -time.Hour, -time.Hour},          // suspended for an hour
		{-time.Second, time.Hour, -time.Second},             // the clock was set back by an hour
		{3 * time.Second, 2 * time.Second, 2 * time.Second}, // the clock was set by a second
	} {
		end := leaseEnd{now.Add(c.monotonic), now.Add(c.wall).Round(0)}
		if got := end.left(now); got != c.want {
			t.Errorf("%v by the monotonic clock, %v by the wall clock: %v are left, want %v", c.monotonic, c.wall, got, c.want)
		}
	}
	if got := endAt(now.Add(time.Minute)).left(now); got != time.Minute {
		t.Errorf("of a minute %v are left", got)
	}
	if got := (leaseEnd{}).left(now); got > 0 {
		t.Errorf("without a lease %v are left", got)
	}
}

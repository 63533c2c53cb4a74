package sqlstore_test

import (
	"testing"
	"time"

	"github.com/sluice-go/sluice/autoscale"
)

// TestClockSetBack: a lease is kept when the clock is set back a little, as by NTP, and has
// expired when it is set back far.
func TestClockSetBack(t *testing.T) {
	s, db := openBoth(t)
	lease := func(owner string) autoscale.Lease { return autoscale.Lease{Owner: owner, Duration: time.Hour} }
	if _, err := s.TakeLease(t.Context(), "r", lease("a")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		span time.Duration
		want bool // it is still held
	}{{time.Minute, true}, {3 * time.Hour, false}} {
		if _, err := db.Exec("UPDATE leases SET until = until + ?", int64(c.span)); err != nil {
			t.Fatal(err)
		}
		held, err := s.TakeLease(t.Context(), "r", lease("b"))
		if err != nil || (held != nil) != c.want {
			t.Errorf("set back by %v: the lease is held by %+v, %v", c.span, held, err)
		}
	}
}

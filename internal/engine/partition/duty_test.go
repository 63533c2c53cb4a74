package partition_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/internal/clock"
	"github.com/sluice-go/sluice/internal/engine/partition"
)

// A timer wakes once, at the time that was set last: also if that is earlier or later than the
// time it waits for.
func TestTimer(t *testing.T) {
	const s = time.Second
	cases := map[string][]struct{ delay, set time.Duration }{
		"once":            {{0, 10 * s}},
		"earlier":         {{0, 60 * s}, {1 * s, 10 * s}},
		"later":           {{0, 2 * s}, {1 * s, 10 * s}},
		"later, earlier":  {{0, 2 * s}, {1 * s, 30 * s}, {3 * s, 10 * s}},
		"not, then again": {{0, 2 * s}, {1 * s, partition.Never}, {5 * s, 10 * s}},
	}
	for name, sets := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				now := clock.New()
				delivery := make(chan struct{}, 1)
				timer := partition.NewTimer(now, delivery)
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan struct{})
				go func() { timer.Run(ctx); close(ended) }()
				for _, set := range sets {
					time.Sleep(set.delay - now.Elapsed())
					timer.Set(set.set)
				}
				<-delivery
				if got := now.Elapsed(); got != 10*s {
					t.Errorf("woke after %v, want 10 s", got)
				}
				time.Sleep(time.Hour)
				synctest.Wait()
				select {
				case <-delivery:
					t.Error("woke once more")
				default:
				}
				cancel()
				<-ended
			})
		})
	}
}

// A duty that was due long ago is done once, not once for each time that it missed.
func TestDuty(t *testing.T) {
	d := partition.Every(10*time.Second, time.Minute)
	for _, c := range []struct {
		now  time.Duration
		want bool
	}{{69 * time.Second, false}, {70 * time.Second, true}, {70 * time.Second, false}, {5 * time.Minute, true}, {5*time.Minute + 9*time.Second, false}, {5*time.Minute + 10*time.Second, true}} {
		if got := d.Due(c.now); got != c.want {
			t.Errorf("due at %v: %v, want %v", c.now, got, c.want)
		}
	}
	if never := (partition.Duty{Next: partition.Never}); never.Due(1000 * time.Hour) {
		t.Error("a duty that is not to be done was due")
	}
}

package limiter

import (
	"context"
	"math"
	"slices"
	"sync"
	"testing"
	"time"
)

// handClock is moved by the test, and by who sleeps on it: for one goroutine.
type handClock struct {
	now  time.Duration
	late func() time.Duration // how late a sleeper wakes
}

func (c *handClock) Elapsed() time.Duration { return c.now }

func (c *handClock) Sleep(ctx context.Context, d time.Duration) error {
	c.now += max(d, 0)
	if c.late != nil {
		c.now += c.late()
	}
	return ctx.Err()
}

// record is what was granted, in order.
type record struct {
	mu     sync.Mutex
	grants []grants
}

func (r *record) add(at time.Duration, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.grants = append(r.grants, grants{at, n})
}

// total is how much was granted in [from, to).
func (r *record) total(from, to time.Duration) (n int) {
	for _, g := range r.grants {
		if from <= g.time && g.time < to {
			n += g.n
		}
	}
	return n
}

// windows returns the least and the most grants that a half-open window of a
// second holds. The fullest windows end directly after a grant; the emptiest end
// right before one, and of those count the ones that begin after warm.
func (r *record) windows(warm time.Duration) (least, most int) {
	slices.SortStableFunc(r.grants, func(a, b grants) int { return int(a.time - b.time) })
	least = math.MaxInt
	before, within := 0, 0 // grants in [g.time-1s, g.time), and in (g.time-1s, g.time]
	begin, end, old := 0, 0, 0
	for _, g := range r.grants {
		for ; r.grants[end].time < g.time; end++ {
			before += r.grants[end].n
		}
		for ; r.grants[begin].time < g.time-time.Second; begin++ {
			before -= r.grants[begin].n
		}
		if g.time-time.Second >= warm {
			least = min(least, before)
		}
		within += g.n
		for ; r.grants[old].time <= g.time-time.Second; old++ {
			within -= r.grants[old].n
		}
		most = max(most, within)
	}
	return least, most
}

func (r *record) atMost(t *testing.T, perSecond int) {
	t.Helper()
	if _, most := r.windows(0); most > perSecond {
		t.Fatalf("a window of a second holds %d grants, %d more than the rate", most, most-perSecond)
	}
}

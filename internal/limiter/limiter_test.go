package limiter

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/internal/clock"
)

func mustNew(t testing.TB, perSecond int, clock Clock) *Limiter {
	t.Helper()
	l, err := New(perSecond, clock)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// callers wait in loops for up to most grants until the context ends, and
// record what they got when they have it.
func callers(ctx context.Context, l *Limiter, clock Clock, callers, most int) *record {
	r := &record{}
	var done sync.WaitGroup
	for range callers {
		done.Go(func() {
			for {
				n, err := l.Wait(ctx, most)
				if err != nil {
					return
				}
				r.add(clock.Elapsed(), n)
			}
		})
	}
	done.Wait()
	return r
}

var rates = []int{1, 9, 10, 1_000, 50_000}

// With demand enough every window of a second holds exactly the rate: no more,
// not at the start either, and no less.
func TestExact(t *testing.T) {
	for _, n := range append(rates, 2, 3, 7, 11, 99, 333, 999, 1_001, 1_500, 1_999, 2_001, 12_345, 333_333, 999_999, 1_000_000) {
		for _, c := range []struct{ callers, most int }{{1, MaxRate}, {1, max(n/1_700, 1)}, {64, max(n/300, 1)}} {
			synctest.Test(t, func(t *testing.T) {
				clock := clock.New()
				l := mustNew(t, n, clock)
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
				defer cancel()
				r := callers(ctx, l, clock, c.callers, c.most)
				least, most := r.windows(0)
				if least != n || most != n {
					t.Errorf("%d per second for %d callers of up to %d: windows hold %d to %d", n, c.callers, c.most, least, most)
				}
				if begin := r.total(0, time.Second/10); begin > n/10+(n+999)/1000 {
					t.Errorf("%d per second: %d in the first tenth of a second", n, begin)
				}
			})
		}
	}
}

// Any rate, any demand, timers that are late: the promise in full, which is
// that the second up to a grant never holds more than the rate in force.
func TestAnyRate(t *testing.T) {
	for seed := range uint64(150) {
		rng := rand.New(rand.NewPCG(seed, 2))
		clock := &handClock{now: time.Duration(rng.Int64N(1e12))}
		clock.late = func() time.Duration {
			if rng.IntN(50) > 0 {
				return time.Duration(rng.ExpFloat64() * float64(100*time.Microsecond))
			}
			return time.Duration(rng.ExpFloat64() * float64(50*time.Millisecond))
		}
		n := 1 + int(float64(MaxRate)*pow(rng.Float64(), 6))
		l := mustNew(t, n, clock)
		var granted []grants // within the last second
		sum := 0
		for range 2_000 {
			switch rng.IntN(1000) {
			case 0:
				n = 1 + int(float64(MaxRate)*pow(rng.Float64(), 6))
				if err := l.SetRate(n); err != nil {
					t.Fatal(err)
				}
			case 1:
				clock.now += time.Duration(rng.ExpFloat64() * float64(time.Second)) // nobody asks
			}
			got, err := l.Wait(t.Context(), 1+rng.IntN(max(n/100, 2)))
			if err != nil || got < 1 {
				t.Fatalf("seed %d: Wait: %d, %v", seed, got, err)
			}
			granted = append(granted, grants{clock.now, got})
			sum += got
			for ; granted[0].time <= clock.now-time.Second; granted = granted[1:] {
				sum -= granted[0].n
			}
			if sum > n {
				t.Fatalf("seed %d: %d in the second up to a grant, at a rate of %d", seed, sum, n)
			}
		}
	}
}

func pow(x float64, n int) float64 {
	y := 1.0
	for range n {
		y *= x
	}
	return y
}

// What due says is true: nothing a nanosecond before, something then.
func TestDue(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 3))
		clock := &handClock{}
		n := 1 + int(float64(MaxRate)*pow(rng.Float64(), 6))
		l := mustNew(t, n, clock)
		for range 2_000 {
			want := 1 + rng.IntN(max(n/100, 2))
			if rng.IntN(300) == 0 {
				n = 1 + int(float64(MaxRate)*pow(rng.Float64(), 6))
				l.SetRate(n)
			}
			if l.take(clock.now, want, true) > 0 {
				continue
			}
			at := l.due(clock.now, want)
			if at <= clock.now || at > clock.now+time.Second {
				t.Fatalf("seed %d: nothing is due, but will be in %v", seed, at-clock.now)
			}
			if early := l.take(at-1, want, true); early > 0 {
				t.Fatalf("seed %d: %d a nanosecond before they are due", seed, early)
			}
			if clock.now = at; l.take(at, want, true) == 0 {
				t.Fatalf("seed %d: nothing when it is due", seed)
			}
		}
	}
}

// Late timers cost the time that they are late, and not more: what is due
// meanwhile is made up for.
func TestLate(t *testing.T) {
	for _, n := range rates[3:] {
		clock := &handClock{}
		wakes := 0
		clock.late = func() time.Duration {
			if wakes++; wakes%100 == 0 {
				return 50 * time.Millisecond
			}
			return 0
		}
		l := mustNew(t, n, clock)
		var r record
		for clock.now < 30*time.Second {
			got, _ := l.Wait(t.Context(), n)
			r.add(clock.now, got)
		}
		r.atMost(t, n)
		if got := r.total(0, 30*time.Second); got < 30*n*96/100 {
			t.Errorf("%d per second with late timers: %.4f of it", n, float64(got)/float64(30*n))
		}
	}
}

// A time without demand makes no burst.
func TestIdle(t *testing.T) {
	for _, n := range rates {
		clock := &handClock{}
		l := mustNew(t, n, clock)
		for _, idle := range []time.Duration{time.Second / 2, time.Minute, 24 * time.Hour} {
			clock.now += idle
			from, got := clock.now, 0
			for {
				k, _ := l.Wait(t.Context(), n)
				if clock.now-from >= 100*time.Millisecond {
					break
				}
				got += k
			}
			if most := (n*120+999)/1000 + (n+999)/1000; got > most {
				t.Errorf("%d per second, after %v without demand: %d within 100 ms, want %d at most", n, idle, got, most)
			}
		}
	}
}

// A change holds at once, also for who is asleep by then.
func TestSetRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := clock.New()
		l := mustNew(t, 1, clock)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		changes := []struct {
			time time.Duration
			rate int
		}{
			{2500 * time.Millisecond, 20_000},
			{5 * time.Second, 500},
			{8 * time.Second, 0},
			{10 * time.Second, 1_000_000},
			{12 * time.Second, 3},
			{15 * time.Second, 4},
			{18 * time.Second, 1},
		}
		var r *record
		var done sync.WaitGroup
		done.Go(func() { r = callers(ctx, l, clock, 8, 500) })
		for _, c := range changes {
			time.Sleep(c.time - clock.Elapsed())
			if err := l.SetRate(c.rate); err != nil {
				t.Fatal(err)
			}
		}
		done.Wait()

		for i, c := range changes {
			end := 20 * time.Second
			if i+1 < len(changes) {
				end = changes[i+1].time
			}
			part := &record{}
			for _, g := range r.grants {
				if c.time < g.time && g.time < end {
					part.add(g.time, g.n)
				}
			}
			part.atMost(t, c.rate)
			// The moment of the change belongs to both rates.
			before := 1
			if i > 0 {
				before = changes[i-1].rate
			}
			if early := r.total(c.time, c.time+10*time.Millisecond); early > c.rate/100+(before+c.rate+999)/1000+1 {
				t.Errorf("%d grants in the 10 ms after the rate became %d", early, c.rate)
			}
			if got := r.total(c.time+time.Second, end); c.rate > 0 {
				if want := c.rate * int(end-c.time-time.Second) / int(time.Second); got < want-1 {
					t.Errorf("at a rate of %d: %d grants of %d", c.rate, got, want)
				}
			}
		}
		// While the rate falls, no window holds more than the higher rate.
		r.grants = slices.DeleteFunc(r.grants, func(g grants) bool { return g.time >= 10*time.Second })
		r.atMost(t, 20_000)
	})
}

// Change after change makes no burst: what has become due at one rate is not
// handed out at the next, and every change keeps the distance to the last grant.
func TestManyChanges(t *testing.T) {
	clock := &handClock{}
	l := mustNew(t, MaxRate, clock)
	l.Wait(t.Context(), 1)
	l.SetRate(1_000)
	if n := l.take(clock.now, MaxRate, true); n > 0 {
		t.Errorf("%d grants at once, at 1,000 per second, left from a higher rate", n)
	}
	clock.now += time.Second
	got := 0
	for i := range 10_000 { // a second
		l.SetRate(500 + i%2)
		got += l.take(clock.now, MaxRate, true)
		clock.now += 100 * time.Microsecond
	}
	if got < 499 || got > 501 {
		t.Errorf("%d grants in a second of rates of 500 and 501", got)
	}
}

// A lower rate waits for the last second to thin out, and is even from there on.
func TestLower(t *testing.T) {
	clock := &handClock{}
	l := mustNew(t, 1000, clock)
	for clock.now < time.Second {
		l.Wait(t.Context(), 1)
	}
	l.SetRate(3)
	var last time.Duration
	for i := range 10 {
		l.Wait(t.Context(), 1)
		if apart := clock.now - last; i > 0 && apart < time.Second/3 {
			t.Errorf("grants %v apart at 3 per second", apart)
		}
		last = clock.now
	}
	if clock.now > 5*time.Second {
		t.Errorf("the tenth grant came after %v", clock.now)
	}
}

// After a time in which nobody could run, there is a limit to what is made up for.
func TestStall(t *testing.T) {
	clock := &handClock{}
	l := mustNew(t, 1000, clock)
	l.Wait(t.Context(), 1)
	clock.late = func() time.Duration { return 10 * time.Second }
	n, _ := l.Wait(t.Context(), 1000)
	if n != 252 {
		t.Errorf("%d grants at once after a stall, at 1,000 per second; want 252", n)
	}
}

// oversleeper is a clock on which sleepers wake an hour late, unless woken.
type oversleeper struct{ clock.System }

func (c oversleeper) Sleep(ctx context.Context, d time.Duration) error {
	return c.System.Sleep(ctx, d+time.Hour)
}

// If the first in line does not wake, whoever comes serves the line.
func TestFirstAsleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := clock.New()
		l := mustNew(t, 10, oversleeper{clock})
		l.Wait(t.Context(), 1)
		for range 3 {
			var done sync.WaitGroup
			done.Go(func() { l.Wait(t.Context(), 1) })
			time.Sleep(150 * time.Millisecond)
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			l.Wait(ctx, 1)
			cancel()
			done.Wait()
		}
		if took := clock.Elapsed(); took > 500*time.Millisecond {
			t.Errorf("the first in line overslept: %v", took)
		}
	})
}

// A higher rate does not wait for who sleeps at the lower.
func TestRaiseWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := clock.New()
		l := mustNew(t, 1000, clock)
		for _, rate := range []int{1, 0} {
			l.Wait(t.Context(), 1)
			l.SetRate(rate)
			var done sync.WaitGroup
			from := clock.Elapsed()
			for range 3 {
				done.Go(func() { l.Wait(t.Context(), 1) })
			}
			time.Sleep(100 * time.Millisecond)
			l.SetRate(1000)
			done.Wait()
			if took := clock.Elapsed() - from; took > 110*time.Millisecond {
				t.Errorf("three grants took %v, the rate was raised from %d to 1,000 after 100 ms", took, rate)
			}
			time.Sleep(time.Second)
		}
	})
}

// First come, first served, however many wait; and who gives up is not missed.
func TestOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := clock.New()
		l := mustNew(t, 10, clock)
		l.Wait(t.Context(), 1)
		var mu sync.Mutex
		var order []string
		var done sync.WaitGroup
		for i := range 20 {
			ctx, cancel := context.WithCancel(t.Context())
			done.Go(func() {
				defer cancel()
				_, err := l.Wait(ctx, 1)
				mu.Lock()
				defer mu.Unlock()
				order = append(order, fmt.Sprint(i, " ", err))
			})
			synctest.Wait()
			if i%5 == 0 { // also the first in line, who sleeps for all
				done.Go(func() {
					time.Sleep(time.Duration(i) * time.Millisecond)
					cancel()
				})
			}
		}
		done.Wait()
		var want []string
		for i := 0; i < 20; i += 5 {
			want = append(want, fmt.Sprint(i, " ", context.Canceled))
		}
		for i := range 20 {
			if i%5 > 0 {
				want = append(want, fmt.Sprint(i, " ", nil))
			}
		}
		if !slices.Equal(order, want) {
			t.Errorf("got %q\nwant %q", order, want)
		}
		if took := clock.Elapsed(); took != 1600*time.Millisecond {
			t.Errorf("16 grants after the first took %v", took)
		}
	})
}

func TestCanceled(t *testing.T) {
	l := mustNew(t, 1, &handClock{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if n, err := l.Wait(ctx, 1); n != 0 || !errors.Is(err, context.Canceled) {
		t.Errorf("Wait: %d, %v", n, err)
	}
}

func TestBadRate(t *testing.T) {
	for _, n := range []int{-1, 0, MaxRate + 1} {
		if _, err := New(n, &handClock{}); err == nil {
			t.Errorf("New(%d): no error", n)
		}
	}
	l := mustNew(t, MaxRate, &handClock{})
	for _, n := range []int{-1, MaxRate + 1} {
		if err := l.SetRate(n); err == nil {
			t.Errorf("SetRate(%d): no error", n)
		}
	}
}

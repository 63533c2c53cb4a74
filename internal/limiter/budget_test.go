package limiter

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/internal/clock"
)

func mustBudget(t testing.TB, perSecond float64, clock Clock) *Budget {
	t.Helper()
	b, err := NewBudget(perSecond, clock)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// spend reserves the same estimate again and again until a moment, and returns
// how many.
func spend(b *Budget, clock *handClock, estimate float64, until time.Duration) (n int) {
	for {
		b.Reserve(context.Background(), estimate)
		if clock.now >= until {
			return n
		}
		n++
	}
}

// Reservations are spread evenly, from the start, and take pace of the rate.
func TestEven(t *testing.T) {
	clock := &handClock{}
	b := mustBudget(t, 10_000, clock)
	for tenth := range 100 {
		n := spend(b, clock, 10, time.Duration(tenth+1)*time.Second/10)
		if want := 10_000 * pace / 10 / 10; math.Abs(float64(n)-want) > 2 {
			t.Errorf("in the %dth tenth of a second: %d reservations, want %.0f", tenth, n, want)
		}
	}
}

// Within a second no more than ceiling is reserved, whatever timers, demand and
// costs do; only what is settled above its estimate may come on top, and holds
// up what follows.
func TestCeiling(t *testing.T) {
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 5))
		clock := &handClock{now: time.Duration(rng.Int64N(1e12))}
		clock.late = func() time.Duration {
			return time.Duration(rng.ExpFloat64() * float64(10*time.Millisecond) * float64(rng.IntN(2)))
		}
		rate := math.Floor(100 + 10_000*rng.Float64())
		b := mustBudget(t, rate, clock)
		var r record
		for range 1_000 {
			if rng.IntN(100) == 0 {
				clock.now += time.Duration(rng.ExpFloat64() * float64(time.Second))
			}
			estimate := rate * portion * rng.Float64()
			if err := b.Reserve(t.Context(), estimate); err != nil {
				t.Fatal(err)
			}
			r.add(clock.now, max(units(estimate), 1))
			actual := estimate * (0.7 + 0.6*rng.Float64())
			b.Settle(estimate, actual)
			r.add(clock.now, units(actual)-max(units(estimate), 1))
			if sum, most := r.total(clock.now-time.Second+1, clock.now+1), units(rate*ceiling); sum > most+units(rate*portion*0.3) {
				t.Fatalf("seed %d: %d units within a second, want %d", seed, sum, most)
			}
		}
	}
}

// A cost above the estimate is a debt, which the next reservation waits for;
// one below it is given back.
func TestSettle(t *testing.T) {
	for _, c := range []struct {
		estimate, actual float64
		wait             time.Duration
	}{
		{100, 100, 10 * time.Millisecond},
		{100, 250, 25 * time.Millisecond},
		{100, 5000, 500 * time.Millisecond},
		{100, 40, 4 * time.Millisecond},
		{100, 0, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			clock := clock.New()
			b := mustBudget(t, 10_000/pace, clock)
			b.Reserve(t.Context(), c.estimate)
			var done sync.WaitGroup
			done.Go(func() { b.Reserve(t.Context(), 1) })
			synctest.Wait()
			b.Settle(c.estimate, c.actual)
			done.Wait()
			if took := clock.Elapsed().Round(time.Microsecond); took != c.wait {
				t.Errorf("%v RU reserved, %v charged: the next waited %v, want %v", c.estimate, c.actual, took, c.wait)
			}
		})
	}
}

// What a second has no room for goes alone, and is paid for.
func TestLarge(t *testing.T) {
	clock := &handClock{}
	b := mustBudget(t, 1000, clock)
	b.Reserve(t.Context(), 10)
	b.Reserve(t.Context(), 5000)
	if clock.now != time.Second {
		t.Errorf("reserved after %v", clock.now)
	}
	b.Reserve(t.Context(), 10)
	// It waited for a second to pass, some of which counts as earned meanwhile.
	if least := time.Second - stallCredit + seconds(5/pace); clock.now < least || clock.now > least+stallCredit {
		t.Errorf("the next was reserved after %v, want %v at least", clock.now, least)
	}
}

func TestBudgetHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := clock.New()
		b := mustBudget(t, 10_000, clock)
		b.Reserve(t.Context(), 1)
		b.Hold(300 * time.Millisecond)
		b.Hold(100 * time.Millisecond)
		b.Reserve(t.Context(), 100)
		if took := clock.Elapsed(); took != 300*time.Millisecond {
			t.Errorf("reserved after %v", took)
		}
		b.Reserve(t.Context(), 100)
		if took := clock.Elapsed(); took < 310*time.Millisecond {
			t.Errorf("a burst after the hold: the next after %v", took)
		}
	})
}

// What is given back during a hold does not end it.
func TestSettleInHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := clock.New()
		b := mustBudget(t, 1000, clock)
		b.Reserve(t.Context(), 300)
		b.Hold(time.Second)
		b.Settle(300, 0)
		b.Reserve(t.Context(), 1)
		if took := clock.Elapsed(); took != time.Second {
			t.Errorf("reserved after %v", took)
		}
	})
}

// What is owed at one rate is paid at the next.
func TestBudgetSetRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := clock.New()
		b := mustBudget(t, 10, clock)
		b.Reserve(t.Context(), 100) // ten seconds' worth
		var done sync.WaitGroup
		done.Go(func() { b.Reserve(t.Context(), 1) })
		time.Sleep(5 * time.Second)
		b.SetRate(1_000)
		done.Wait()
		if took := clock.Elapsed() - 5*time.Second; took < 40*time.Millisecond || took > 60*time.Millisecond {
			t.Errorf("50 RU of debt took %v at 1,000 RU/s", took)
		}
		if got := b.Portion(); got != 20 {
			t.Errorf("the portion is %v RU", got)
		}

		b.SetRate(0)
		done.Go(func() { b.Reserve(t.Context(), 1) })
		time.Sleep(time.Minute)
		b.SetRate(1_000)
		from := clock.Elapsed()
		done.Wait()
		if took := clock.Elapsed() - from; took > 0 || from < time.Minute {
			t.Errorf("reserved %v after the pause", took)
		}
	})
	for _, rate := range []float64{-1, 0, math.NaN(), math.Inf(1), 1e300} {
		if _, err := NewBudget(rate, &handClock{}); err == nil {
			t.Errorf("NewBudget(%v): no error", rate)
		}
	}
}

// Senseless figures neither hang nor panic, and cost no more than they say.
func TestSenseless(t *testing.T) {
	clock := &handClock{}
	b := mustBudget(t, 1000, clock)
	for _, ru := range []float64{0, -1, math.NaN(), math.Inf(-1), 1e-300} {
		b.Reserve(t.Context(), ru)
		b.Settle(ru, ru)
	}
	if clock.now > time.Millisecond {
		t.Errorf("nothing took %v", clock.now)
	}
	b.Reserve(t.Context(), math.Inf(1))
	b.Settle(math.Inf(1), 1)
	b.Reserve(t.Context(), 1)
	if clock.now > 2*time.Second {
		t.Errorf("1 RU took %v", clock.now)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.Reserve(ctx, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("Reserve: %v", err)
	}
}

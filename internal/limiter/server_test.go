package limiter

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/internal/clock"
)

// server counts the RU of one physical partition, in one of two ways: per
// second of its own clock, or as a bucket that holds one second's worth.
type server struct {
	rate   float64
	bucket bool
	phase  time.Duration // where its seconds begin

	mu           sync.Mutex
	second       time.Duration // the one that used counts for
	used         float64
	filled       time.Duration // when left was true
	left         float64
	charged      float64
	done, denied int
}

// charge carries out an operation; or answers 429, and when to come again.
func (s *server) charge(now time.Duration, cost float64) (retryAfter time.Duration, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left = min(s.rate, s.left+(now-s.filled).Seconds()*s.rate)
	s.filled = now
	if second := (now + s.phase) / time.Second; second != s.second {
		s.second, s.used = second, 0
	}
	switch {
	case s.bucket && s.left < cost:
		s.denied++
		return 10 * time.Millisecond, false
	case !s.bucket && s.used+cost > s.rate:
		s.denied++
		return (s.second+1)*time.Second - s.phase - now, false
	}
	s.left -= cost
	s.used += cost
	s.charged += cost
	s.done++
	return 0, true
}

// stalling is a clock on a machine that now and then lets nobody run for 60 ms.
type stalling struct{ clock.System }

func (c stalling) Sleep(ctx context.Context, d time.Duration) error {
	const every, stall = 707 * time.Millisecond, 60 * time.Millisecond
	if err := c.System.Sleep(ctx, d); err != nil {
		return err
	}
	if at := c.Elapsed() % every; at < stall {
		return c.System.Sleep(ctx, stall-at)
	}
	return nil
}

// load is a sink's: bulk requests of as many operations as a budget's portion
// pays for by their mean cost as seen lately, several under way at a time, of
// operations that cost 30 % more or less.
type load struct {
	budget *Budget
	server *server
	clock  Clock

	mu   sync.Mutex
	mean float64 // RU of an operation
}

func (l *load) send(ctx context.Context, rng *rand.Rand) {
	for {
		l.mu.Lock()
		mean := l.mean
		l.mu.Unlock()
		ops := min(100, max(1, int(l.budget.Portion()/mean)))
		estimate := float64(ops) * mean
		if l.budget.Reserve(ctx, estimate) != nil {
			return
		}
		l.travel(rng)
		var actual float64
		var retry time.Duration // when to come again
		done := 0
		for range ops {
			cost := 6.3 * (0.7 + 0.6*rng.Float64())
			if after, ok := l.server.charge(l.clock.Elapsed(), cost); ok {
				actual += cost
				done++
			} else {
				retry = l.clock.Elapsed() + after
			}
		}
		l.travel(rng)
		l.budget.Settle(estimate, actual)
		if done < ops {
			l.budget.Hold(retry - l.clock.Elapsed())
		}
		if done > 0 {
			l.mu.Lock()
			l.mean += (actual/float64(done) - l.mean) * 0.05
			l.mu.Unlock()
		}
	}
}

// travel is a request's or a response's way: 4 ms, sometimes 20.
func (l *load) travel(rng *rand.Rand) {
	time.Sleep(time.Millisecond + time.Duration(rng.ExpFloat64()*float64(3*time.Millisecond)))
}

// simulate lets 16 senders share a budget for a minute. The server may be
// provisioned otherwise than the budget.
func simulate(t *testing.T, budget, provisioned float64, bucket, stalls bool, seed uint64) (s *server) {
	// In which order goroutines run that wake at one instant decides who is turned away.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(seed, 7))
		system := clock.New()
		var clock Clock = system
		if stalls {
			clock = stalling{system}
		}
		b, err := NewBudget(budget, clock)
		if err != nil {
			t.Fatal(err)
		}
		s = &server{rate: provisioned, left: provisioned, bucket: bucket, phase: time.Duration(rng.Int64N(int64(time.Second)))}
		l := &load{budget: b, server: s, clock: clock, mean: 5} // at first it knows no better
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var senders sync.WaitGroup
		for i := range uint64(16) {
			senders.Go(func() { l.send(ctx, rand.New(rand.NewPCG(seed, 100+i))) })
		}
		senders.Wait()
	})
	return s
}

// Nearly all that is provisioned is used, and nearly nothing is turned away,
// whichever way the server counts: 98 % and 0.05 %; or at the least that a
// container can have, where an operation is 1.6 % of a second, 97 % and 0.2 %.
func TestUse(t *testing.T) {
	for _, c := range []struct{ rate, used, denied float64 }{
		{400, 0.97, 0.002},
		{1_000, 0.98, 0.0005},
		{10_000, 0.98, 0.0005},
	} {
		for _, bucket := range []bool{false, true} {
			for _, stalls := range []bool{false, true} {
				var charged float64
				var done, denied int
				const seeds = 15
				for seed := range uint64(seeds) {
					s := simulate(t, c.rate, c.rate, bucket, stalls, seed)
					charged += s.charged
					done += s.done
					denied += s.denied
				}
				used, turned := charged/c.rate/60/seeds, float64(denied)/float64(done+denied)
				t.Logf("%5.0f RU/s, a bucket: %-5v stalls: %-5v %.2f %% used, %.4f %% answered 429", c.rate, bucket, stalls, 100*used, 100*turned)
				if used < c.used {
					t.Errorf("%.0f RU/s: %.4f of it used, want %v", c.rate, used, c.used)
				}
				if turned > c.denied {
					t.Errorf("%.0f RU/s: %.6f turned away, want %v", c.rate, turned, c.denied)
				}
			}
		}
	}
}

// A budget that says twice what is provisioned heeds retry-after: the server
// is used in full, and is not flooded.
func TestTooMuch(t *testing.T) {
	for seed := range uint64(3) {
		s := simulate(t, 20_000, 10_000, false, false, seed)
		if used := s.charged / s.rate / 60; used < 0.98 {
			t.Errorf("%.4f of what is provisioned was used", used)
		}
		if turned := float64(s.denied) / float64(s.done+s.denied); turned > 0.15 {
			t.Errorf("%.4f of the operations were turned away", turned)
		}
	}
}

package limit

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func mustShares(t testing.TB, perSecond, partitions int, clock Clock) *Shares {
	t.Helper()
	s, err := NewShares(perSecond, partitions, clock)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestShare(t *testing.T) {
	for _, partitions := range []int{1, 2, 3, 8, 32, 2000} {
		for _, n := range []int{1, 9, 1000, 24_001, MaxRate} {
			sum := 0
			for i := range partitions {
				share := Share(n, partitions, i)
				if share < n/partitions || share > n/partitions+1 {
					t.Errorf("Share(%d, %d, %d) is %d", n, partitions, i, share)
				}
				sum += share
			}
			if sum != n {
				t.Errorf("the shares of %d among %d add up to %d", n, partitions, sum)
			}
		}
	}
}

// Partitions wander among three processes; the cluster never grants more than
// its rate in a second, and all of it while nothing moves.
func TestCluster(t *testing.T) {
	for _, n := range []int{8, 333, 100_000} {
		synctest.Test(t, func(t *testing.T) {
			const partitions, end = 8, 24 * time.Second
			clock := newSystemClock()
			ctx, cancel := context.WithTimeout(t.Context(), end)
			defer cancel()
			var r record
			var done sync.WaitGroup
			var processes [3]*Shares
			for i := range processes {
				s := mustShares(t, n, partitions, clock)
				processes[i] = s
				for range 4 {
					done.Go(func() {
						for {
							got, err := s.Wait(ctx, 1+n/100)
							if err != nil {
								return
							}
							r.add(clock.Elapsed(), got)
						}
					})
				}
			}
			rng := rand.New(rand.NewPCG(uint64(n), 1))
			var owner [partitions]*Shares
			for p := range owner {
				owner[p] = processes[p%3]
				owner[p].Own(p)
			}
			for range 30 { // until second 17 or so
				time.Sleep(time.Duration(rng.Int64N(int64(time.Second))))
				p := rng.IntN(partitions)
				owner[p].Disown(p)
				if rng.IntN(2) == 0 {
					time.Sleep(time.Duration(rng.Int64N(int64(100 * time.Millisecond))))
				}
				owner[p] = processes[rng.IntN(3)]
				owner[p].Own(p)
				owner[p].Own(p) // changes nothing
			}
			settled := clock.Elapsed() + 3*time.Second
			done.Wait()
			if early := r.total(0, time.Second); early > 0 {
				t.Errorf("%d grants before any share counts", early)
			}
			if least, most := r.windows(settled); most > n || least < n {
				t.Errorf("%d per second among three: windows hold up to %d, and once nothing moves %d at least", n, most, least)
			}
		})
	}
}

func TestSharesSetRate(t *testing.T) {
	clock := &handClock{}
	s := mustShares(t, 1000, 4, clock)
	s.Own(1)
	for _, rate := range []int{1000, 40, 100_000} {
		if err := s.SetRate(rate); err != nil {
			t.Fatal(err)
		}
		clock.now += 3 * time.Second
		from, got := clock.now, 0
		for {
			n, _ := s.Wait(t.Context(), MaxRate)
			if clock.now >= from+2*time.Second {
				break
			}
			got += n
		}
		if want := 2 * rate / 4; got < want || got > want+want/40 { // and what 20 ms idle leave
			t.Errorf("one of four shares of %d: %d grants in two seconds, want %d", rate, got, want)
		}
	}
	from := clock.now
	s.Own(1) // it is owned already
	if s.Wait(t.Context(), 1); clock.now > from+time.Millisecond {
		t.Errorf("to own a partition twice took its share away for %v", clock.now-from)
	}
	for _, c := range []struct{ rate, partitions int }{{0, 1}, {3, 4}, {MaxRate + 1, 4}, {10, 0}, {10, -1}} {
		if _, err := NewShares(c.rate, c.partitions, clock); err == nil {
			t.Errorf("NewShares(%d, %d): no error", c.rate, c.partitions)
		}
	}
	if err := s.SetRate(3); err == nil {
		t.Error("SetRate(3) for 4 partitions: no error")
	}
}

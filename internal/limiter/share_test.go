package limiter

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/internal/clock"
)

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

// Partitions wander among eight processes, and each limits itself to its
// shares: together they never grant more than the rate in a second, and all of
// it while nothing moves.
func TestCluster(t *testing.T) {
	for _, n := range []int{8, 20, 333} {
		synctest.Test(t, func(t *testing.T) {
			const partitions, end = 8, 90 * time.Second
			clock := clock.New()
			ctx, cancel := context.WithTimeout(t.Context(), end)
			defer cancel()
			var r record
			var done sync.WaitGroup
			var limiters [8]*Limiter
			var sums [8]int
			change := func(process, by int) {
				sums[process] += by
				if err := limiters[process].SetRate(sums[process]); err != nil {
					t.Error(err)
				}
			}
			for i := range limiters {
				limiters[i] = mustNew(t, 1, clock)
				change(i, 0)
				for range 2 {
					done.Go(func() {
						for {
							got, err := limiters[i].Wait(ctx, 1+n/100)
							if err != nil {
								return
							}
							r.add(clock.Elapsed(), got)
						}
					})
				}
			}
			rng := rand.New(rand.NewPCG(uint64(n), 1))
			var owner [partitions]int
			for p := range owner {
				owner[p] = p
				change(owner[p], Share(n, partitions, p))
			}
			for range 50 {
				time.Sleep(time.Duration(rng.Int64N(int64(time.Second))))
				p := rng.IntN(partitions)
				change(owner[p], -Share(n, partitions, p))
				time.Sleep(time.Second)
				owner[p] = rng.IntN(8)
				change(owner[p], Share(n, partitions, p))
			}
			settled := clock.Elapsed() + 2*time.Second
			done.Wait()
			if least, most := r.windows(settled); most > n || least < n {
				t.Errorf("%d per second among eight: windows hold up to %d, and once nothing moves %d at least", n, most, least)
			}
		})
	}
}

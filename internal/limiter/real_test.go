package limiter

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-go/sluice/internal/clock"
	"github.com/sluice-go/sluice/internal/proof/need"
)

// observed is a limiter that records when it grants: under its lock, so that
// nothing comes between a grant and its timestamp.
type observed struct {
	*Limiter
	record
}

func (o *observed) take(now time.Duration, want int, waited bool) int {
	n := o.Limiter.take(now, want, waited)
	if n > 0 {
		o.grants = append(o.grants, grants{now, n})
	}
	return n
}

// run lets some callers take all they can for a time that passes on the wall.
func (o *observed) run(callers, most int, d time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	var done sync.WaitGroup
	for range callers {
		done.Go(func() {
			for {
				if _, err := o.queue.wait(ctx, o, most); err != nil {
					return
				}
			}
		})
	}
	done.Wait()
}

// median is the median of the grants in each whole second, as a part of the
// rate.
func (o *observed) median(d time.Duration) float64 {
	perSecond := make([]float64, d/time.Second)
	for _, g := range o.grants {
		if i := int(g.time / time.Second); i < len(perSecond) {
			perSecond[i] += float64(g.n)
		}
	}
	slices.Sort(perSecond)
	return perSecond[len(perSecond)/2] / float64(o.rate)
}

// busy keeps all cores busy until stop is called: with piece after piece of
// work, as goroutines have that wait for each other now and then; or if endless
// without ever a pause, so that others run when the scheduler breaks in.
func busy(endless bool) (stop func()) {
	var halt atomic.Bool
	var done sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		done.Go(func() {
			for x := uint64(1); !halt.Load(); {
				for range 20_000 {
					x = x*6364136223846793005 + 1
				}
				if x != 0 && !endless {
					runtime.Gosched()
				}
			}
		})
	}
	return func() {
		halt.Store(true)
		done.Wait()
	}
}

// All rates at once, with all cores busy: no window ever holds more.
//
// How near the rate comes depends on the machine. With LIMIT_SECONDS set, each
// rate runs alone for that long, and the median has to be 0.998 of it.
func TestRealTime(t *testing.T) {
	need.RealTime(t)
	if seconds, _ := strconv.Atoi(os.Getenv("LIMIT_SECONDS")); seconds > 0 {
		measure(t, time.Duration(seconds)*time.Second)
		return
	}
	const d = 3 * time.Second
	defer busy(true)()
	var done sync.WaitGroup
	for _, n := range rates {
		o := &observed{Limiter: mustNew(t, n, clock.New())}
		done.Go(func() {
			o.run(4, max(n/300, 1), d)
			if _, most := o.windows(0); most > n {
				t.Errorf("%d per second: a window holds %d", n, most)
			}
			if len(o.grants) == 0 {
				t.Errorf("%d per second: nothing was granted", n)
			}
		})
	}
	done.Wait()
}

func measure(t *testing.T, d time.Duration) {
	loads := []struct {
		name string
		stop func() func()
	}{
		{"idle", func() func() { return func() {} }},
		{"busy", func() func() { return busy(false) }},
		{"endless", func() func() { return busy(true) }},
	}
	for _, load := range loads {
		for _, n := range append(rates, MaxRate) {
			for _, callers := range []int{1, 64} {
				stop := load.stop()
				o := &observed{Limiter: mustNew(t, n, clock.New())}
				o.run(callers, max(n/100, 1), d)
				stop()
				_, most := o.windows(0)
				if most > n {
					t.Errorf("%s, %d per second: a window holds %d", load.name, n, most)
				}
				got := o.median(d)
				fmt.Printf("%-8s %7d per second, %2d callers: median %.4f, fullest window %d\n", load.name, n, callers, got, most)
				if got < 0.998 && load.name != "endless" {
					t.Errorf("%s, %d per second, %d callers: the median is %.4f of the rate", load.name, n, callers, got)
				}
			}
		}
	}
}

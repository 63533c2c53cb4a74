package limiter

import (
	"testing"
	"time"
)

// A fuzz input is a rate and steps of two bytes: time passes, a caller takes
// what is due or waits in line, or the rate changes. The second up to every
// grant holds no more than the rate; and what due says is true, so nobody
// sleeps too long or for nothing.
func FuzzLimiter(f *testing.F) {
	f.Add(uint32(1000), []byte{1, 255, 0, 3, 1, 255, 0, 200, 1, 255})
	f.Add(uint32(1_000_000), []byte{1, 10, 2, 255, 2, 255, 2, 255, 3, 4, 2, 9, 2, 9, 4, 7, 2, 1})
	f.Add(uint32(3), []byte{2, 0, 2, 0, 2, 0, 2, 0, 3, 200, 2, 0, 2, 0, 3, 1, 2, 0, 2, 0})
	f.Fuzz(func(t *testing.T, start uint32, steps []byte) {
		rate := 1 + int(start%MaxRate)
		clock := &handClock{}
		l := mustNew(t, rate, clock)
		var r record
		for ; len(steps) >= 2 && len(steps) < 1000; steps = steps[2:] {
			x := int(steps[1])
			switch steps[0] % 4 {
			case 0:
				clock.now += time.Duration(x*x*x) * 100 * time.Microsecond / 10
				continue
			case 3:
				rate = 1 + x*x*15
				l.SetRate(rate)
				continue
			}
			waited, want := steps[0]%4 == 1, 1+x*x
			got := l.take(clock.now, want, waited)
			if got == 0 {
				at := l.due(clock.now, want)
				if at <= clock.now || at > clock.now+time.Second {
					t.Fatalf("nothing is due at %v, and will be at %v", clock.now, at)
				}
				if early := l.take(at-1, want, true); early > 0 {
					t.Fatalf("%d a nanosecond before they are due", early)
				}
				clock.now = at
				got = l.take(at, want, true)
			}
			if got < 1 || got > want {
				t.Fatalf("took %d of %d", got, want)
			}
			r.add(clock.now, got)
			if sum := r.total(clock.now-time.Second+1, clock.now+1); sum > rate {
				t.Fatalf("%d in the second up to %v, at a rate of %d", sum, clock.now, rate)
			}
		}
	})
}

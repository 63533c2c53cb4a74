package term

import (
	"context"
	"time"
)

// Follow shows what line returns as the status line until ctx ends. Without a terminal it calls log
// every five seconds instead.
func (s *Screen) Follow(ctx context.Context, line func() string, log func()) {
	every := 5 * time.Second
	if s.Interactive() {
		every = 100 * time.Millisecond
		log = func() { s.Status(line()) }
		log()
		defer s.Status("")
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			log()
		}
	}
}

// Speed measures how fast a count has grown over the last five seconds. The
// zero value is ready to use.
type Speed struct {
	samples []sample
}

type sample struct {
	time  time.Time
	count int64
}

const speedWindow = 5 * time.Second

// Add records the count at a time, and returns its growth per second.
func (s *Speed) Add(now time.Time, count int64) int64 {
	s.samples = append(s.samples, sample{now, count})
	for len(s.samples) > 2 && now.Sub(s.samples[1].time) >= speedWindow {
		s.samples = s.samples[1:]
	}
	first := s.samples[0]
	if !now.After(first.time) {
		return 0
	}
	return int64(float64(count-first.count) / now.Sub(first.time).Seconds())
}

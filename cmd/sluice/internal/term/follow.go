package term

import (
	"context"
	"time"
)

// Follow keeps the status line at what line returns until ctx ends; where
// there is no terminal it calls tell every five seconds instead.
func (s *Screen) Follow(ctx context.Context, line func() string, tell func()) {
	every := 5 * time.Second
	if s.Interactive() {
		every = 100 * time.Millisecond
		tell = func() { s.Status(line()) }
		tell()
		defer s.Status("")
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			tell()
		}
	}
}

// Speed measures how fast a count has grown over the last five seconds. The
// zero value is ready to use.
type Speed struct {
	samples []sample
}

type sample struct {
	at    time.Time
	count int64
}

const speedWindow = 5 * time.Second

// At takes the count now and returns its growth a second.
func (s *Speed) At(now time.Time, count int64) int64 {
	s.samples = append(s.samples, sample{now, count})
	for len(s.samples) > 2 && now.Sub(s.samples[1].at) >= speedWindow {
		s.samples = s.samples[1:]
	}
	first := s.samples[0]
	if !now.After(first.at) {
		return 0
	}
	return int64(float64(count-first.count) / now.Sub(first.at).Seconds())
}

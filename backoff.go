package sluice

import (
	"math/rand/v2"
	"time"
)

// backoff gives waits that double from min to max, each varied at random by a
// quarter so that many consumers do not come back at the same moment. It
// belongs to one goroutine.
type backoff struct {
	min, max time.Duration
	rand     *rand.Rand
	last     time.Duration
}

func (c *Consumer) backoff(r *rand.Rand) *backoff {
	return &backoff{min: c.cfg.RetryMin, max: c.cfg.RetryMax, rand: r}
}

func (b *backoff) next() time.Duration {
	b.last = min(max(b.min, 2*b.last), b.max)
	return b.last - b.last/8 + time.Duration(b.rand.Int64N(int64(b.last/4)+1))
}

func (b *backoff) reset() { b.last = 0 }

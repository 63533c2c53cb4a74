package sluice

import (
	"math/rand/v2"
	"time"

	"github.com/sluice-go/sluice/internal/clock"
)

// backoff gives the waits between the attempts of a consumer, from RetryMin to RetryMax.
type backoff struct{ clock.Backoff }

func (c *Consumer) backoff(r *rand.Rand) *backoff {
	return &backoff{clock.Backoff{Min: c.cfg.RetryMin, Max: c.cfg.RetryMax, Rand: r}}
}

func (b *backoff) next() time.Duration { return b.Next() }

func (b *backoff) reset() { b.Reset() }

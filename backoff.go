package sluice

import (
	"math/rand/v2"

	"github.com/sluice-go/sluice/internal/clock"
)

// backoff returns new waits between attempts, from RetryMin to RetryMax.
func (c *Consumer) backoff(r *rand.Rand) *clock.Backoff {
	return &clock.Backoff{Min: c.cfg.RetryMin, Max: c.cfg.RetryMax, Rand: r}
}

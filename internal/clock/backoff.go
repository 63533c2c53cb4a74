package clock

import (
	"math/rand/v2"
	"time"
)

// Backoff gives the waits between attempts: each is twice the one before, from Min to Max, and
// shortened at random by up to a quarter, so that many processes do not retry at the same moment.
// No wait is above Max. It is for one goroutine.
type Backoff struct {
	Min, Max time.Duration
	// Rand is the source of randomness. Nil: that of math/rand/v2.
	Rand *rand.Rand

	last time.Duration
}

// Next returns the next wait.
func (b *Backoff) Next() time.Duration {
	b.last = min(max(b.Min, 2*b.last), b.Max)
	random := rand.Int64N
	if b.Rand != nil {
		random = b.Rand.Int64N
	}
	return b.last - time.Duration(random(int64(b.last/4)+1))
}

// Reset begins again with Min.
func (b *Backoff) Reset() { b.last = 0 }

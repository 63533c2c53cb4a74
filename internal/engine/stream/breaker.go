package stream

import (
	"time"

	"github.com/sluice-go/sluice/internal/clock"
	"github.com/sluice-go/sluice/internal/engine"
)

// circuitBreaker keeps records back during an outage of the store, or of the way
// to it. The worker's goroutine alone uses it.
type circuitBreaker struct {
	tripped   bool
	probes    int           // records that are out to test whether the outage is over
	refused   int           // probes that were rejected since the last that failed otherwise
	probeAt   time.Duration // when the next probe may go, by Clock.Elapsed
	trippedAt time.Duration // when it last tripped, likewise
	wait      *clock.Backoff
}

// allows reports whether a record may be sent: any record, or a probe.
func (b *circuitBreaker) allows(now time.Duration) bool {
	return !b.tripped || b.hasProbe() && now >= b.probeAt
}

// hasProbe reports whether another probe may be out: one, and one more for each that was rejected.
// A rejection does not end the outage, because a sink can reject a record without asking its store.
// But it does not show either that the store is down, and nothing else may come for long: after
// an outage thousands of records that are all rejected must not go one by one.
func (b *circuitBreaker) hasProbe() bool { return b.probes <= b.refused }

// probed takes the result of a probe.
func (b *circuitBreaker) probed(err error) {
	b.probes--
	switch {
	case err == nil:
		b.reset()
	case engine.FaultOf(err).Final():
		b.refused++
	default:
		b.refused = 0
	}
}

// trip starts an outage or prolongs it. It returns false if nothing changes: the
// records that were sent before the outage was noticed all fail at once.
func (b *circuitBreaker) trip(now time.Duration) bool {
	b.refused = 0
	if b.tripped && now < b.probeAt {
		return false
	}
	if !b.tripped && now-b.trippedAt > 2*b.wait.Max {
		b.wait.Reset() // the last outage is long over
	}
	b.tripped, b.trippedAt = true, now
	b.probeAt = now + b.wait.Next()
	return true
}

func (b *circuitBreaker) reset() { b.tripped, b.refused = false, 0 }

package limiter

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"
)

// Budget keeps request units (RU) within the provisioned throughput of one physical
// partition. A caller reserves an estimate before a request and settles with the
// charge that the response reports; a charge above the estimate delays the following
// requests. It is safe for concurrent use.
//
// It spends the fraction pace of the provisioned throughput, evenly, and never
// reserves more than the fraction ceiling within one second. The rest is a margin
// for what a client can't know: when the server's seconds begin, how long a request
// is under way, and what the requests in flight will cost.
type Budget struct {
	queue waitQueue

	rate   float64       // in units per second
	most   int           // units within a second
	paused bool          // rate is then the rate before the pause
	slot   time.Duration // when the rate will have paid for all reservations
	held   time.Duration // no reservation before this time
	last   second        // in units
}

// unit is the smallest charge that Cosmos DB reports, in RU.
const unit = 0.01

const (
	pace    = 0.985
	ceiling = 0.995
	portion = 0.02
)

// NewBudget makes a budget of that many RU per second.
func NewBudget(perSecond float64, clock Clock) (*Budget, error) {
	if perSecond == 0 {
		return nil, errors.New("budget of 0 RU per second: want more")
	}
	b := &Budget{queue: waitQueue{clock: clock}}
	b.slot = clock.Elapsed()
	if err := b.SetRate(perSecond); err != nil {
		return nil, err
	}
	return b, nil
}

// Reserve waits until an estimate, in RU, is within the budget. Callers are
// served in the order of their calls. The only error is ctx's.
//
// The budget is best used by reservations of [Budget.Portion] at most.
func (b *Budget) Reserve(ctx context.Context, estimate float64) error {
	_, err := b.queue.wait(ctx, b, max(units(estimate), 1))
	return err
}

// Settle charges or returns the difference between the reserved estimate and the
// actual cost of a request, in RU. A request that was not sent, or was refused
// without a charge, has cost 0.
func (b *Budget) Settle(estimate, actual float64) {
	d := units(actual) - max(units(estimate), 1)
	b.queue.change(func(now time.Duration) {
		b.last.forget(now)
		b.last.add(now, max(d, -b.last.n)) // a second that has passed returns nothing
		b.slot += b.cost(d)
	})
}

// Portion is the most that one reservation should request, in RU: callers limit bulk
// requests to it, so that whole requests fill a second.
func (b *Budget) Portion() float64 {
	b.queue.mu.Lock()
	defer b.queue.mu.Unlock()
	return b.rate * unit * portion
}

// SetRate changes the RU per second, for instance after a split; 0 pauses.
func (b *Budget) SetRate(perSecond float64) error {
	if !(perSecond >= 0 && perSecond <= math.MaxInt32*unit) {
		return fmt.Errorf("budget of %v RU per second: want 0 (a pause) to %.0f", perSecond, math.MaxInt32*unit)
	}
	b.queue.change(func(now time.Duration) {
		if b.paused = perSecond == 0; b.paused {
			return
		}
		owed := max(b.slot-now, 0).Seconds() * b.rate
		b.rate = perSecond / unit
		b.most = int(b.rate * ceiling)
		b.slot = now + seconds(owed/b.rate)
	})
	return nil
}

// Hold reserves nothing for d from now: after a 429, the server's retry-after.
func (b *Budget) Hold(d time.Duration) {
	b.queue.change(func(now time.Duration) {
		b.held = max(b.held, now+d)
	})
}

func (b *Budget) take(now time.Duration, want int, waited bool) int {
	b.last.forget(now)
	if now < b.due(now, want) {
		return 0
	}
	credit := stallCredit
	if !waited && now-b.last.ended > idleCredit {
		credit = idleCredit
	}
	b.slot = max(b.slot, b.held, now-credit) + b.cost(want)
	b.last.add(now, want)
	return want
}

func (b *Budget) due(now time.Duration, want int) time.Duration {
	if b.paused {
		return now + never
	}
	// A reservation above what fits in a second is granted alone.
	room := max(b.most-want, 0)
	return max(b.held, b.slot, b.last.whenBelow(room+1))
}

// cost is the time in which that many units are earned.
func (b *Budget) cost(units int) time.Duration { return seconds(float64(units) / (b.rate * pace)) }

// seconds converts to a duration of at most a year, so that adding it to a time
// cannot overflow.
func seconds(s float64) time.Duration {
	const year = 365 * 24 * 3600
	return time.Duration(max(-year, min(s, year)) * float64(time.Second))
}

// units converts RU to units. Values outside the range of a response are clamped.
func units(ru float64) int {
	if !(ru > 0) {
		return 0
	}
	return int(math.Round(min(ru/unit, math.MaxInt32)))
}

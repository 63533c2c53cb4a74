package limiter

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"
)

// Budget keeps request units (RU) within what is provisioned for one physical
// partition. A caller reserves an estimate before a request and settles with
// the charge that the response reports; a charge above the estimate puts off
// the requests behind it. Its methods may be called from any goroutine.
//
// It spends pace of what is provisioned, evenly, and never reserves more than
// ceiling of it within one second. What is between that and all of it makes up
// for what a client can't know: when the server's seconds begin, how long a
// request travels, and what those under way will cost.
type Budget struct {
	line line

	rate   float64       // in units per second
	most   int           // units within a second
	paused bool          // the rate is the one before
	slot   time.Duration // when all that was reserved is paid for
	held   time.Duration // nothing is reserved before
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
	b := &Budget{line: line{clock: clock}}
	b.slot = clock.Elapsed()
	if err := b.SetRate(perSecond); err != nil {
		return nil, err
	}
	return b, nil
}

// Reserve waits until an estimate, in RU, is within the budget. Callers are
// served in the order in which they came. The only error is ctx's.
//
// The budget is best used by reservations of [Budget.Portion] at most.
func (b *Budget) Reserve(ctx context.Context, estimate float64) error {
	_, err := b.line.wait(ctx, b, max(units(estimate), 1))
	return err
}

// Settle charges the difference between what was reserved and what a request
// really cost, in RU; or gives it back. A request that was not sent, or was
// turned away without a charge, has cost 0.
func (b *Budget) Settle(estimate, actual float64) {
	d := units(actual) - max(units(estimate), 1)
	b.line.change(func(now time.Duration) {
		b.last.forget(now)
		b.last.add(now, max(d, -b.last.n)) // a second that has passed gives nothing back
		b.slot += b.cost(d)
	})
}

// Portion is the most that one reservation should ask for, in RU: bulk requests
// are cut to it, so that whole requests fill what a second has room for.
func (b *Budget) Portion() float64 {
	b.line.mu.Lock()
	defer b.line.mu.Unlock()
	return b.rate * unit * portion
}

// SetRate changes the RU per second, for instance after a split; 0 pauses.
func (b *Budget) SetRate(perSecond float64) error {
	if !(perSecond >= 0 && perSecond <= math.MaxInt32*unit) {
		return fmt.Errorf("budget of %v RU per second: want 0 (a pause) to %.0f", perSecond, math.MaxInt32*unit)
	}
	b.line.change(func(now time.Duration) {
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
	b.line.change(func(now time.Duration) {
		b.held = max(b.held, now+d)
	})
}

func (b *Budget) take(now time.Duration, want int, waited bool) int {
	b.last.forget(now)
	if now < b.due(now, want) {
		return 0
	}
	credit := stallCredit
	if !waited && now-b.last.at > idleCredit {
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
	// What is more than a second has room for goes alone.
	room := max(b.most-want, 0)
	return max(b.held, b.slot, b.last.below(room+1))
}

// cost is the time in which that many units are earned.
func (b *Budget) cost(units int) time.Duration { return seconds(float64(units) / (b.rate * pace)) }

// seconds is a time of at most a year, which stays within what can be added to
// the time that has passed.
func seconds(s float64) time.Duration {
	const year = 365 * 24 * 3600
	return time.Duration(max(-year, min(s, year)) * float64(time.Second))
}

// units turns RU into units. What no response can say counts as the nearest
// that it could.
func units(ru float64) int {
	if !(ru > 0) {
		return 0
	}
	return int(math.Round(min(ru/unit, math.MaxInt32)))
}

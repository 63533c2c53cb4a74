// Package limiter paces: grants at an exact rate, and request units of a
// database within what is provisioned.
//
// A [Limiter] grants N events a second, for N up to a million: in no second,
// wherever it begins, more than N, and with enough demand no less. A [Budget]
// does the same for the request units (RU) of one physical partition of Azure
// Cosmos DB, whose cost is known only afterwards.
package limiter

import (
	"context"
	"fmt"
	"time"
)

// MaxRate is the highest rate of a [Limiter], in grants per second.
const MaxRate = 1_000_000

const (
	// maxQuanta is how many times a second grants become due. Above that rate
	// they become due several at a time.
	maxQuanta = 1000
	// idleCredit is what becomes due, at most, while nobody asks; stallCredit
	// what becomes due while somebody waits but does not get to run, because
	// timers and schedulers are late.
	idleCredit  = 20 * time.Millisecond
	stallCredit = 250 * time.Millisecond
	// never is a wait that only a change ends.
	never = time.Hour
)

// Limiter grants at a rate. All that share the rate share the Limiter; its
// methods may be called from any goroutine.
//
// Its promise: whenever it grants something, the second that ends with this
// grant holds no more than the rate in force. (It holds this grant, and not one
// that is exactly a second older.) So no window of a second, wherever it
// begins, holds more than the rate; and a lower rate holds from the moment it
// is set.
//
// Grants become due evenly: every 1/N seconds or, above 1,000 a second, every
// millisecond. There is no burst at the start, behind a pause, nor at a raise.
type Limiter struct {
	line line

	rate   int           // per second; 0: paused
	step   time.Duration // between quanta
	slot   time.Duration // when the next quantum is due
	opened time.Duration // when the last quantum was due
	left   int           // of the last quantum, not taken yet
	carry  int           // what rounding down has kept from the quanta, in 1/quanta() of a grant
	last   second
}

// New makes a limiter of 1 to [MaxRate] grants per second.
func New(perSecond int, clock Clock) (*Limiter, error) {
	if perSecond == 0 {
		return nil, fmt.Errorf("rate limit 0 per second: want 1 to %d", MaxRate)
	}
	l := &Limiter{line: line{clock: clock}}
	l.opened = clock.Elapsed() - time.Second
	if err := l.SetRate(perSecond); err != nil {
		return nil, err
	}
	return l, nil
}

// Wait waits until something is granted and takes what is due, at most most and
// at least one. Callers are served in the order in which they came. The only
// error is ctx's.
func (l *Limiter) Wait(ctx context.Context, most int) (n int, err error) {
	return l.line.wait(ctx, l, max(most, 1))
}

// SetRate changes the rate; 0 pauses. A lower rate counts what was granted
// within the last second, so it may have to wait until that is less than the
// new rate. A higher rate holds from now on; it does not make up for the past.
func (l *Limiter) SetRate(perSecond int) error {
	if perSecond < 0 || perSecond > MaxRate {
		return fmt.Errorf("rate limit %d per second: want 0 (a pause) to %d", perSecond, MaxRate)
	}
	l.line.change(func(now time.Duration) {
		if perSecond == l.rate {
			return
		}
		l.rate, l.left, l.carry = perSecond, 0, 0
		if perSecond > 0 {
			l.step = time.Second / time.Duration(l.quanta())
			l.slot = max(now, l.opened+l.step, l.last.below(l.rate))
		}
	})
	return nil
}

// quanta is how many times a second grants become due.
func (l *Limiter) quanta() int { return min(l.rate, maxQuanta) }

func (l *Limiter) take(now time.Duration, want int, waited bool) (got int) {
	if l.rate == 0 {
		return 0
	}
	l.last.forget(now)
	if !waited && now-l.last.at > idleCredit {
		l.slot = max(l.slot, now-idleCredit)
	}
	for got < want && l.last.n < l.rate {
		if l.left == 0 {
			if now < l.slot {
				break
			}
			l.open(now)
		}
		n := min(want-got, l.left, l.rate-l.last.n)
		l.last.add(now, n)
		l.left -= n
		got += n
	}
	return got
}

// open opens the quantum that is due. Quanta differ by one at most, and any
// row of them as long as a second makes exactly the rate.
func (l *Limiter) open(now time.Duration) {
	l.carry += l.rate
	l.left, l.carry = l.carry/l.quanta(), l.carry%l.quanta()
	l.opened = l.slot
	l.slot = max(l.slot+l.step, now-stallCredit)
}

func (l *Limiter) due(now time.Duration, _ int) time.Duration {
	if l.rate == 0 {
		return now + never
	}
	if l.left > 0 {
		return l.last.below(l.rate)
	}
	return max(l.slot, l.last.below(l.rate))
}

// Share is one partition's part of a rate that a cluster keeps without
// coordination: index is 0 to partitions-1, and the shares of all partitions
// add up to perSecond. A process limits itself to the sum of the shares of the
// partitions that it owns, each from a second after it was taken until it is
// given up: so the seconds in which two owners granted, one after the other,
// hold no more than the rate either.
func Share(perSecond, partitions, index int) int {
	return (index+1)*perSecond/partitions - index*perSecond/partitions
}

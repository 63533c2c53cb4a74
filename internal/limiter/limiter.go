// Package limiter limits rates: of events, and of the request units of a database.
//
// A [Limiter] grants N events per second, for N up to a million: no more than N in
// any second, wherever it begins, and no fewer if there is enough demand. A [Budget]
// does the same for the request units (RU) of one physical partition of Azure
// Cosmos DB, of which the cost is known only afterwards.
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
	// idleCredit bounds what becomes due while no caller waits; stallCredit bounds
	// what becomes due while a caller waits but does not run, because its timer or
	// the scheduler is late.
	idleCredit  = 20 * time.Millisecond
	stallCredit = 250 * time.Millisecond
	// never is a wait that only a change ends.
	never = time.Hour
)

// Limiter grants at a rate. All users of one rate share one Limiter. It is safe for
// concurrent use.
//
// It promises: for each grant, the second that ends with it contains no more grants
// than the current rate. (This second includes the grant, and excludes one that is
// exactly a second older.) So no window of one second, wherever it begins, contains
// more than the rate; and a lower rate applies from the moment when it is set.
//
// Grants become due evenly: every 1/N seconds or, above 1,000 a second, every
// millisecond. There is no burst at the start, after a pause, or when the rate rises.
type Limiter struct {
	queue waitQueue

	rate   int           // per second; 0: paused
	step   time.Duration // between quanta
	slot   time.Duration // when the next quantum is due
	opened time.Duration // when the last quantum was due
	left   int           // of the last quantum, not granted yet
	carry  int           // the remainder from rounding quanta down, in 1/quanta() of a grant
	last   second
}

// New makes a limiter of 1 to [MaxRate] grants per second.
func New(perSecond int, clock Clock) (*Limiter, error) {
	if perSecond == 0 {
		return nil, fmt.Errorf("rate limit 0 per second: want 1 to %d", MaxRate)
	}
	l := &Limiter{queue: waitQueue{clock: clock}}
	l.opened = clock.Elapsed() - time.Second
	if err := l.SetRate(perSecond); err != nil {
		return nil, err
	}
	return l, nil
}

// Wait waits until something is due, and returns how much it was granted: at least
// one, at most most. Callers are served in the order of their calls. The only error
// is ctx's.
func (l *Limiter) Wait(ctx context.Context, most int) (n int, err error) {
	return l.queue.wait(ctx, l, max(most, 1))
}

// SetRate changes the rate; 0 pauses. A lower rate counts the grants of the last
// second, so the next grant may wait until these are fewer than the new rate. A
// higher rate applies from now on; it does not make up for the past.
func (l *Limiter) SetRate(perSecond int) error {
	if perSecond < 0 || perSecond > MaxRate {
		return fmt.Errorf("rate limit %d per second: want 0 (a pause) to %d", perSecond, MaxRate)
	}
	l.queue.change(func(now time.Duration) {
		if perSecond == l.rate {
			return
		}
		l.rate, l.left, l.carry = perSecond, 0, 0
		if perSecond > 0 {
			l.step = time.Second / time.Duration(l.quanta())
			l.slot = max(now, l.opened+l.step, l.last.whenBelow(l.rate))
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
	if !waited && now-l.last.ended > idleCredit {
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

// open starts the quantum that is due. Quanta differ by one at most, and those of
// any second add up to exactly the rate.
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
		return l.last.whenBelow(l.rate)
	}
	return max(l.slot, l.last.whenBelow(l.rate))
}

// Share returns one partition's share of a rate that a cluster observes without
// coordination: index is 0 to partitions-1, and the shares of all partitions add up
// to perSecond. A process limits itself to the sum of the shares of its partitions.
// Each share counts from one second after the process has acquired the partition
// until it releases it, so a second in which the owner changes contains no more than
// the rate either.
func Share(perSecond, partitions, index int) int {
	return (index+1)*perSecond/partitions - index*perSecond/partitions
}

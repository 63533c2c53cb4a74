package cosmosdb

import (
	"math"
	"sync"
	"time"
)

// What operations cost in RU; doc.go has the formulas and their sources.
const (
	chargeRead     = 1.0
	chargeWrite    = 4.95
	chargeValue    = 0.19 // of a value in the index
	ownValues      = 4    // that the account adds to each document
	changedValues  = 2    // of those, by a replacement
	chargeQuery    = 2.3
	chargeReturned = 0.3
	chargeNotFound = 1.0
	chargeConflict = 1.24
	chargeRefused  = 0.38
	chargeMetadata = 1.0
)

// sizeFactor is how many times a document of 1 KB one of n bytes costs.
func sizeFactor(n int) float64 { return 1 + max(0, float64(n)/1024-1)/11 }

func chargeCreate(size, values int, indexed bool) float64 {
	if !indexed {
		return chargeWrite * sizeFactor(size)
	}
	return chargeWrite*sizeFactor(size) + chargeValue*float64(values+ownValues)
}

func chargeReplace(size int, indexed bool) float64 {
	if !indexed {
		return 2 * chargeWrite * sizeFactor(size)
	}
	return 2*chargeWrite*sizeFactor(size) + chargeValue*changedValues
}

// round is a charge as accounts state it, with two digits.
func round(ru float64) float64 { return math.Round(ru*100) / 100 }

// budget is a physical partition's share of the throughput: a bucket that holds what one second gives, and is full at first. What begins while
// there is something left is done, and may leave a debt, as on Azure; whoever comes then is refused until it is paid.
type budget struct {
	mu    sync.Mutex
	rate  float64 // RU per second, 0 without limit
	left  float64
	since time.Time
	spent float64 // in all
}

func (b *budget) set(rate float64, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refill(now)
	if b.since.IsZero() || b.rate == 0 {
		b.left = rate
	}
	b.rate, b.left, b.since = rate, min(b.left, rate), now
}

func (b *budget) refill(now time.Time) {
	if d := now.Sub(b.since); d > 0 {
		b.left = min(b.rate, b.left+b.rate*d.Seconds())
		b.since = now
	}
}

// admit tells whether an operation may begin, and if not, when to come again.
func (b *budget) admit(now time.Time) (wait time.Duration, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rate == 0 {
		return 0, true
	}
	b.refill(now)
	if b.left > 0 {
		return 0, true
	}
	return b.wait(0), false
}

// wait is when to come again: once the debt is paid, and what else waits is served, and a tenth of a second more, so that there is enough for a while.
func (b *budget) wait(ahead float64) time.Duration {
	return time.Duration(math.Ceil((ahead-b.left)/b.rate*1000)+100) * time.Millisecond
}

// behind is wait for who comes after operations of so many RU that were refused too.
func (b *budget) behind(ahead float64) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rate == 0 {
		return 0
	}
	return b.wait(ahead)
}

func (b *budget) spend(ru float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left -= ru
	b.spent += ru
}

func (b *budget) total() float64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.spent
}

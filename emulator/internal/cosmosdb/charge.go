package cosmosdb

import (
	"math"
	"sync"
	"time"
)

// The charges of operations in RU; doc.go has the formulas and their sources.
const (
	chargeRead     = 1.0
	chargeWrite    = 4.95
	chargeValue    = 0.19 // for each indexed value
	systemValues   = 4    // system properties of each document
	changedValues  = 2    // system properties that a replacement changes
	chargeQuery    = 2.3
	chargeReturned = 0.3
	chargeNotFound = 1.0
	chargeConflict = 1.24
	chargeRefused  = 0.38
	chargeMetadata = 1.0
)

// sizeFactor returns the charge for a document of n bytes in relation to one of 1 KB.
func sizeFactor(n int) float64 { return 1 + max(0, float64(n)/1024-1)/11 }

func chargeCreate(size, values int, indexed bool) float64 {
	if !indexed {
		return chargeWrite * sizeFactor(size)
	}
	return chargeWrite*sizeFactor(size) + chargeValue*float64(values+systemValues)
}

func chargeReplace(size int, indexed bool) float64 {
	if !indexed {
		return 2 * chargeWrite * sizeFactor(size)
	}
	return 2*chargeWrite*sizeFactor(size) + chargeValue*changedValues
}

// round rounds a charge to two digits, as accounts report it.
func round(ru float64) float64 { return math.Round(ru*100) / 100 }

// budget is a physical partition's share of the throughput: a token bucket with the RU
// of one second, full at first. An operation that begins while RU are available is
// executed, even if it overdraws the budget, as on Azure. Later ones are throttled
// until the budget is positive again.
type budget struct {
	mu        sync.Mutex
	rate      float64 // RU per second, 0 without limit
	available float64
	refilled  time.Time
	spent     float64 // total
}

func (b *budget) set(rate float64, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refill(now)
	if b.refilled.IsZero() || b.rate == 0 {
		b.available = rate
	}
	b.rate, b.available, b.refilled = rate, min(b.available, rate), now
}

func (b *budget) refill(now time.Time) {
	if d := now.Sub(b.refilled); d > 0 {
		b.available = min(b.rate, b.available+b.rate*d.Seconds())
		b.refilled = now
	}
}

// admit reports whether an operation may begin, and if not, after which time to retry.
func (b *budget) admit(now time.Time) (wait time.Duration, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rate == 0 {
		return 0, true
	}
	b.refill(now)
	if b.available > 0 {
		return 0, true
	}
	return b.wait(0), false
}

// wait returns the time until the overdraft and ahead RU of other throttled operations
// are refilled, plus 100 ms, so that more than one operation fits. b.mu is held.
func (b *budget) wait(ahead float64) time.Duration {
	return time.Duration(math.Ceil((ahead-b.available)/b.rate*1000)+100) * time.Millisecond
}

// waitBehind returns the wait after operations of ahead RU that were throttled, too.
func (b *budget) waitBehind(ahead float64) time.Duration {
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
	b.available -= ru
	b.spent += ru
}

func (b *budget) totalSpent() float64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.spent
}

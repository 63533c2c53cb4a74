// Package memory bounds the bytes that the senders of events can make a process hold, over all
// partitions of all its consumers: what drivers receive, what is read ahead, in batches and in
// flight, bodies while they are fetched, decompressed and decoded, dead letters that are redriven,
// and what rollups keep. Bytes are charged before they are allocated.
//
// Whoever waits for memory while holding some can deadlock with others that do the same. So:
//
//   - Each [Account] has a floor, which it may hold without asking. The rest of the budget is
//     shared.
//   - Reading ahead asks ([Account.Try]) and never waits: what it holds is handled first.
//   - Only a [Charge], of a later stage, waits, and reading ahead gets nothing meanwhile. The one
//     that has waited longest may use the reserve, which holds the largest charge that is allowed.
//     So it always gets what it needs, and the next one follows when it has ended.
//
// A nil [*Budget], [*Partition], [*Account] or [*Charge] bounds nothing.
package memory

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
)

// Budget is a number of bytes that partitions share. Used never exceeds it, but for floors and a
// reserve that are together larger than the budget, and for single events larger than a floor.
type Budget struct {
	limit   atomic.Int64
	stated  atomic.Bool  // limit was set, and is not the default
	floors  atomic.Int64 // of all accounts
	short   atomic.Bool  // they are larger than the limit, and Short has said so
	reserve atomic.Int64 // only for the charge that has the token

	shared  atomic.Int64 // what accounts hold above their floors, and charges
	waiting atomic.Int64 // len(queue)

	mu     sync.Mutex
	queue  []*waiter // charges that wait, in order of arrival
	holder *Charge   // has the token, which lets it use the reserve; nil: none has
}

// waiter is a charge that waits for more bytes.
type waiter struct {
	charge  *Charge
	bytes   int64
	granted chan struct{} // closed when they are granted
}

// New returns a budget of limit bytes.
func New(limit int64) *Budget {
	b := &Budget{}
	b.limit.Store(limit)
	return b
}

// Lower makes limit the budget, unless a smaller one was set before.
func (b *Budget) Lower(limit int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.stated.Swap(true) || limit < b.limit.Load() {
		b.limit.Store(limit)
	}
}

// Reserve keeps room for a charge of n bytes. Without it the first large charge that waits does
// that.
func (b *Budget) Reserve(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reserve.Store(max(b.reserve.Load(), n))
}

// Limit returns the budget in bytes.
func (b *Budget) Limit() int64 { return b.limit.Load() }

// Short reports that the floors of partitions are together larger than the budget, once until they
// are no more.
func (b *Budget) Short() (floors int64, short bool) {
	if b == nil {
		return 0, false
	}
	floors = b.floors.Load()
	over := floors > b.limit.Load()
	return floors, b.short.Swap(over) != over && over
}

// Shared returns how many bytes are charged above the floors, and how many may be.
func (b *Budget) Shared() (used, limit int64) { return b.shared.Load(), b.pool() }

// pool returns how many bytes may be charged above the floors, but for the reserve. A quarter of
// the budget is kept for floors from the beginning: partitions are acquired one after the other.
func (b *Budget) pool() int64 {
	limit := b.limit.Load()
	return max(0, limit-max(b.floors.Load(), limit/4)-b.reserve.Load())
}

// try charges n bytes to the pool if it has room for them.
func (b *Budget) try(n int64) bool {
	for pool := b.pool(); ; {
		used := b.shared.Load()
		if used+n > pool {
			return false
		}
		if b.shared.CompareAndSwap(used, used+n) {
			return true
		}
	}
}

// give returns bytes to the pool.
func (b *Budget) give(n int64) {
	b.shared.Add(-n)
	if b.waiting.Load() > 0 {
		b.mu.Lock()
		b.grant()
		b.mu.Unlock()
	}
}

// grant grants what the first waiters wait for. b.mu must be held.
func (b *Budget) grant() {
	if b.holder != nil && b.holder.complete {
		b.settle(b.holder)
	}
	for len(b.queue) > 0 {
		w := b.queue[0]
		switch {
		case b.try(w.bytes):
			w.charge.pooled += w.bytes
		case b.holder == nil:
			b.holder, w.charge.reserved = w.charge, w.bytes
		default:
			return
		}
		close(w.granted)
		b.queue = slices.Delete(b.queue, 0, 1)
		b.waiting.Store(int64(len(b.queue)))
	}
}

// wait waits until bytes are granted to a charge, or ctx ends.
func (b *Budget) wait(ctx context.Context, c *Charge, bytes int64) error {
	w := &waiter{charge: c, bytes: bytes, granted: make(chan struct{})}
	b.mu.Lock()
	b.reserve.Store(max(b.reserve.Load(), c.bytes()+bytes))
	if b.holder == c { // it need not wait behind others, which wait for it
		c.reserved += bytes
		b.mu.Unlock()
		return nil
	}
	b.queue = append(b.queue, w)
	b.waiting.Store(int64(len(b.queue)))
	b.grant() // what was given since the caller tried has woken nobody
	b.mu.Unlock()
	select {
	case <-w.granted:
		return nil
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.Index(b.queue, w); i >= 0 {
		b.queue = slices.Delete(b.queue, i, i+1)
		b.waiting.Store(int64(len(b.queue)))
		b.grant() // for those behind it
	} // else it was granted just now, and the charge's end returns it
	return context.Cause(ctx)
}

// Account is what one part of the program holds for one partition.
type Account struct {
	budget *Budget
	floor  int64
	held   atomic.Int64
	freed  chan struct{} // gets a value when bytes are given back
	asks   atomic.Bool   // Try was refused since
}

func (b *Budget) open(floor int64) *Account {
	b.floors.Add(floor)
	return &Account{budget: b, floor: floor, freed: make(chan struct{}, 1)}
}

// close gives back what the account holds, and its floor.
func (a *Account) close() {
	a.Give(a.held.Load())
	a.budget.floors.Add(-a.floor)
	a.budget.give(0)
}

// Floor returns how many bytes may be held without asking.
func (a *Account) Floor() int64 { return a.floor }

// Held returns how many bytes are held.
func (a *Account) Held() int64 { return a.held.Load() }

// Try charges n bytes if nothing is held, if they and those that are held fit into the floor, or if
// there is room for them and no charge waits. After a refusal [Account.Freed] tells when to try
// again.
func (a *Account) Try(n int64) bool { return a.try(n, true) }

// TryShared charges n bytes if they fit into the floor, or if there is room for them and no charge
// waits, also if nothing is held.
func (a *Account) TryShared(n int64) bool { return a.try(n, false) }

func (a *Account) try(n int64, first bool) bool {
	if a == nil {
		return true
	}
	for {
		held := a.held.Load()
		above := max(0, held+n-a.floor) - max(0, held-a.floor)
		if first && held <= 0 {
			if a.held.CompareAndSwap(held, held+n) {
				a.budget.shared.Add(above)
				return true
			}
			continue
		}
		if above > 0 && (a.budget.waiting.Load() > 0 || !a.budget.try(above)) {
			if a.asks.Swap(true) || a.held.Load() >= held {
				return false
			}
			continue // some were given back before asks was set
		}
		if a.held.CompareAndSwap(held, held+n) {
			return true
		}
		if above > 0 {
			a.budget.give(above)
		}
	}
}

// Room reports whether Try would charge n bytes.
func (a *Account) Room(n int64) bool {
	if !a.Try(n) {
		return false
	}
	a.Give(n)
	return true
}

// Take charges n bytes that are there already.
func (a *Account) Take(n int64) {
	if a == nil || n == 0 {
		return
	}
	held := a.held.Add(n)
	if above := max(0, held-a.floor) - max(0, held-n-a.floor); above > 0 {
		a.budget.shared.Add(above)
	}
}

// Give gives n bytes back.
func (a *Account) Give(n int64) {
	if a == nil || n == 0 {
		return
	}
	held := a.held.Add(-n)
	if above := max(0, held+n-a.floor) - max(0, held-a.floor); above > 0 {
		a.budget.give(above)
	}
	if a.asks.Load() {
		a.asks.Store(false)
		select {
		case a.freed <- struct{}{}:
		default:
		}
	}
}

// Settle replaces a charge of estimate bytes by one of actual bytes.
func (a *Account) Settle(estimate, actual int64) {
	if actual > estimate {
		a.Take(actual - estimate)
	} else {
		a.Give(estimate - actual)
	}
}

// Freed returns a channel that gets a value when bytes of this account were given back after a
// refusal. Those of other accounts wake nobody: an account that was refused holds something itself,
// which ends.
func (a *Account) Freed() <-chan struct{} {
	if a == nil {
		return nil
	}
	return a.freed
}

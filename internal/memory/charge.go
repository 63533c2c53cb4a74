package memory

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
)

// ErrBusy is the error of [Begin] and [Grow] where a partition would wait for memory while it has
// charges itself: it must end these first. Charges of [Budget.Trying] get it too.
var ErrBusy = errors.New("wait for memory: other partitions have it, and this one has events in progress; it goes on when these are done")

// Partition is what is held for one partition while it is assigned.
type Partition struct {
	// Received is what a driver has received and not yet returned by Read.
	Received *Account
	// Read is what was read: ahead of the delivery, in a batch, and in flight.
	Read *Account
	// Redriven is dead letters that are redriven.
	Redriven *Account
	// Kept is what is computed of events and stays in memory.
	Kept *Account

	budget  *Budget
	tries   bool                 // charges never wait
	waits   func() (done func()) // is called when a charge waits
	charges atomic.Int64         // len(live)

	mu    sync.Mutex
	live  map[*Charge]struct{} // charges that have not ended
	begun *Charge              // those since Collect, linked by next
}

// ReceivedFloor is the floor of [Partition].Received in bytes.
const ReceivedFloor = 256 << 10

// Open begins a partition, whose Read account has a floor of readFloor bytes. waits, if it is not
// nil, is called when a charge begins to wait, and what it returns when that ends.
func (b *Budget) Open(readFloor int64, waits func() (done func())) *Partition {
	if b == nil {
		return nil
	}
	return &Partition{
		Received: b.open(ReceivedFloor), Read: b.open(readFloor), Redriven: b.open(0), Kept: b.open(0),
		budget: b, waits: waits, live: map[*Charge]struct{}{},
	}
}

// Trying returns what holds charges that never wait: where there is no memory they get [ErrBusy].
// So its user may hold others.
func (b *Budget) Trying() *Partition {
	return &Partition{budget: b, tries: true, live: map[*Charge]struct{}{}}
}

// Close gives back all that is charged for the partition. What is given back later changes nothing.
func (p *Partition) Close() {
	if p == nil {
		return
	}
	p.mu.Lock()
	live := slices.Collect(maps.Keys(p.live))
	p.begun = nil
	p.mu.Unlock()
	for _, c := range live {
		c.end()
	}
	for _, a := range []*Account{p.Received, p.Read, p.Redriven, p.Kept} {
		a.close()
	}
}

// ReadAccount returns p.Read, nil if p is nil.
func (p *Partition) ReadAccount() *Account {
	if p == nil {
		return nil
	}
	return p.Read
}

// ReceivedAccount returns p.Received, nil if p is nil.
func (p *Partition) ReceivedAccount() *Account {
	if p == nil {
		return nil
	}
	return p.Received
}

// RedrivenAccount returns p.Redriven, nil if p is nil.
func (p *Partition) RedrivenAccount() *Account {
	if p == nil {
		return nil
	}
	return p.Redriven
}

// KeptAccount returns p.Kept, nil if p is nil.
func (p *Partition) KeptAccount() *Account {
	if p == nil {
		return nil
	}
	return p.Kept
}

// Shared returns what [Budget.Shared] does.
func (p *Partition) Shared() (used, limit int64) {
	if p == nil {
		return 0, 0
	}
	return p.budget.Shared()
}

// Charge is the memory that one event needs in a stage after it was read. One goroutine at a time
// uses it, but for Release.
type Charge struct {
	partition *Partition
	pooled    int64 // bytes of the pool
	reserved  int64 // bytes of the reserve: the charge has the token
	begun     bool  // it counts among the partition's
	complete  bool  // it grows no more; guarded by the budget's mu
	next      *Charge
}

// Begin returns a charge of no bytes yet, nil if ctx has no partition, and a context with it. The
// charge is among those that the next [Partition.Collect] returns.
func Begin(ctx context.Context) (context.Context, *Charge) {
	p := FromContext(ctx)
	if p == nil {
		return ctx, nil
	}
	c := &Charge{partition: p}
	return context.WithValue(ctx, chargeKey{}, c), c
}

// Grow adds n bytes to the charge of ctx before they are allocated. It may wait, but if the
// partition has other charges, it returns [ErrBusy] instead.
func Grow(ctx context.Context, n int64) error {
	c, _ := ctx.Value(chargeKey{}).(*Charge)
	return c.grow(ctx, n)
}

// Shrink gives back all but n bytes of the charge of ctx, which grows no more.
func Shrink(ctx context.Context, n int64) {
	c, _ := ctx.Value(chargeKey{}).(*Charge)
	if c != nil {
		c.shrink(n)
	}
}

func (c *Charge) grow(ctx context.Context, n int64) error {
	if c == nil || n <= 0 {
		return nil
	}
	p, b := c.partition, c.partition.budget
	if !c.begun {
		c.begun = true
		p.register(c)
	}
	if c.reserved == 0 && b.waiting.Load() == 0 && b.try(n) {
		c.pooled += n
		return nil
	}
	if p.tries || p.charges.Load() > 1 {
		return ErrBusy
	}
	if p.waits != nil {
		defer p.waits()()
	}
	return b.wait(ctx, c, n)
}

func (c *Charge) bytes() int64 { return c.pooled + c.reserved }

// shrink returns all but n bytes, first those of the reserve.
func (c *Charge) shrink(n int64) {
	b := c.partition.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	over := max(0, c.bytes()-n)
	fromReserve := min(over, c.reserved)
	c.complete = true
	c.reserved -= fromReserve
	c.pooled -= over - fromReserve
	b.shared.Add(fromReserve - over)
	b.settle(c)
	b.grant()
}

// settle takes the token from a charge whose bytes fit into the pool. b.mu must be held.
func (b *Budget) settle(c *Charge) {
	if b.holder != c || c.reserved > 0 && !b.try(c.reserved) {
		return
	}
	c.pooled, c.reserved = c.pooled+c.reserved, 0
	b.holder = nil
}

// register has Collect return a charge.
func (p *Partition) register(c *Charge) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.live[c] = struct{}{}
	p.charges.Store(int64(len(p.live)))
	c.next, p.begun = p.begun, c
}

// Collect returns the charges that were begun since the last call, as one, nil if there are none.
func (p *Partition) Collect() *Charge {
	if p == nil || p.charges.Load() == 0 {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.begun
	p.begun = nil
	return c
}

// Release ends the charges that Collect has returned.
func (c *Charge) Release() {
	for c != nil {
		next := c.next
		c.next = nil
		c.end()
		c = next
	}
}

// end gives back what the charge has, once.
func (c *Charge) end() {
	p := c.partition
	p.mu.Lock()
	_, live := p.live[c]
	delete(p.live, c)
	p.charges.Store(int64(len(p.live)))
	p.mu.Unlock()
	if live {
		c.shrink(0)
	}
}

type (
	partitionKey struct{}
	chargeKey    struct{}
)

// NewContext returns a context in which FromContext returns p.
func NewContext(ctx context.Context, p *Partition) context.Context {
	return context.WithValue(ctx, partitionKey{}, p)
}

// FromContext returns the partition for which a context stands, nil if it stands for none.
func FromContext(ctx context.Context) *Partition {
	p, _ := ctx.Value(partitionKey{}).(*Partition)
	return p
}

package partition

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/sluice-go/sluice/driver"
)

// Never is a time, by Clock.Elapsed, that does not come.
const Never = time.Duration(math.MaxInt64)

// Duty is what a delivery does every so often beside the events, such as looking for redrives. It
// is for one goroutine.
type Duty struct {
	Next  time.Duration // when it is due, by Clock.Elapsed; Never: it is not to be done
	every time.Duration
}

// Every returns a duty that is due every so often after now.
func Every(every, now time.Duration) Duty { return Duty{Next: now + every, every: every} }

// Due reports whether the duty is to be done now. Then its next time is set.
func (d *Duty) Due(now time.Duration) bool {
	if now < d.Next {
		return false
	}
	d.Next = now + d.every
	return true
}

// Timer wakes a delivery when the next of its duties is due. Make it with [NewTimer]; it does
// nothing until it runs. It is safe for concurrent use.
type Timer struct {
	clock    driver.Clock
	delivery chan struct{} // what it wakes

	mu      sync.Mutex
	due     time.Duration      // by Clock.Elapsed
	shorten context.CancelFunc // ends the current wait, because at has become earlier
}

// NewTimer returns a timer that wakes by delivery.
func NewTimer(clock driver.Clock, delivery chan struct{}) *Timer {
	return &Timer{clock: clock, delivery: delivery, due: Never}
}

// Set replaces the time of the next wake, by Clock.Elapsed.
func (t *Timer) Set(at time.Duration) {
	t.mu.Lock()
	shorten := t.shorten
	if at >= t.due {
		shorten = nil // the wait ends before, and another one follows
	}
	t.due = at
	t.mu.Unlock()
	if shorten != nil {
		shorten()
	}
}

// Run wakes the delivery at the times that are set, until ctx ends.
func (t *Timer) Run(ctx context.Context) {
	for ctx.Err() == nil {
		t.wait(ctx)
		t.mu.Lock()
		due := t.due <= t.clock.Elapsed()
		if due {
			t.due = Never
		}
		t.mu.Unlock()
		if due {
			Wake(t.delivery)
		}
	}
}

// wait returns when the time has come that is set now, or ctx ends, or an earlier time is set.
func (t *Timer) wait(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	t.mu.Lock()
	at := t.due
	t.shorten = cancel
	t.mu.Unlock()
	if at == Never {
		<-ctx.Done()
		return
	}
	_ = t.clock.Sleep(ctx, at-t.clock.Elapsed())
}

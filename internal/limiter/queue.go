package limiter

import (
	"context"
	"sync"
	"time"
)

// Clock is the time of a limiter. [github.com/sluice-go/driver.Clock] implements it.
type Clock interface {
	// Elapsed is monotonic time since some fixed moment.
	Elapsed() time.Duration
	// Sleep returns nil after d, or ctx's error if that ends first.
	Sleep(ctx context.Context, d time.Duration) error
}

// source decides what is granted when to the callers in a queue. Its methods are
// called with the queue's lock held.
type source interface {
	// take grants up to want of what is due, 0 if nothing is. waited says whether
	// the caller has waited in the queue.
	take(now time.Duration, want int, waited bool) int
	// due returns the time before which take would grant that caller nothing.
	due(now time.Duration, want int) time.Duration
}

// waitQueue serves callers in the order in which they called. The first caller in
// the queue sleeps until something is due, grants it to the callers in their order,
// and wakes the one who is first then. The others wait without a timer. So there is
// one timer, and no caller wakes up in vain. No lock is held while a caller sleeps.
type waitQueue struct {
	clock   Clock
	mu      sync.Mutex
	waiters []*waiter
}

// waiter is a caller in the queue.
type waiter struct {
	want, got int
	woken     chan struct{}      // has an element when the waiter should check again
	endSleep  context.CancelFunc // ends the sleep of the first waiter; nil if it is awake
}

// wait takes up to want from the source as soon as something is due. The caller has
// what was taken, even if its context has ended in the meantime.
func (q *waitQueue) wait(ctx context.Context, from source, want int) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.clock.Elapsed()
	q.serve(from, now)
	if len(q.waiters) == 0 {
		if got := from.take(now, want, false); got > 0 {
			return got, nil
		}
	}
	w := &waiter{want: want, woken: make(chan struct{}, 1)}
	q.waiters = append(q.waiters, w)
	for w.got == 0 {
		if err := ctx.Err(); err != nil {
			q.leave(w)
			return 0, err
		}
		if q.waiters[0] == w {
			q.sleep(ctx, w, from.due(now, want)-now)
		} else {
			q.mu.Unlock()
			select {
			case <-w.woken:
			case <-ctx.Done():
			}
			q.mu.Lock()
		}
		now = q.clock.Elapsed()
		q.serve(from, now)
	}
	return w.got, nil
}

// sleep releases the lock while w sleeps.
func (q *waitQueue) sleep(ctx context.Context, w *waiter, d time.Duration) {
	ctx, w.endSleep = context.WithCancel(ctx)
	q.mu.Unlock()
	q.clock.Sleep(ctx, d) // its error is ctx's, which the caller checks
	q.mu.Lock()
	w.endSleep()
	w.endSleep = nil
}

// serve grants what is due to the waiters, in their order.
func (q *waitQueue) serve(from source, now time.Duration) {
	served := 0
	for _, w := range q.waiters {
		if w.got = from.take(now, w.want, true); w.got == 0 {
			break
		}
		w.wake()
		served++
	}
	q.pop(0, served)
}

// leave removes a waiter that has given up.
func (q *waitQueue) leave(w *waiter) {
	for i := range q.waiters {
		if q.waiters[i] == w {
			q.pop(i, i+1)
			return
		}
	}
}

// pop removes some waiters, and wakes the one who is first then.
func (q *waitQueue) pop(from, to int) {
	if from == to {
		return
	}
	n := copy(q.waiters[from:], q.waiters[to:])
	clear(q.waiters[from+n:])
	if q.waiters = q.waiters[:from+n]; from == 0 && len(q.waiters) > 0 {
		q.waiters[0].wake()
	}
}

// wake makes a waiter check again whether something is due.
func (w *waiter) wake() {
	if w.endSleep != nil {
		w.endSleep()
	}
	select {
	case w.woken <- struct{}{}:
	default:
	}
}

// change changes the source by f, and wakes the first waiter to compute its sleep
// again.
func (q *waitQueue) change(f func(now time.Duration)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	f(q.clock.Elapsed())
	if len(q.waiters) > 0 {
		q.waiters[0].wake()
	}
}

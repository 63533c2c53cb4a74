package limiter

import (
	"context"
	"sync"
	"time"
)

// Clock is what a limiter knows of time. [github.com/sluice-go/sluice.Clock]
// is one.
type Clock interface {
	// Elapsed is monotonic time since some fixed moment.
	Elapsed() time.Duration
	// Sleep returns nil after d, or ctx's error if that ends first.
	Sleep(ctx context.Context, d time.Duration) error
}

// source is what a line of callers waits for. The line's lock is held over its
// methods.
type source interface {
	// take takes what is due of what a caller wants, 0 if that is nothing. The
	// caller has waited in line, or comes just now.
	take(now time.Duration, want int, waited bool) int
	// due is the moment before which take would give that caller nothing.
	due(now time.Duration, want int) time.Duration
}

// line serves callers first come, first served. The first in line sleeps until
// the source has something, serves all it has to those in line, and leaves the
// watch to the one who is first then; the others wait to be told. So there is
// one timer, and nobody wakes for nothing. No lock is held while anybody
// sleeps.
type line struct {
	clock Clock
	mu    sync.Mutex
	queue []*waiter
}

// waiter is a caller in line.
type waiter struct {
	want, got int
	turn      chan struct{}      // a note: look again
	rouse     context.CancelFunc // the same for the first in line, who sleeps; nil if awake
}

// wait takes up to want from the source as soon as anything is due. What was
// taken is the caller's, even if its context has ended meanwhile.
func (l *line) wait(ctx context.Context, from source, want int) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock.Elapsed()
	l.serve(from, now)
	if len(l.queue) == 0 {
		if got := from.take(now, want, false); got > 0 {
			return got, nil
		}
	}
	w := &waiter{want: want, turn: make(chan struct{}, 1)}
	l.queue = append(l.queue, w)
	for w.got == 0 {
		if err := ctx.Err(); err != nil {
			l.leave(w)
			return 0, err
		}
		if l.queue[0] == w {
			l.sleep(ctx, w, from.due(now, want)-now)
		} else {
			l.mu.Unlock()
			select {
			case <-w.turn:
			case <-ctx.Done():
			}
			l.mu.Lock()
		}
		now = l.clock.Elapsed()
		l.serve(from, now)
	}
	return w.got, nil
}

// sleep lets go of the lock while w sleeps.
func (l *line) sleep(ctx context.Context, w *waiter, d time.Duration) {
	ctx, w.rouse = context.WithCancel(ctx)
	l.mu.Unlock()
	l.clock.Sleep(ctx, d) // its error is ctx's, which the caller looks at
	l.mu.Lock()
	w.rouse()
	w.rouse = nil
}

// serve gives those in line what is due, in their order.
func (l *line) serve(from source, now time.Duration) {
	served := 0
	for _, w := range l.queue {
		if w.got = from.take(now, w.want, true); w.got == 0 {
			break
		}
		w.tell()
		served++
	}
	l.pop(0, served)
}

// leave takes a caller who has given up out of the line.
func (l *line) leave(w *waiter) {
	for i := range l.queue {
		if l.queue[i] == w {
			l.pop(i, i+1)
			return
		}
	}
}

// pop removes a part of the queue. Who is first now takes over the watch.
func (l *line) pop(from, to int) {
	if from == to {
		return
	}
	n := copy(l.queue[from:], l.queue[to:])
	clear(l.queue[from+n:])
	if l.queue = l.queue[:from+n]; from == 0 && len(l.queue) > 0 {
		l.queue[0].tell()
	}
}

// tell makes a waiter look again.
func (w *waiter) tell() {
	if w.rouse != nil {
		w.rouse()
	}
	select {
	case w.turn <- struct{}{}:
	default:
	}
}

// change changes the source, and makes the first in line plan anew.
func (l *line) change(f func(now time.Duration)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f(l.clock.Elapsed())
	if len(l.queue) > 0 {
		l.queue[0].tell()
	}
}

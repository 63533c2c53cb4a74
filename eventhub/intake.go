package eventhub

import (
	"sync"
	"time"
)

// intake bounds how many bytes of events one link holds between its connection and the
// caller of Read. When they are used up, the connection is not read any more, so that
// TCP stops the broker. Credit alone bounds little: it counts events, it cannot be taken
// back, and the events after a thousand small ones may be large.
type intake struct {
	limit int // 0: none

	mu      sync.Mutex
	total   int           // bytes that came
	seen    int           // total at the last empty
	held    int           // of these, what Read has not returned
	waiting bool          // Read waits for an event, which may be larger than limit
	closed  bool          // nothing is bounded any more
	changed chan struct{} // closed when the state changes; nil while nobody waits for that
}

// oversizePace is the time between two reads of the connection if the limit is used up
// and Read waits: either the event is larger than the limit, or Read is about to take it.
const oversizePace = time.Millisecond

// full reports whether the connection must not be read.
func (i *intake) full() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.fullLocked()
}

func (i *intake) fullLocked() bool { return i.limit > 0 && !i.closed && i.held >= i.limit }

// await waits until the connection may be read. It reports whether it had to wait.
func (i *intake) await() (waited bool) {
	for {
		i.mu.Lock()
		full, waiting := i.fullLocked(), i.waiting
		if full && i.changed == nil {
			i.changed = make(chan struct{})
		}
		changed := i.changed
		i.mu.Unlock()
		if !full {
			return waited
		}
		waited = true
		var pace <-chan time.Time
		if waiting {
			pace = time.After(oversizePace)
		}
		select {
		case <-changed:
		case <-pace:
			return true
		}
	}
}

// came counts bytes that were read from the connection.
func (i *intake) came(n int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.total += n
	i.held += n
}

// empty notes that the SDK held no event, and that n bytes of events wait for Read. If
// nothing has come since the last time, nothing is on its way within the SDK either, and
// this is all there is. That corrects what returned leaves: the broker's annotations and
// the frames' headers.
func (i *intake) empty(n int) {
	i.change(func() {
		if i.total == i.seen {
			i.held = n
		}
		i.seen = i.total
	})
}

// returned counts bytes that Read has returned.
func (i *intake) returned(n int) { i.change(func() { i.held = max(0, i.held-n) }) }

// wait notes whether Read waits for an event.
func (i *intake) wait(waiting bool) { i.change(func() { i.waiting = waiting }) }

// close ends every await. It returns whether the connection was not being read.
func (i *intake) close() (wasFull bool) {
	i.change(func() { wasFull, i.closed = i.fullLocked(), true })
	return wasFull
}

// change changes the state and wakes await.
func (i *intake) change(fn func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	fn()
	if i.changed != nil {
		close(i.changed)
		i.changed = nil
	}
}

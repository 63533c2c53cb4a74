package eventhub

import (
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice/internal/memory"
)

// intake bounds how many bytes of events one link holds between its connection and the
// caller of Read. When they are used up, the connection is not read any more, so that
// TCP stops the broker. Credit alone bounds little: it counts events, it cannot be taken
// back, and the events after a thousand small ones may be large.
type intake struct {
	limit       int // 0: none
	startAfresh time.Duration
	memory      *memory.Account // charged for held, and for what is read from the connection; nil: nothing is

	mu      sync.Mutex
	held    int           // bytes that came and that Read has not returned
	waiting bool          // Read waits for an event, which may be larger than limit; or the link opens
	room    int           // bytes that may be held beyond limit
	forced  int           // bytes that may be read although there is no memory for them
	closed  bool          // nothing is bounded any more
	changed chan struct{} // closed when the state changes; nil while nobody waits for that
}

const (
	// eventOverhead is what an event has on the wire beside what [driver.Event.Size]
	// counts: annotations and headers. It is above what brokers send, so that what is
	// held is not overestimated more and more.
	eventOverhead = 256
	// renewalRoom is how many times limit may be held beyond it while a token is renewed.
	renewalRoom = 4
	// startAfresh is how long Read waits while the limit is used up until the count
	// begins again: what came is no complete event, so either the next one is larger
	// than the limit, or the count is too high.
	startAfresh = 10 * time.Millisecond
	// forcedBytes is how many bytes are then read although there is no memory for them: about an
	// event.
	forcedBytes = 1 << 20
)

// full reports whether the connection must not be read.
func (i *intake) full() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.fullLocked()
}

func (i *intake) fullLocked() bool { return i.limit > 0 && !i.closed && i.held >= i.limit+i.room }

// reserve charges n bytes before they are read from the connection. It reports whether that may be.
// i.mu must be held.
func (i *intake) reserve(n int) bool {
	switch {
	case i.memory.Try(int64(n)):
		return true
	case i.closed || i.room > 0: // the answer to a renewal must be read
	case i.forced >= n:
		i.forced -= n
	default:
		return false
	}
	i.memory.Take(int64(n))
	return true
}

// await waits until n bytes may be read from the connection. It reports whether it had to wait.
func (i *intake) await(n int) (waited bool) {
	for {
		i.mu.Lock()
		full, waiting := i.fullLocked(), i.waiting
		short := !full && !i.reserve(n)
		full = full || short
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
			pace = time.After(i.startAfresh)
		}
		select {
		case <-changed:
		case <-pace:
			i.change(func() {
				if short { // what came is no complete event, and Read returns nothing that would free memory
					i.forced = max(forcedBytes, n)
					return
				}
				i.free(i.held)
			})
		}
	}
}

// came counts bytes that were read from the connection, of those that await has charged.
func (i *intake) came(n, charged int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed {
		n = 0
	}
	i.held += n
	i.memory.Give(int64(charged - n))
}

// free counts bytes that are held no more.
func (i *intake) free(n int) {
	n = min(n, i.held)
	i.held -= n
	i.memory.Give(int64(n))
}

// returned counts events that Read has returned, and their bytes.
func (i *intake) returned(events, bytes int) {
	i.change(func() { i.free(bytes + events*eventOverhead) })
}

// wait notes whether Read waits for an event.
func (i *intake) wait(waiting bool) { i.change(func() { i.waiting = waiting }) }

// renewing notes whether a token is renewed. The broker's answer comes after the events that it has
// sent already, which a slow caller of Read would take minutes to return: they are read meanwhile.
// As many bytes as are usual fit into renewalRoom; more, of large events after small ones, wait as
// before.
func (i *intake) renewing(now bool) {
	i.change(func() {
		if i.room = 0; now {
			i.room = renewalRoom * i.limit
		}
	})
}

// close ends every await. It returns whether the connection was not being read.
func (i *intake) close() (wasFull bool) {
	i.change(func() {
		wasFull, i.closed = i.fullLocked(), true
		i.free(i.held)
	})
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

// pacedConn is a connection that is not read while its intake is full.
type pacedConn struct {
	net.Conn
	intake *intake
	idle   atomic.Int64 // how long the client lets a Read last, in ns; 0: for ever
}

// SetReadDeadline implements [net.Conn]. Clients call it before each Read.
func (c *pacedConn) SetReadDeadline(t time.Time) error {
	var idle time.Duration
	if !t.IsZero() {
		idle = max(1, time.Until(t))
	}
	c.idle.Store(int64(idle))
	return c.Conn.SetReadDeadline(t)
}

// Close implements [net.Conn].
func (c *pacedConn) Close() error {
	c.intake.close()
	return c.Conn.Close()
}

// Read implements [net.Conn]. The time in which it waits for room does not count
// against the deadline: the broker is not silent.
func (c *pacedConn) Read(p []byte) (int, error) {
	if c.intake.await(len(p)) {
		if idle := time.Duration(c.idle.Load()); idle > 0 {
			_ = c.Conn.SetReadDeadline(time.Now().Add(idle))
		}
	}
	n, err := c.Conn.Read(p)
	c.intake.came(n, len(p))
	return n, err
}

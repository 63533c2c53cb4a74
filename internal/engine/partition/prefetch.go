package partition

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/memory"
)

// Buffer passes events from the goroutine that fetches to the one that
// delivers, so that the next batch is read while the last one commits. Reading stops
// when it holds max events, or maxBytes. So it holds less than twice max events, and
// less than maxBytes and what one Read returns.
type Buffer struct {
	max, maxBytes int
	memory        *memory.Account // charged for events and batch
	refused       atomic.Bool     // reading waits for memory

	mu     sync.Mutex
	events []*driver.Event
	bytes  int             // the sum of their sizes
	taken  int64           // the sum of the sizes of the events that Take returned last
	batch  int64           // charged for the events that TakeBatch returned last
	tail   driver.Position // numbers without an event were read up to here, after the last event; Unset: none were
	err    error           // why no more events come; returned after the events

	space chan struct{} // wakes fetch: there is room again
	Ready chan struct{} // wakes the delivery: there are events, or an error
}

func newPrefetchBuffer(max, maxBytes int, p *memory.Partition) *Buffer {
	return &Buffer{max: max, maxBytes: maxBytes, memory: p.ReadAccount(), tail: driver.Unset, space: make(chan struct{}, 1), Ready: make(chan struct{}, 1)}
}

// fetch fills the buffer until reading fails or ctx ends. It calls fetched with
// the events of each read, and with the position up to which it went.
func (b *Buffer) fetch(ctx context.Context, r driver.Reader, fetched func(events []*driver.Event, upTo driver.Position)) {
	for {
		if b.full() || !b.reserve() {
			select {
			case <-b.space:
				continue
			case <-b.memory.Freed():
				continue
			case <-ctx.Done():
				return
			}
		}
		events, err := r.Read(ctx, b.max)
		if ctx.Err() != nil {
			b.memory.Give(driver.ReadBytes)
			return
		}
		tail := driver.Unset
		if n := len(events); n > 0 {
			upTo := events[n-1].Position()
			if events[n-1].Control {
				tail = upTo
			}
			events = withoutMarkers(events)
			fetched(events, upTo)
		}
		b.add(events, tail, err)
		if err != nil {
			return
		}
	}
}

// withoutMarkers returns the events without the markers of numbers that have none.
func withoutMarkers(events []*driver.Event) []*driver.Event {
	first := slices.IndexFunc(events, func(e *driver.Event) bool { return e.Control })
	if first < 0 {
		return events
	}
	kept := slices.Clone(events[:first])
	for _, e := range events[first:] {
		if !e.Control {
			kept = append(kept, e)
		}
	}
	return kept
}

// full reports whether reading must wait.
func (b *Buffer) full() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.events) >= b.max || b.bytes >= b.maxBytes
}

// reserve charges what a read may return before it does. It reports whether there is memory for it.
func (b *Buffer) reserve() bool {
	granted := b.memory.Try(driver.ReadBytes)
	b.refused.Store(!granted)
	return granted
}

// discard drops the events, and the charge for them and for the last batch.
func (b *Buffer) discard() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.memory.Give(ChargeOf(len(b.events), int64(b.bytes)) + b.batch)
	b.events, b.bytes, b.batch = nil, 0, 0
}

// add appends what a read returned: events, and how far it went after the last of them, Unset if no
// further. It charges them in place of what was reserved.
func (b *Buffer) add(events []*driver.Event, tail driver.Position, err error) {
	bytes := 0
	for _, e := range events {
		bytes += e.Size()
	}
	b.memory.Settle(driver.ReadBytes, ChargeOf(len(events), int64(bytes)))
	b.mu.Lock()
	b.events = append(b.events, events...)
	b.bytes += bytes
	if len(events) > 0 || tail != driver.Unset {
		b.tail = tail
	}
	if b.err == nil {
		b.err = err
	}
	b.mu.Unlock()
	Wake(b.Ready)
}

// Filled reports whether there are events, and whether a batch of up to n events and maxBytes need
// not wait for further ones: it is full, or none can be read now.
func (b *Buffer) Filled(n int, maxBytes int64) (some, full bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	full = len(b.events) >= min(n, b.max) || int64(b.bytes) >= maxBytes || b.bytes >= b.maxBytes
	return len(b.events) > 0, full || b.err != nil || b.refused.Load()
}

// Tail returns how far numbers without an event were read after the last event that was taken;
// Unset if none were, or if an event follows.
func (b *Buffer) Tail() driver.Position {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.events) > 0 {
		return driver.Unset
	}
	return b.tail
}

// fail has the delivery end with an error, after the events that are there.
func (b *Buffer) fail(err error) {
	b.mu.Lock()
	if b.err == nil {
		b.err = err
	}
	b.mu.Unlock()
	Wake(b.Ready)
}

// TakeBatch is Take for a worker that has done what it took before: that is charged no more.
func (b *Buffer) TakeBatch(n int, maxBytes int64) ([]*driver.Event, error) {
	b.memory.Give(b.batch)
	events, err := b.Take(n, maxBytes)
	b.batch = ChargeOf(len(events), b.taken)
	return events, err
}

// Take removes up to n events of up to maxBytes together, but one of any size if n is
// positive. It returns the reader's error once there are no events left. The charge for the
// events is the caller's.
func (b *Buffer) Take(n int, maxBytes int64) ([]*driver.Event, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.taken = 0
	if len(b.events) == 0 {
		return nil, b.err
	}
	n, bytes := b.fitting(min(n, b.max, len(b.events)), maxBytes)
	taken := b.events
	if n < len(b.events) {
		// A copy: what stays must not keep the taken events in memory.
		taken = slices.Clone(b.events[:n])
		clear(b.events[:n])
		b.events = b.events[n:]
	} else {
		b.events = nil
	}
	b.bytes, b.taken = b.bytes-bytes, int64(bytes)
	Wake(b.space)
	return taken, nil
}

// fitting returns how many of the first n events have up to maxBytes together, and how
// many bytes these have. The first event counts as fitting.
func (b *Buffer) fitting(n int, maxBytes int64) (fit, bytes int) {
	if n == len(b.events) && int64(b.bytes) <= maxBytes {
		return n, b.bytes
	}
	for fit < n {
		size := b.events[fit].Size()
		if fit > 0 && int64(bytes+size) > maxBytes {
			break
		}
		bytes += size
		fit++
	}
	return fit, bytes
}

// Peek returns up to n events with numbers above after, without removing them.
func (b *Buffer) Peek(after int64, n int) []*driver.Event {
	b.mu.Lock()
	defer b.mu.Unlock()
	i, _ := slices.BinarySearchFunc(b.events, after+1, func(e *driver.Event, s int64) int { return cmp.Compare(e.Sequence, s) })
	return slices.Clone(b.events[i:min(i+n, len(b.events))])
}

// Wake sends to a channel of capacity one unless a signal is already there.
func Wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Package worklist keeps the work list of a partition: events arrive in order, many
// are processed concurrently, and they complete in any order. The list knows up to
// which event all are complete, the frontier: a checkpoint may move that far.
//
// It is a ring of bits, one for each arrival, with the positions beside them.
// Completing sets a bit and takes no lock; the frontier moves over up to 64
// arrivals at a time. So an event costs constant time, however many are in flight
// and in whatever order they complete. Slots number the arrivals: positions may have
// gaps, and the list does no arithmetic on them.
package worklist

import (
	"iter"
	"math/bits"
	"sync/atomic"
)

// List is the work list of one partition. One goroutine, the owner, adds arrivals
// and reads the frontier; any goroutine may complete an arrival. P is what the list
// keeps of an arrival, usually its position.
type List[P any] struct {
	size uint64
	ring []*chunk[P] // the chunk of a slot is ring[slot/chunkSlots&mask]
	mask uint64
	_    cacheLine // keeps what the owner writes on other cache lines than what Done reads

	next     uint64    // the next arrival's slot
	low      uint64    // the oldest slot that was not complete at the last check
	frontier P         // the arrival before low
	idle     *chunk[P] // the last chunk that became free, empty
	arrived  atomic.Uint64
	_        cacheLine

	completed [stripes]struct {
		n atomic.Uint64
		_ cacheLine
	}
}

// cacheLine is padding of the size of a cache line.
type cacheLine [64]byte

// The ring consists of chunks, so that an empty list takes no memory, and any list
// only memory for what is in flight.
const (
	wordSlots  = 64
	chunkSlots = 16 * wordSlots
)

type chunk[P any] struct {
	done      [chunkSlots / wordSlots]atomic.Uint64
	positions [chunkSlots]P
}

// stripes is the number of counters that share the completions.
const stripes = 8

// New makes a list with room for size arrivals, at least one.
func New[P any](size int) *List[P] {
	size = max(size, 1)
	chunks := (size-1)/chunkSlots + 2 // size slots, wherever in a chunk the first one lies
	ring := make([]*chunk[P], 1<<bits.Len(uint(chunks-1)))
	return &List[P]{size: uint64(size), ring: ring, mask: uint64(len(ring) - 1)}
}

// Arrive adds an arrival and returns its slot, by which it is completed. It
// returns false if the list is full: the oldest incomplete arrival is size
// arrivals back. Only the owner may call it.
func (l *List[P]) Arrive(at P) (slot uint64, ok bool) {
	if l.next-l.low == l.size {
		if l.advance(); l.next-l.low == l.size {
			return 0, false
		}
	}
	slot = l.next
	if slot%chunkSlots == 0 {
		l.extend()
	}
	l.chunk(slot).positions[slot%chunkSlots] = at
	l.next++
	l.arrived.Store(l.next)
	return slot, true
}

// Done completes the arrival in a slot. Any goroutine may call it, once for
// each slot that Arrive has returned.
func (l *List[P]) Done(slot uint64) {
	l.word(slot).Or(1 << (slot % wordSlots))
	l.completed[slot/wordSlots%stripes].n.Add(1) // after the bit: when none is in flight, all bits are visible
}

// Low returns the frontier: the last arrival up to which all are complete, and the
// number of arrivals up to it since New. There is none yet if done is 0. Only the
// owner may call it.
func (l *List[P]) Low() (at P, done uint64) {
	l.advance()
	return l.frontier, l.low
}

// Oldest returns the oldest incomplete arrival, if there is one. Only
// the owner may call it.
func (l *List[P]) Oldest() (at P, ok bool) {
	l.advance()
	if l.low == l.next {
		return at, false
	}
	return l.position(l.low), true
}

// InFlight returns the number of incomplete arrivals; rather more while many complete at the same
// time. Any goroutine may call it.
func (l *List[P]) InFlight() int {
	const tries = 16
	// The completions are read first: then they can't exceed the arrivals.
	completed := l.completions()
	for range tries {
		arrived := l.arrived.Load()
		now := l.completions()
		if now == completed {
			return int(arrived - completed)
		}
		completed = now
	}
	return int(l.arrived.Load() - completed)
}

func (l *List[P]) completions() (n uint64) {
	for i := range l.completed {
		n += l.completed[i].n.Load()
	}
	return n
}

// Runs yields the runs of complete arrivals above the frontier that Low has last
// returned, in order, each as its first and last arrival. It takes one step for
// every run, and for every 64 arrivals in flight. Only the owner may call it, and
// must not change the list during the iteration; arrivals may complete.
func (l *List[P]) Runs() iter.Seq2[P, P] {
	return func(yield func(first, last P) bool) {
		for from := l.seek(l.low, true); from < l.next; {
			to := l.seek(from, false)
			if !yield(l.position(from), l.position(to-1)) {
				return
			}
			from = l.seek(to, true)
		}
	}
}

// advance moves the frontier as far as all arrivals are complete, and frees the
// chunks below it.
func (l *List[P]) advance() {
	low := l.seek(l.low, false)
	if low == l.low {
		return
	}
	l.frontier = l.position(low - 1)
	for c := l.low / chunkSlots; c < low/chunkSlots; c++ {
		l.idle, l.ring[c&l.mask] = l.ring[c&l.mask], nil
		*l.idle = chunk[P]{}
	}
	l.low = low
}

// extend adds the chunk for the slots from next on.
func (l *List[P]) extend() {
	c := l.idle
	if l.idle = nil; c == nil {
		c = new(chunk[P])
	}
	l.ring[l.next/chunkSlots&l.mask] = c
}

// seek returns the first complete, or incomplete, slot from a slot on; l.next if
// there is none.
func (l *List[P]) seek(slot uint64, complete bool) uint64 {
	for slot < l.next {
		word := l.word(slot).Load()
		if !complete {
			word = ^word
		}
		if word >>= slot % wordSlots; word != 0 {
			return min(slot+uint64(bits.TrailingZeros64(word)), l.next)
		}
		slot = (slot | (wordSlots - 1)) + 1
	}
	return l.next
}

// chunk returns the chunk of a slot. It needs no lock: a chunk is in the ring before
// Arrive returns one of its slots, and is removed only after all are complete.
func (l *List[P]) chunk(slot uint64) *chunk[P] {
	return l.ring[slot/chunkSlots&l.mask]
}

func (l *List[P]) word(slot uint64) *atomic.Uint64 {
	return &l.chunk(slot).done[slot%chunkSlots/wordSlots]
}

func (l *List[P]) position(slot uint64) P { return l.chunk(slot).positions[slot%chunkSlots] }

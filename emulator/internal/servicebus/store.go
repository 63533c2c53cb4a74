package servicebus

import (
	"cmp"
	"container/heap"
	"slices"
	"time"

	"github.com/sluice-go/sluice/emulator/internal/disklog"
)

// entry is a message in a store.
type entry struct {
	Message
	store      *Store
	token      Token
	lock       int64    // when the lock expires, in ms since 1970; or 0, or sessionLock
	holder     *Session // whose lock it is, in a session
	gone       bool     // removed from its store
	unwritten  *disklog.Pending
	generation uint64 // of the journal in which the message was last written with its payload
}

// sessionLock is the lock time of a message whose lock lasts as long as its session's.
const sessionLock = 1<<63 - 1

// available reports whether the message can be received.
func (e *entry) available() bool {
	return !e.gone && e.lock == 0 && e.State == Active && e.unwritten == nil
}

// size returns how many bytes the message counts for in its queue.
func (e *entry) size() int64 { return int64(len(e.Payload) + len(e.Reason) + len(e.Description)) }

// Store holds the messages of a queue, or its dead letters. It is safe for concurrent
// use.
type Store struct {
	q         *Queue
	dead      bool
	entries   []*entry // by sequence number; some are gone
	live      int      // entries that aren't gone
	scheduled int      // of those that aren't gone
	ready     byNumber // available messages, without those of sessions; some may no longer be available
	sessions  map[string]*session
}

// add adds an entry in the order of sequence numbers. That is at the end, except for
// dead letters and messages that are added again.
func (s *Store) add(e *entry) {
	e.store = s
	at := len(s.entries)
	if at > 0 && s.entries[at-1].Sequence > e.Sequence {
		at = s.find(e.Sequence)
	}
	s.entries = slices.Insert(s.entries, at, e)
	s.live++
	if e.State == Scheduled {
		s.scheduled++
	}
	s.push(e)
}

// push adds an entry to the messages to be received next, if it is available.
func (s *Store) push(e *entry) {
	switch {
	case !e.available():
	case s.sessions != nil:
		heap.Push(&s.session(e.Session).ready, e)
	default:
		heap.Push(&s.ready, e)
	}
}

// find returns the index of the first entry with that sequence number or a higher one.
func (s *Store) find(sequence int64) int {
	at, _ := slices.BinarySearchFunc(s.entries, sequence, func(e *entry, n int64) int { return cmp.Compare(e.Sequence, n) })
	return at
}

// get returns the entry with a sequence number, nil if there is none.
func (s *Store) get(sequence int64) *entry {
	for _, e := range s.entries[s.find(sequence):] {
		if e.Sequence != sequence {
			break
		}
		if !e.gone {
			return e
		}
	}
	return nil
}

// remove marks an entry as gone. Once more than half of the entries are gone, the slice
// is compacted.
func (s *Store) remove(e *entry) {
	e.gone = true
	s.live--
	if e.State == Scheduled {
		s.scheduled--
	}
	if len(s.entries) > 64 && s.live < len(s.entries)/2 {
		s.entries = slices.DeleteFunc(s.entries, func(e *entry) bool { return e.gone })
	}
}

// byNumber is a heap of entries by sequence number.
type byNumber []*entry

// next removes and returns the first available entry; nil if there is none.
func (h *byNumber) next() *entry {
	for len(*h) > 0 {
		if e := heap.Pop(h).(*entry); e.available() {
			return e
		}
	}
	return nil
}

// peek returns the first available entry; nil if there is none.
func (h *byNumber) peek() *entry {
	e := h.next()
	if e != nil {
		heap.Push(h, e)
	}
	return e
}

func (h byNumber) Len() int           { return len(h) }
func (h byNumber) Less(i, j int) bool { return h[i].Sequence < h[j].Sequence }
func (h byNumber) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *byNumber) Push(x any)        { *h = append(*h, x.(*entry)) }

func (h *byNumber) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return e
}

// deadline is a time, in ms since 1970, at which a lock or a message expires, or a
// scheduled message is due, unless that was changed meanwhile.
type deadline struct {
	due int64
	e   *entry
	s   *session
}

// stale reports whether the deadline no longer applies.
func (d deadline) stale() bool {
	switch {
	case d.s != nil:
		return d.s.holder == nil || d.due != d.s.lockedUntil
	case d.e.gone:
		return true
	case d.e.State == Scheduled:
		return d.due != d.e.Scheduled.UnixMilli()
	}
	return d.due != d.e.lock && (d.e.Expires.IsZero() || d.due != d.e.Expires.UnixMilli())
}

type byTime []deadline

func (h byTime) Len() int           { return len(h) }
func (h byTime) Less(i, j int) bool { return h[i].due < h[j].due }
func (h byTime) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *byTime) Push(x any)        { *h = append(*h, x.(deadline)) }

func (h *byTime) Pop() any {
	last := len(*h) - 1
	d := (*h)[last]
	(*h)[last] = deadline{}
	*h = (*h)[:last]
	return d
}

func timeOf(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

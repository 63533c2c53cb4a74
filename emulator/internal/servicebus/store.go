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
	lock       int64    // when the lock expires, in ms since 1970; 0 if the message isn't locked, sessionLock if it is with its session
	holder     *Session // whose lock it is, in a session
	gone       bool     // from its store
	unwritten  *disklog.Pending
	generation uint64 // of the journal, in which the message was written as a whole
}

// sessionLock is the lock of a message that lasts as long as that of its session.
const sessionLock = 1<<63 - 1

// available tells whether the message can be received.
func (e *entry) available() bool {
	return !e.gone && e.lock == 0 && e.State == Active && e.unwritten == nil
}

// Store holds the messages of a queue, or its dead letters. Its methods may be called concurrently.
type Store struct {
	q         *Queue
	dead      bool
	entries   []*entry // by sequence number, some of them gone
	live      int      // of entries
	scheduled int      // of those
	ready     byNumber // available, as are those of sessions; some may no longer be
	sessions  map[string]*session
}

// add puts an entry in its place: the end, but for dead letters and what comes back.
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

// push makes an entry that is available one of those to receive next.
func (s *Store) push(e *entry) {
	switch {
	case !e.available():
	case s.sessions != nil:
		heap.Push(&s.session(e.Session).ready, e)
	default:
		heap.Push(&s.ready, e)
	}
}

// find is the index of the first entry of that sequence number or a higher one.
func (s *Store) find(sequence int64) int {
	at, _ := slices.BinarySearchFunc(s.entries, sequence, func(e *entry, n int64) int { return cmp.Compare(e.Sequence, n) })
	return at
}

// get is the entry of a sequence number, nil if there is none.
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

// remove takes an entry out. The places of those that are gone are given back when they are the most.
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

// next takes the first entry that can be received; nil if there is none.
func (h *byNumber) next() *entry {
	for len(*h) > 0 {
		if e := heap.Pop(h).(*entry); e.available() {
			return e
		}
	}
	return nil
}

// peek is the first entry that can be received; nil if there is none.
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

// deadline is a moment at which something may become of an entry or a session: a lock ends, a life does, or a message is due, unless that
// was changed meanwhile.
type deadline struct {
	at int64
	e  *entry
	s  *session
}

// stale tells whether the moment no longer matters.
func (d deadline) stale() bool {
	switch {
	case d.s != nil:
		return d.s.holder == nil || d.at != d.s.until
	case d.e.gone:
		return true
	case d.e.State == Scheduled:
		return d.at != d.e.Scheduled.UnixMilli()
	}
	return d.at != d.e.lock && (d.e.Expires.IsZero() || d.at != d.e.Expires.UnixMilli())
}

type byTime []deadline

func (h byTime) Len() int           { return len(h) }
func (h byTime) Less(i, j int) bool { return h[i].at < h[j].at }
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

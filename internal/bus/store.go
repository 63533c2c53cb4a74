package bus

import (
	"cmp"
	"container/heap"
	"slices"
)

// entry is a message in a store.
type entry struct {
	Message
	store *Store
	token Token
	lock  int64 // when the lock expires, in ms since 1970; 0 if the message isn't locked
	gone  bool  // from its store
}

// Store holds the messages of a queue, or its dead letters. Its methods may be called concurrently.
type Store struct {
	q       *Queue
	dead    bool
	entries []*entry // by sequence number, some of them gone
	live    int      // of entries
	ready   byNumber // neither gone nor locked; some may be either by now
}

// add puts an entry in its place: the end, but for dead letters.
func (s *Store) add(e *entry) {
	e.store = s
	at := len(s.entries)
	if at > 0 && s.entries[at-1].Sequence > e.Sequence {
		at = s.find(e.Sequence)
	}
	s.entries = slices.Insert(s.entries, at, e)
	s.live++
	heap.Push(&s.ready, e)
}

// find is the index of the first entry of that sequence number or a higher one.
func (s *Store) find(sequence int64) int {
	at, _ := slices.BinarySearchFunc(s.entries, sequence, func(e *entry, n int64) int { return cmp.Compare(e.Sequence, n) })
	return at
}

// remove takes an entry out. The places of those that are gone are given back when they are the most.
func (s *Store) remove(e *entry) {
	e.gone = true
	s.live--
	if len(s.entries) > 64 && s.live < len(s.entries)/2 {
		s.entries = slices.DeleteFunc(s.entries, func(e *entry) bool { return e.gone })
	}
}

// next takes the first entry that can be received; nil if there is none.
func (s *Store) next() *entry {
	for len(s.ready) > 0 {
		if e := heap.Pop(&s.ready).(*entry); !e.gone && e.store == s && e.lock == 0 {
			return e
		}
	}
	return nil
}

// byNumber is a heap of entries by sequence number.
type byNumber []*entry

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

// deadline is a moment at which something may become of an entry: its lock or its life ends, unless that was changed meanwhile.
type deadline struct {
	at int64
	e  *entry
}

// stale tells whether the moment no longer matters.
func (d deadline) stale() bool {
	return d.e.gone || d.at != d.e.lock && (d.e.Expires.IsZero() || d.at != d.e.Expires.UnixMilli())
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

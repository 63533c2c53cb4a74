// Package faults keeps what is to go wrong on demand: which faults there are, how often each has happened, and which one is next. What a
// fault is, and what it befalls, its users know.
package faults

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// MaxDelay is how long a fault may hold up what it befalls.
const MaxDelay = time.Hour

// maxFaults bounds the faults of a set.
const maxFaults = 1000

// Set holds faults. The zero value is empty. Its methods may be called concurrently.
type Set[F any] struct {
	nonEmpty atomic.Bool // there are faults to look for

	mu     sync.Mutex
	lastID int
	list   []entry[F]
}

// State is a fault and what has come of it.
type State[F any] struct {
	ID    int
	Fault F
	Hits  int // how often it has happened
}

type entry[F any] struct {
	State[F]
	times int
	until time.Time
}

func (e *entry[F]) expired() bool {
	return e.times > 0 && e.Hits >= e.times || !e.until.IsZero() && time.Now().After(e.until)
}

// Add puts a fault behind the others and returns its id. It happens so many times, 0 for no limit, and for so long, 0 for ever.
func Add[F any](s *Set[F], fault F, times int, life time.Duration) (id int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.list) >= maxFaults {
		return 0, fmt.Errorf("there are %d faults already: remove some", maxFaults)
	}
	s.lastID++
	e := entry[F]{State: State[F]{ID: s.lastID, Fault: fault}, times: times}
	if life > 0 {
		e.until = time.Now().Add(life)
	}
	s.list = append(s.list, e)
	s.nonEmpty.Store(true)
	return s.lastID, nil
}

// Next counts and returns the oldest fault that befalls the operation in question, if there is one that isn't over.
func Next[F any](s *Set[F], befalls func(*F) bool) (fault F, ok bool) {
	if !s.nonEmpty.Load() {
		return fault, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.list {
		if e := &s.list[i]; !e.expired() && befalls(&e.Fault) {
			e.Hits++
			return e.Fault, true
		}
	}
	return fault, false
}

// List returns all faults, also those that won't happen again, oldest first.
func (s *Set[F]) List() []State[F] {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]State[F], len(s.list))
	for i := range s.list {
		list[i] = s.list[i].State
	}
	return list
}

// Remove removes a fault, and tells whether there was one of that id.
func (s *Set[F]) Remove(id int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := len(s.list)
	s.list = slices.DeleteFunc(s.list, func(e entry[F]) bool { return e.ID == id })
	return len(s.list) < before
}

// Clear removes all faults.
func (s *Set[F]) Clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = nil
	s.nonEmpty.Store(false)
}

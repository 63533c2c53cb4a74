// Package faults holds the faults that an emulated server injects on request: which faults are
// configured, how often each has been injected, and which one is next. What a fault is, and which
// operations it applies to, its users define.
package faults

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// MaxDelay is the longest delay of an operation that a fault may configure.
const MaxDelay = time.Hour

// maxFaults is the most faults that a set holds.
const maxFaults = 1000

// Set holds faults. The zero value is empty. Its methods may be called concurrently.
type Set[F any] struct {
	nonEmpty atomic.Bool // list is not empty: Next needs no lock otherwise

	mu     sync.Mutex
	lastID int
	list   []entry[F]
}

// State is a fault and how often it has been injected.
type State[F any] struct {
	ID    int
	Fault F
	Hits  int // how often it has been injected
}

type entry[F any] struct {
	State[F]
	times   int
	expires time.Time
}

func (e *entry[F]) expired() bool {
	return e.times > 0 && e.Hits >= e.times || !e.expires.IsZero() && time.Now().After(e.expires)
}

// Add adds a fault after the others and returns its id. The fault is injected at most times times,
// 0 for no limit, and expires after life, 0 for never.
func Add[F any](s *Set[F], fault F, times int, life time.Duration) (id int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.list) >= maxFaults {
		return 0, fmt.Errorf("there are %d faults already, the maximum: remove some", maxFaults)
	}
	s.lastID++
	e := entry[F]{State: State[F]{ID: s.lastID, Fault: fault}, times: times}
	if life > 0 {
		e.expires = time.Now().Add(life)
	}
	s.list = append(s.list, e)
	s.nonEmpty.Store(true)
	return s.lastID, nil
}

// Next returns the oldest fault that has not expired and for which applies returns true, and
// counts it as injected.
func Next[F any](s *Set[F], applies func(*F) bool) (fault F, ok bool) {
	if !s.nonEmpty.Load() {
		return fault, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.list {
		if e := &s.list[i]; !e.expired() && applies(&e.Fault) {
			e.Hits++
			return e.Fault, true
		}
	}
	return fault, false
}

// List returns all faults, including expired ones, oldest first.
func (s *Set[F]) List() []State[F] {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]State[F], len(s.list))
	for i := range s.list {
		list[i] = s.list[i].State
	}
	return list
}

// Remove removes a fault, and reports whether there was one with that id.
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

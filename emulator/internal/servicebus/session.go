package servicebus

import (
	"cmp"
	"container/heap"
	"context"
	"fmt"
	"slices"
	"time"
)

// session is the state of one session in a queue.
type session struct {
	id          string
	ready       byNumber
	holder      *Session
	lockedUntil int64 // when the lock expires, in ms since 1970
	state       []byte
	stated      int64 // when the state was last set, or read from disk, in ms since 1970
}

// maxState is the largest session state in bytes, as on Azure's standard tier.
const maxState = 256 << 10

// session returns the session with the id, which it creates if there is none.
func (s *Store) session(id string) *session {
	x := s.sessions[id]
	if x == nil {
		x = &session{id: id}
		s.sessions[id] = x
	}
	return x
}

// InSessions reports whether messages are received by session.
func (s *Store) InSessions() bool { return s.sessions != nil }

// Session is a session that a receiver has locked: no other receiver gets its messages
// until it is released or its lock expires. Its methods return [ErrSessionLost] from
// then on. A Session is safe for concurrent use.
type Session struct {
	store   *Store
	session *session
	locked  map[*entry]struct{}
}

// AcceptSession locks a session, which needs no messages. Errors: [ErrNoSessions],
// [ErrSessionLocked].
func (s *Store) AcceptSession(id string) (*Session, error) {
	q := s.q
	now := q.beginUse()
	defer q.end()
	if err := s.receivable(); err != nil {
		return nil, err
	}
	if s.sessions == nil {
		return nil, ErrNoSessions
	}
	return s.lockSession(s.session(id), now)
}

// AcceptNext locks the session of the first available message. It waits until there is
// one.
func (s *Store) AcceptNext(ctx context.Context) (held *Session, err error) {
	if s.sessions == nil {
		return nil, ErrNoSessions
	}
	err = s.wait(ctx, func() (bool, error) {
		if err := s.receivable(); err != nil {
			return false, err
		}
		var first *session
		var at int64
		for _, x := range s.sessions {
			if x.holder != nil {
				continue
			}
			if e := x.ready.peek(); e == nil {
				s.removeIfUnused(x)
			} else if first == nil || e.Sequence < at {
				first, at = x, e.Sequence
			}
		}
		if first == nil {
			return false, nil
		}
		held, err = s.lockSession(first, time.Now().UnixMilli())
		return true, err
	})
	return held, err
}

func (s *Store) lockSession(x *session, now int64) (*Session, error) {
	if x.holder != nil {
		return nil, fmt.Errorf("session %.128q: %w", x.id, ErrSessionLocked)
	}
	x.holder = &Session{store: s, session: x, locked: make(map[*entry]struct{})}
	s.q.extendSession(x, now)
	return x.holder, nil
}

func (q *Queue) extendSession(x *session, now int64) {
	x.lockedUntil = now + q.cfg.Lock.Milliseconds()
	heap.Push(&q.deadlines, deadline{due: x.lockedUntil, s: x})
}

// releaseSession unlocks a session. Messages that are still locked with it are
// abandoned.
func (q *Queue) releaseSession(x *session, now int64) {
	locked := x.holder.locked
	x.holder = nil
	back := make([]*entry, 0, len(locked))
	for e := range locked {
		back = append(back, e)
	}
	slices.SortFunc(back, func(a, b *entry) int { return cmp.Compare(a.Sequence, b.Sequence) })
	for _, e := range back {
		delete(q.locks, e.token)
		e.lock, e.holder = 0, nil
		q.abandon(e, now)
	}
	q.messages.removeIfUnused(x)
	q.wake()
}

// removeIfUnused removes a session that has no holder, no state and no available
// messages.
func (s *Store) removeIfUnused(x *session) {
	if x.holder == nil && x.state == nil && x.ready.peek() == nil {
		delete(s.sessions, x.id)
	}
}

// ID returns the session's id.
func (h *Session) ID() string { return h.session.id }

// lost reports whether the session is no longer locked by h. The queue's mutex is held.
func (h *Session) lost() bool { return h.session.holder != h }

// LockedUntil returns when the lock of the session expires, unless it is renewed.
func (h *Session) LockedUntil() time.Time {
	h.store.q.mu.Lock()
	defer h.store.q.mu.Unlock()
	return timeOf(h.session.lockedUntil)
}

// Receive is [Store.Receive] for the messages of the session.
func (h *Session) Receive(n, maxBytes int) ([]Locked, error) {
	q := h.store.q
	now := q.beginUse()
	defer q.end()
	if h.lost() {
		return nil, ErrSessionLost
	}
	return h.store.receive(&h.session.ready, h, n, maxBytes, now)
}

// Wait is [Store.Wait] for the messages of the session.
func (h *Session) Wait(ctx context.Context) error {
	return h.store.wait(ctx, func() (bool, error) {
		if h.lost() {
			return false, ErrSessionLost
		}
		return h.session.ready.peek() != nil, h.store.receivable()
	})
}

// WaitLost waits until the session's lock is lost, and returns [ErrSessionLost]; or
// ctx's error if ctx ends first.
func (h *Session) WaitLost(ctx context.Context) error {
	return h.store.wait(ctx, func() (bool, error) {
		if h.lost() {
			return false, ErrSessionLost
		}
		return false, nil
	})
}

// Release unlocks the session.
func (h *Session) Release() {
	q := h.store.q
	now := q.begin()
	if !h.lost() {
		q.releaseSession(h.session, now)
	}
	q.end()
}

// heldSession returns the session with the id if a receiver has locked it. The queue's
// mutex is held.
func (s *Store) heldSession(id string) (*session, error) {
	if s.sessions == nil {
		return nil, ErrNoSessions
	}
	if x := s.sessions[id]; x != nil && x.holder != nil {
		return x, nil
	}
	return nil, ErrSessionLost
}

// RenewSession renews the lock of a session for the lock duration, and returns its new
// expiry.
func (s *Store) RenewSession(id string) (time.Time, error) {
	now := s.q.beginUse()
	defer s.q.end()
	x, err := s.heldSession(id)
	if err != nil {
		return time.Time{}, err
	}
	s.q.extendSession(x, now)
	return timeOf(x.lockedUntil), nil
}

// SessionState returns the state of a session that is locked, nil if it has none.
func (s *Store) SessionState(id string) ([]byte, error) {
	s.q.beginUse()
	defer s.q.end()
	x, err := s.heldSession(id)
	if err != nil {
		return nil, err
	}
	return x.state, nil
}

// SetSessionState sets the state of a session, up to 256 KiB; nil removes it. The
// session must be locked. The state counts for the queue's MaxBytes: without room for it
// the error is [ErrFull].
func (s *Store) SetSessionState(id string, state []byte) Receipt {
	q := s.q
	now := q.beginUse()
	x, err := s.heldSession(id)
	switch {
	case err != nil:
		return q.reject(err)
	case len(state) > maxState:
		return q.reject(fmt.Errorf("session state of %d bytes: %w, which takes %d", len(state), ErrFull, maxState))
	}
	grown := int64(len(state) - len(x.state))
	if grown > 0 && q.bytes+grown > q.cfg.MaxBytes {
		return q.reject(ErrFull)
	}
	q.bytes += grown
	x.state, x.stated = state, now
	q.changes.sessionState(q.id, id, state)
	return q.commit()
}

// StatesSince returns the ids of the sessions that have a state which was set after a
// time, sorted. For a state from before a restart, that is the time of the restart.
func (s *Store) StatesSince(after time.Time) []string {
	s.q.beginUse()
	defer s.q.end()
	var ids []string
	for id, x := range s.sessions {
		if x.state != nil && timeOf(x.stated).After(after) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// Sessions returns the ids of the sessions that have a state or available messages,
// sorted.
func (s *Store) Sessions() []string {
	s.q.beginUse()
	defer s.q.end()
	var ids []string
	for id, x := range s.sessions {
		if x.state != nil || x.ready.peek() != nil {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

package servicebus

import (
	"cmp"
	"container/heap"
	"context"
	"fmt"
	"slices"
	"time"
)

// session is what a queue keeps of one session.
type session struct {
	id     string
	ready  byNumber
	holder *Session
	until  int64 // when the lock expires, in ms since 1970
	state  []byte
}

// maxState bounds the state of a session, as on Azure's standard tier.
const maxState = 256 << 10

// session finds or makes a session.
func (s *Store) session(id string) *session {
	x := s.sessions[id]
	if x == nil {
		x = &session{id: id}
		s.sessions[id] = x
	}
	return x
}

// InSessions tells whether messages are received by session.
func (s *Store) InSessions() bool { return s.sessions != nil }

// Session is a receiver's hold of a session: nobody else gets its messages, until it is given back or its lock expires. Its methods may be
// called concurrently, and return [ErrSessionLost] from then on.
type Session struct {
	store   *Store
	session *session
	locked  map[*entry]struct{}
}

// AcceptSession locks a session, whether there are messages of it or not: [ErrNoSessions], [ErrSessionLocked].
func (s *Store) AcceptSession(id string) (*Session, error) {
	q := s.q
	now := q.enter()
	defer q.exit()
	if err := s.receivable(); err != nil {
		return nil, err
	}
	if s.sessions == nil {
		return nil, ErrNoSessions
	}
	return s.take(s.session(id), now)
}

// AcceptNext locks the session of the first message that can be received, and waits for one.
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
				s.tidy(x)
			} else if first == nil || e.Sequence < at {
				first, at = x, e.Sequence
			}
		}
		if first == nil {
			return false, nil
		}
		held, err = s.take(first, time.Now().UnixMilli())
		return true, err
	})
	return held, err
}

func (s *Store) take(x *session, now int64) (*Session, error) {
	if x.holder != nil {
		return nil, fmt.Errorf("session %.128q: %w", x.id, ErrSessionLocked)
	}
	x.holder = &Session{store: s, session: x, locked: make(map[*entry]struct{})}
	s.q.extendSession(x, now)
	return x.holder, nil
}

func (q *Queue) extendSession(x *session, now int64) {
	x.until = now + q.cfg.Lock.Milliseconds()
	heap.Push(&q.deadlines, deadline{at: x.until, s: x})
}

// endSession gives a session back. What its receiver had locked counts as delivered.
func (q *Queue) endSession(x *session, now int64) {
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
		q.fail(e, now)
	}
	q.messages.tidy(x)
	q.wake()
}

// tidy forgets a session of which there is nothing.
func (s *Store) tidy(x *session) {
	if x.holder == nil && x.state == nil && x.ready.peek() == nil {
		delete(s.sessions, x.id)
	}
}

// ID is the session's.
func (h *Session) ID() string { return h.session.id }

// lost tells whether the session is no longer held. The queue's lock is held.
func (h *Session) lost() bool { return h.session.holder != h }

// Until is when the lock of the session expires, unless it is renewed.
func (h *Session) Until() time.Time {
	h.store.q.mu.Lock()
	defer h.store.q.mu.Unlock()
	return timeOf(h.session.until)
}

// Receive is as that of a [Store], with messages of the session.
func (h *Session) Receive(n, maxBytes int) ([]Locked, error) {
	q := h.store.q
	now := q.enter()
	defer q.exit()
	if h.lost() {
		return nil, ErrSessionLost
	}
	return h.store.receive(&h.session.ready, h, n, maxBytes, now)
}

// Wait is as that of a [Store].
func (h *Session) Wait(ctx context.Context) error {
	return h.store.wait(ctx, func() (bool, error) {
		if h.lost() {
			return false, ErrSessionLost
		}
		return h.session.ready.peek() != nil, h.store.receivable()
	})
}

// Watch returns [ErrSessionLost] once the session is no longer held, or ctx's error if that ends first.
func (h *Session) Watch(ctx context.Context) error {
	return h.store.wait(ctx, func() (bool, error) {
		if h.lost() {
			return false, ErrSessionLost
		}
		return false, nil
	})
}

// Release gives the session back.
func (h *Session) Release() {
	q := h.store.q
	now := q.enter()
	if !h.lost() {
		q.endSession(h.session, now)
	}
	q.exit()
}

// heldSession finds a session that somebody holds. The queue's lock is held.
func (s *Store) heldSession(id string) (*session, error) {
	if s.sessions == nil {
		return nil, ErrNoSessions
	}
	if x := s.sessions[id]; x != nil && x.holder != nil {
		return x, nil
	}
	return nil, ErrSessionLost
}

// RenewSession has the lock of a session last as long as a new one, and returns until when.
func (s *Store) RenewSession(id string) (time.Time, error) {
	now := s.q.enter()
	defer s.q.exit()
	x, err := s.heldSession(id)
	if err != nil {
		return time.Time{}, err
	}
	s.q.extendSession(x, now)
	return timeOf(x.until), nil
}

// SessionState is what receivers have kept of a session, nil if nothing.
func (s *Store) SessionState(id string) ([]byte, error) {
	s.q.enter()
	defer s.q.exit()
	x, err := s.heldSession(id)
	if err != nil {
		return nil, err
	}
	return x.state, nil
}

// SetSessionState keeps something of a session, up to 256 KiB; nil is nothing. The session must be held.
func (s *Store) SetSessionState(id string, state []byte) Receipt {
	q := s.q
	q.enter()
	x, err := s.heldSession(id)
	switch {
	case err != nil:
		return q.refuse(err)
	case len(state) > maxState:
		return q.refuse(fmt.Errorf("session state of %d bytes: %w, which takes %d", len(state), ErrFull, maxState))
	}
	x.state = state
	q.notes.sessionState(q.id, id, state)
	return q.leave()
}

// Sessions are the ids of the sessions that have a state or messages that can be received, in order.
func (s *Store) Sessions() []string {
	s.q.enter()
	defer s.q.exit()
	var ids []string
	for id, x := range s.sessions {
		if x.state != nil || x.ready.peek() != nil {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

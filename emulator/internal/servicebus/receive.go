package servicebus

import (
	"context"
	"crypto/rand"
	"fmt"
	"math"
	"slices"
	"time"
)

// Receive locks up to n available messages in the order of their sequence numbers, with
// up to maxBytes of payload in total, but at least one message if any is available. It
// doesn't wait. Errors: [ErrSessionNeeded] if messages are received by session,
// [ErrDeleted], [ErrReceiveDisabled].
func (s *Store) Receive(n, maxBytes int) ([]Locked, error) {
	if s.sessions != nil {
		return nil, ErrSessionNeeded
	}
	now := s.q.beginUse()
	defer s.q.end()
	return s.receive(&s.ready, nil, n, maxBytes, now)
}

// receive locks messages that are ready; holder is the session's holder, or nil.
func (s *Store) receive(ready *byNumber, holder *Session, n, maxBytes int, now int64) ([]Locked, error) {
	if err := s.receivable(); err != nil {
		return nil, err
	}
	var got []Locked
	for size := 0; len(got) < n; {
		e := ready.next()
		if e == nil {
			break
		}
		if size += len(e.Payload); size > maxBytes && len(got) > 0 {
			s.push(e)
			break
		}
		got = append(got, s.q.lock(e, holder, now))
	}
	return got, nil
}

func (s *Store) receivable() error {
	switch q := s.q; {
	case q.deleted:
		return ErrDeleted
	case q.cfg.Status.receiveDisabled() || q.topic != nil && q.topic.receiveDisabled():
		return ErrReceiveDisabled
	}
	return nil
}

// lock locks a message for a receiver.
func (q *Queue) lock(e *entry, holder *Session, now int64) Locked {
	rand.Read(e.token[:])
	e.token[6], e.token[8] = e.token[6]&0x0f|0x40, e.token[8]&0x3f|0x80 // a UUID, version 4
	q.locks[e.token] = e
	if holder != nil {
		e.lock, e.holder = sessionLock, holder
		holder.locked[e] = struct{}{}
		return Locked{Message: e.Message, Token: e.token, LockedUntil: timeOf(holder.session.lockedUntil)}
	}
	q.extend(e, now)
	return Locked{Message: e.Message, Token: e.token, LockedUntil: timeOf(e.lock)}
}

// ReceiveDeferred locks deferred messages by their sequence numbers; in a queue with
// sessions, those of a session that is locked. It locks all or none, and fails with
// [ErrNotFound] if one of them doesn't exist, isn't deferred, or is locked.
func (s *Store) ReceiveDeferred(numbers []int64, session string) ([]Locked, error) {
	q := s.q
	now := q.beginUse()
	defer q.end()
	if err := s.receivable(); err != nil {
		return nil, err
	}
	var holder *Session
	if s.sessions != nil {
		held := s.sessions[session]
		if held == nil || held.holder == nil {
			return nil, ErrSessionLost
		}
		holder = held.holder
	}
	found := make([]*entry, len(numbers))
	for i, n := range numbers {
		e := s.get(n)
		if e == nil || e.State != Deferred || e.lock > 0 || holder != nil && e.Session != session || slices.Contains(found[:i], e) {
			return nil, fmt.Errorf("deferred message %d: %w", n, ErrNotFound)
		}
		found[i] = e
	}
	got := make([]Locked, len(found))
	for i, e := range found {
		got[i] = q.lock(e, holder, now)
	}
	return got, nil
}

// Wait returns nil once a message may be available, ctx's error if ctx ends first, or
// [ErrDeleted] if the queue is deleted.
func (s *Store) Wait(ctx context.Context) error {
	return s.wait(ctx, func() (bool, error) { return s.ready.peek() != nil, s.receivable() })
}

// wait returns once met returns true or an error. It calls met with the lock held,
// whenever something may have changed.
func (s *Store) wait(ctx context.Context, met func() (bool, error)) error {
	q := s.q
	q.use.enter()
	defer q.use.leave()
	for {
		now := q.begin()
		if ok, err := met(); ok || err != nil {
			q.end()
			return err
		}
		if q.changed == nil {
			q.changed = make(chan struct{})
		}
		changed, next := q.changed, int64(math.MaxInt64)
		if len(q.deadlines) > 0 {
			next = q.deadlines[0].due
		}
		if q.topic != nil {
			next = min(next, q.topic.nextDue.Load())
		}
		q.end()
		timer := time.NewTimer(time.Duration(min(next-now, time.Hour.Milliseconds())) * time.Millisecond)
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
		timer.Stop()
	}
}

// Peek returns up to n messages from a sequence number on, with up to maxBytes of
// payload in total but at least one, without locking them. Locked, deferred and
// scheduled messages are included. If session isn't nil, only messages of that session
// are returned.
func (s *Store) Peek(from int64, n, maxBytes int, session *string) ([]Message, error) {
	q := s.q
	q.beginUse()
	defer q.end()
	if q.deleted {
		return nil, ErrDeleted
	}
	var ms []Message
	size := 0
	for _, e := range s.entries[s.find(from):] {
		if e.gone || e.unwritten != nil || session != nil && (!e.InSession || e.Session != *session) {
			continue
		}
		if size += len(e.Payload); len(ms) == n || size > maxBytes && len(ms) > 0 {
			break
		}
		ms = append(ms, e.Message)
	}
	return ms, nil
}

// Cancel removes scheduled messages by their sequence numbers, all or none. It fails
// with [ErrNotFound] if one of them is not, or no longer, scheduled.
func (q *Queue) Cancel(numbers []int64) Receipt {
	q.beginUse()
	if q.deleted {
		return q.reject(ErrDeleted)
	}
	found := make(map[*entry]struct{})
	for _, n := range numbers {
		e := q.messages.get(n)
		if e == nil || e.State != Scheduled {
			return q.reject(fmt.Errorf("scheduled message %d: %w", n, ErrNotFound))
		}
		found[e] = struct{}{}
	}
	for e := range found {
		q.changes.remove(q.id, e.Sequence)
		q.drop(e)
	}
	return q.commit()
}

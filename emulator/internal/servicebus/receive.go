package servicebus

import (
	"context"
	"crypto/rand"
	"fmt"
	"math"
	"slices"
	"time"
)

// Receive locks up to n available messages, in the order in which they were sent, that have up to maxBytes together, or one. There may be none.
// [ErrSessionNeeded] where messages are received by session.
func (s *Store) Receive(n, maxBytes int) ([]Locked, error) {
	if s.sessions != nil {
		return nil, ErrSessionNeeded
	}
	now := s.q.enter()
	defer s.q.exit()
	return s.receive(&s.ready, nil, n, maxBytes, now)
}

// receive locks what is ready, for a session or for nobody in particular.
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
	case q.cfg.Status.noReceiving() || q.topic != nil && q.topic.receivingDisabled():
		return ErrReceiveDisabled
	}
	return nil
}

// lock gives a message to a receiver.
func (q *Queue) lock(e *entry, holder *Session, now int64) Locked {
	rand.Read(e.token[:])
	e.token[6], e.token[8] = e.token[6]&0x0f|0x40, e.token[8]&0x3f|0x80 // a UUID, version 4
	q.locks[e.token] = e
	if holder != nil {
		e.lock, e.holder = sessionLock, holder
		holder.locked[e] = struct{}{}
		return Locked{Message: e.Message, Token: e.token, Until: timeOf(holder.session.until)}
	}
	q.extend(e, now)
	return Locked{Message: e.Message, Token: e.token, Until: timeOf(e.lock)}
}

// ReceiveDeferred locks deferred messages by their sequence numbers; of a queue with sessions, those of a session that a receiver holds.
// [ErrNotFound] if one of them isn't there, isn't deferred, or is locked.
func (s *Store) ReceiveDeferred(numbers []int64, session string) ([]Locked, error) {
	q := s.q
	now := q.enter()
	defer q.exit()
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

// Wait returns once there may be something to receive; with ctx's error if that ends first, with [ErrDeleted] if the queue does.
func (s *Store) Wait(ctx context.Context) error {
	return s.wait(ctx, func() (bool, error) { return s.ready.peek() != nil, s.receivable() })
}

// wait returns once met says so. That is called with the lock held, whenever something may have changed.
func (s *Store) wait(ctx context.Context, met func() (bool, error)) error {
	q := s.q
	for {
		now := q.enter()
		if ok, err := met(); ok || err != nil {
			q.exit()
			return err
		}
		if q.changed == nil {
			q.changed = make(chan struct{})
		}
		changed, next := q.changed, int64(math.MaxInt64)
		if len(q.deadlines) > 0 {
			next = q.deadlines[0].at
		}
		if q.topic != nil {
			next = min(next, q.topic.due.Load())
		}
		q.exit()
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

// Peek returns up to n messages from a sequence number on, locked or not, deferred and scheduled ones too, that have up to maxBytes together,
// or one; with a session, those of that session. Nothing becomes of them.
func (s *Store) Peek(from int64, n, maxBytes int, session *string) ([]Message, error) {
	q := s.q
	q.enter()
	defer q.exit()
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

// Cancel removes scheduled messages by the numbers that they were sent under. [ErrNotFound] if one of them isn't there any more; then none is
// removed.
func (q *Queue) Cancel(numbers []int64) Receipt {
	q.enter()
	if q.deleted {
		return q.refuse(ErrDeleted)
	}
	found := make(map[*entry]struct{})
	for _, n := range numbers {
		e := q.messages.get(n)
		if e == nil || e.State != Scheduled {
			return q.refuse(fmt.Errorf("scheduled message %d: %w", n, ErrNotFound))
		}
		found[e] = struct{}{}
	}
	for e := range found {
		q.notes.done(q.id, e.Sequence)
		q.drop(e)
	}
	return q.leave()
}

package bus

import (
	"container/heap"
	"fmt"
	"slices"
	"time"
)

// lock gives an entry a lock that lasts from now on.
func (q *Queue) lock(e *entry, now int64) {
	e.lock = now + q.cfg.Lock.Milliseconds()
	heap.Push(&q.deadlines, deadline{at: e.lock, e: e})
}

// held finds the message of a lock that is held on this store.
func (s *Store) held(t Token) (*entry, error) {
	if s.q.deleted {
		return nil, ErrDeleted
	}
	e := s.q.locks[t]
	if e == nil || e.store != s {
		return nil, ErrLockLost
	}
	return e, nil
}

// settle does something with the message of a lock, and ends the lock.
func (s *Store) settle(t Token, do func(e *entry, now int64)) error {
	q := s.q
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.catchUp()
	e, err := s.held(t)
	if err != nil {
		return err
	}
	delete(q.locks, t)
	e.lock = 0
	do(e, now)
	return nil
}

// Complete removes a message. Like all that take a token, it returns [ErrLockLost] where the lock is no longer held.
func (s *Store) Complete(t Token) error {
	return s.settle(t, func(e *entry, _ int64) { s.q.drop(e) })
}

// Abandon gives a message back, with another payload if edit isn't nil. If it has been delivered as often as it may, it becomes a dead letter.
func (s *Store) Abandon(t Token, edit func([]byte) []byte) error {
	return s.settle(t, func(e *entry, now int64) {
		s.q.replace(e, edit)
		s.q.fail(e, now)
	})
}

// Release gives back a message that was never delivered: it doesn't count.
func (s *Store) Release(t Token) error {
	return s.settle(t, func(e *entry, now int64) {
		if !s.q.expire(e, now) {
			s.q.giveBack(e)
		}
	})
}

// DeadLetter makes a message a dead letter, with another payload if edit isn't nil. What is one already stays where it is, with the new reason.
func (s *Store) DeadLetter(t Token, reason, description string, edit func([]byte) []byte) error {
	return s.settle(t, func(e *entry, _ int64) {
		s.q.replace(e, edit)
		s.q.bury(e, reason, description)
	})
}

// Renew has a lock last as long as a new one, and returns until when.
func (s *Store) Renew(t Token) (time.Time, error) {
	q := s.q
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.catchUp()
	e, err := s.held(t)
	if err != nil {
		return time.Time{}, err
	}
	q.lock(e, now)
	return time.UnixMilli(e.lock).UTC(), nil
}

func (q *Queue) replace(e *entry, edit func([]byte) []byte) {
	if edit != nil {
		q.bytes -= int64(len(e.Payload))
		e.Payload = edit(e.Payload)
		q.bytes += int64(len(e.Payload))
	}
}

// fail counts a delivery that came to nothing, and gives the message back, unless its life or its deliveries are over. Those of dead letters are
// not counted, and have no end.
func (q *Queue) fail(e *entry, now int64) {
	if !e.store.dead {
		e.Deliveries++
	}
	switch {
	case q.expire(e, now):
	case !e.store.dead && int(e.Deliveries) >= q.cfg.MaxDeliveries:
		q.bury(e, ReasonDeliveries, fmt.Sprintf("Message could not be consumed after %d delivery attempts.", q.cfg.MaxDeliveries))
	default:
		q.giveBack(e)
	}
}

// giveBack makes a message available again.
func (q *Queue) giveBack(e *entry) {
	heap.Push(&e.store.ready, e)
	q.wake()
}

// expire removes a message that isn't locked, if its time has come.
func (q *Queue) expire(e *entry, now int64) bool {
	switch {
	case e.store.dead || e.Expires.IsZero() || e.Expires.UnixMilli() > now:
		return false
	case q.cfg.KeepExpired:
		q.bury(e, ReasonExpired, "The message expired and was dead lettered.")
	default:
		q.drop(e)
	}
	return true
}

func (q *Queue) drop(e *entry) {
	e.store.remove(e)
	q.bytes -= int64(len(e.Payload))
	e.Payload = nil // deadlines may hold the entry for long
}

// bury moves a message to the dead letters.
func (q *Queue) bury(e *entry, reason, description string) {
	e.Reason, e.Description = reason, description
	if e.store.dead {
		q.giveBack(e)
		return
	}
	moved := &entry{Message: e.Message}
	e.store.remove(e)
	e.Payload = nil
	q.dead.add(moved)
	q.wake()
}

// catchUp brings about what was due by now, and returns now in milliseconds.
func (q *Queue) catchUp() int64 {
	now := time.Now().UnixMilli()
	for len(q.deadlines) > 0 && q.deadlines[0].at <= now {
		e := heap.Pop(&q.deadlines).(deadline).e
		switch {
		case e.gone || e.lock > now:
		case e.lock > 0:
			delete(q.locks, e.token)
			e.lock = 0
			q.fail(e, now)
		default:
			q.expire(e, now)
		}
	}
	if len(q.deadlines) > 1024+4*(q.messages.live+q.dead.live) {
		q.deadlines = slices.DeleteFunc(q.deadlines, func(d deadline) bool { return d.stale() })
		heap.Init(&q.deadlines)
	}
	return now
}

package servicebus

import (
	"container/heap"
	"fmt"
	"time"
)

// Settlement is what is to become of a locked message.
type Settlement struct {
	As Outcome
	// Edit changes the payload. Default: it stays.
	Edit func([]byte) []byte
	// Reason and Description are why it becomes a dead letter.
	Reason, Description string
}

// Outcome is what becomes of a locked message.
type Outcome byte

const (
	// Complete removes it.
	Complete Outcome = iota
	// Abandon gives it back. If it has been delivered as often as it may, it becomes a dead letter.
	Abandon
	// Release gives it back as if it had never been delivered.
	Release
	// Bury makes it a dead letter. What is one already stays where it is, with the new reason.
	Bury
	// Defer keeps it for those who ask for it by its number.
	Defer
)

// Settle ends the lock of a message. [ErrLockLost] where the lock is no longer held, [ErrSessionLost] where it was a session's.
func (s *Store) Settle(t Token, as Settlement) Receipt {
	q := s.q
	now := q.enter()
	e, err := s.held(t)
	if err != nil {
		return q.refuse(err)
	}
	q.unlock(e)
	var then func(error)
	switch as.As {
	case Complete:
		then = q.complete(e)
	case Abandon:
		q.replace(e, as.Edit)
		q.fail(e, now)
	case Release:
		if !q.expire(e, now) {
			q.giveBack(e)
		}
	case Bury:
		q.replace(e, as.Edit)
		q.bury(e, as.Reason, as.Description)
	case Defer:
		q.replace(e, as.Edit)
		e.State = Deferred
		q.notes.altered(q.id, e, as.Edit != nil)
	}
	r := q.leave()
	r.then = then
	return r
}

// complete removes a message. If the disk doesn't take that, it is there again.
func (q *Queue) complete(e *entry) (then func(error)) {
	payload := e.Payload
	q.notes.done(q.id, e.Sequence)
	q.drop(e)
	return func(err error) {
		if err == nil {
			return
		}
		q.mu.Lock()
		back := &entry{Message: e.Message}
		back.Payload = payload
		q.put(&q.notes, e.store, back)
		q.wake()
		q.exit()
	}
}

// Complete settles a message so, and waits for the disk, as do the others.
func (s *Store) Complete(t Token) error { return s.Settle(t, Settlement{As: Complete}).Wait() }

// Abandon gives a message back, with another payload if edit isn't nil.
func (s *Store) Abandon(t Token, edit func([]byte) []byte) error {
	return s.Settle(t, Settlement{As: Abandon, Edit: edit}).Wait()
}

// Release gives back a message that was never delivered: it doesn't count.
func (s *Store) Release(t Token) error { return s.Settle(t, Settlement{As: Release}).Wait() }

// DeadLetter makes a message a dead letter, with another payload if edit isn't nil.
func (s *Store) DeadLetter(t Token, reason, description string, edit func([]byte) []byte) error {
	return s.Settle(t, Settlement{As: Bury, Reason: reason, Description: description, Edit: edit}).Wait()
}

// Renew has a lock last as long as a new one, and returns until when. That of a message in a session lasts as long as the session's.
func (s *Store) Renew(t Token) (time.Time, error) {
	q := s.q
	now := q.enter()
	defer q.exit()
	e, err := s.held(t)
	switch {
	case err != nil:
		return time.Time{}, err
	case e.holder != nil:
		return timeOf(e.holder.session.until), nil
	}
	q.extend(e, now)
	return timeOf(e.lock), nil
}

// held finds the message of a lock that is held on this store.
func (s *Store) held(t Token) (*entry, error) {
	if s.q.deleted {
		return nil, ErrDeleted
	}
	e := s.q.locks[t]
	switch {
	case e != nil && e.store == s:
		return e, nil
	case s.sessions != nil:
		return nil, ErrSessionLost
	}
	return nil, ErrLockLost
}

// extend gives an entry a lock that lasts from now on.
func (q *Queue) extend(e *entry, now int64) {
	e.lock = now + q.cfg.Lock.Milliseconds()
	heap.Push(&q.deadlines, deadline{at: e.lock, e: e})
}

func (q *Queue) unlock(e *entry) {
	delete(q.locks, e.token)
	if e.holder != nil {
		delete(e.holder.locked, e)
	}
	e.lock, e.holder = 0, nil
}

func (q *Queue) replace(e *entry, edit func([]byte) []byte) {
	if edit != nil {
		q.bytes -= int64(len(e.Payload))
		e.Payload = edit(e.Payload)
		q.bytes += int64(len(e.Payload))
		q.notes.altered(q.id, e, true)
	}
}

// fail counts a delivery that came to nothing, and gives the message back, unless its life or its deliveries are over. Those of dead letters are
// not counted, and have no end; nor have those of deferred messages.
func (q *Queue) fail(e *entry, now int64) {
	if !e.store.dead {
		e.Deliveries++
		q.notes.altered(q.id, e, false)
	}
	switch {
	case q.expire(e, now):
	case !e.store.dead && e.State == Active && int(e.Deliveries) >= q.cfg.MaxDeliveries:
		q.bury(e, ReasonDeliveries, fmt.Sprintf("Message could not be consumed after %d delivery attempts.", q.cfg.MaxDeliveries))
	default:
		q.giveBack(e)
	}
}

// giveBack makes a message available again, unless it is deferred.
func (q *Queue) giveBack(e *entry) {
	e.store.push(e)
	q.wake()
}

// expire removes a message that isn't locked, if its time has come. Deferred ones stay.
func (q *Queue) expire(e *entry, now int64) bool {
	switch {
	case e.store.dead || e.State == Deferred || e.Expires.IsZero() || e.Expires.UnixMilli() > now:
		return false
	case q.cfg.KeepExpired:
		q.bury(e, ReasonExpired, "The message expired and was dead lettered.")
	default:
		q.notes.done(q.id, e.Sequence)
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
	e.Reason, e.Description = reason[:min(len(reason), maxReason)], description[:min(len(description), maxReason)]
	if e.store.dead {
		q.notes.altered(q.id, e, false)
		q.giveBack(e)
		return
	}
	moved := &entry{Message: e.Message, generation: e.generation, unwritten: e.unwritten}
	moved.State = Active
	if moved.unwritten != nil {
		q.unwritten = append(q.unwritten, moved)
	}
	e.store.remove(e)
	e.Payload = nil
	q.dead.add(moved)
	q.notes.altered(q.id, moved, false)
	q.wake()
}

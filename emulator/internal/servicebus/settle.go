package servicebus

import (
	"container/heap"
	"fmt"
	"time"
)

// Settlement says how a locked message is settled.
type Settlement struct {
	Outcome Outcome
	// Edit returns the new payload for the old one. It is called with the queue locked, so
	// its time must be linear in the sizes. If it returns an error, the settlement fails
	// with that error and the message stays locked. Default: the payload stays.
	Edit func([]byte) ([]byte, error)
	// Reason and Description say why the message becomes a dead letter. Of each, the first
	// 4,096 characters are kept. Without room for both in the queue, they are kept only if
	// they have up to 256 bytes together.
	Reason, Description string
}

// Outcome is the way in which a locked message is settled.
type Outcome byte

const (
	// Complete removes the message.
	Complete Outcome = iota
	// Abandon unlocks the message and increases its delivery count. At the maximum the
	// message becomes a dead letter.
	Abandon
	// Release unlocks the message without increasing its delivery count.
	Release
	// DeadLetter makes the message a dead letter. If it already is one, only its reason
	// changes.
	DeadLetter
	// Defer keeps the message for receivers that ask for it by its sequence number.
	Defer
)

// Settle settles a locked message. It fails with [ErrLockLost] if the lock is no longer
// held, in a queue with sessions with [ErrSessionLost], and with [ErrFull] if the queue
// has no room for the edited payload. In the last case the message stays locked.
func (s *Store) Settle(t Token, as Settlement) Receipt {
	q := s.q
	now := q.beginUse()
	e, err := s.locked(t)
	if err == nil {
		err = q.edit(e, as)
	}
	if err != nil {
		return q.reject(err)
	}
	q.unlock(e)
	var then func(error)
	switch as.Outcome {
	case Complete:
		then = q.complete(e)
	case Abandon:
		q.abandon(e, now)
	case Release:
		if !q.expire(e, now) {
			q.makeAvailable(e)
		}
	case DeadLetter:
		q.deadLetter(e, as.Reason, as.Description)
	case Defer:
		e.State = Deferred
		q.changes.update(q.id, e, as.Edit != nil)
	}
	r := q.commit()
	r.then = then
	return r
}

// complete removes a message. If that can't be written to disk, the message is added
// again.
func (q *Queue) complete(e *entry) (then func(error)) {
	payload := e.Payload
	q.changes.remove(q.id, e.Sequence)
	q.drop(e)
	return func(err error) {
		if err == nil {
			return
		}
		q.mu.Lock()
		back := &entry{Message: e.Message}
		back.Payload = payload
		q.insert(&q.changes, e.store, back)
		q.wake()
		q.end()
	}
}

// Complete settles a message as [Complete] does, and waits for the disk.
func (s *Store) Complete(t Token) error { return s.Settle(t, Settlement{Outcome: Complete}).Wait() }

// Abandon settles a message as [Abandon] does, and waits for the disk. If edit isn't
// nil, it replaces the payload.
func (s *Store) Abandon(t Token, edit func([]byte) ([]byte, error)) error {
	return s.Settle(t, Settlement{Outcome: Abandon, Edit: edit}).Wait()
}

// Release settles a message as [Release] does, and waits for the disk.
func (s *Store) Release(t Token) error { return s.Settle(t, Settlement{Outcome: Release}).Wait() }

// DeadLetter settles a message as [DeadLetter] does, and waits for the disk. If edit
// isn't nil, it replaces the payload.
func (s *Store) DeadLetter(t Token, reason, description string, edit func([]byte) ([]byte, error)) error {
	return s.Settle(t, Settlement{Outcome: DeadLetter, Reason: reason, Description: description, Edit: edit}).Wait()
}

// Renew renews the lock of a message for the lock duration, and returns its new expiry.
// The lock of a message in a session lasts as long as the session's and isn't renewed
// by itself.
func (s *Store) Renew(t Token) (time.Time, error) {
	q := s.q
	now := q.beginUse()
	defer q.end()
	e, err := s.locked(t)
	switch {
	case err != nil:
		return time.Time{}, err
	case e.holder != nil:
		return timeOf(e.holder.session.lockedUntil), nil
	}
	q.extend(e, now)
	return timeOf(e.lock), nil
}

// locked returns the message of this store that has the lock token.
func (s *Store) locked(t Token) (*entry, error) {
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

// extend locks an entry for the lock duration from now on.
func (q *Queue) extend(e *entry, now int64) {
	e.lock = now + q.cfg.Lock.Milliseconds()
	heap.Push(&q.deadlines, deadline{due: e.lock, e: e})
}

func (q *Queue) unlock(e *entry) {
	delete(q.locks, e.token)
	if e.holder != nil {
		delete(e.holder.locked, e)
	}
	e.lock, e.holder = 0, nil
}

// edit edits the payload of a message that is about to be settled. It changes nothing if
// it returns an error.
func (q *Queue) edit(e *entry, as Settlement) error {
	if as.Edit == nil || as.Outcome == Complete || as.Outcome == Release {
		return nil
	}
	payload, err := as.Edit(e.Payload)
	if err != nil {
		return err
	}
	grown := int64(len(payload) - len(e.Payload))
	if grown > 0 && q.bytes+grown > q.cfg.MaxBytes {
		return ErrFull
	}
	q.bytes += grown
	e.Payload = payload
	q.changes.update(q.id, e, true)
	return nil
}

// explain sets the reason and description of a message that becomes a dead letter.
func (q *Queue) explain(e *entry, reason, description string) {
	q.bytes -= e.size()
	e.Reason, e.Description = shorten(reason), shorten(description)
	if q.bytes+e.size() > q.cfg.MaxBytes && len(reason)+len(description) > maxOwnReason {
		e.Reason, e.Description = "", ""
	}
	q.bytes += e.size()
}

// shorten cuts a reason to the maximum number of characters.
func shorten(reason string) string {
	count := 0
	for at := range reason {
		if count++; count > maxReason {
			return reason[:at]
		}
	}
	return reason
}

// abandon counts a failed delivery and makes the message available again, unless the
// message has expired or has reached the maximum delivery count. Deliveries of dead
// letters are not counted. Dead letters and deferred messages have no maximum.
func (q *Queue) abandon(e *entry, now int64) {
	if !e.store.dead {
		e.Deliveries++
		q.changes.update(q.id, e, false)
	}
	switch {
	case q.expire(e, now):
	case !e.store.dead && e.State == Active && int(e.Deliveries) >= q.cfg.MaxDeliveries:
		q.deadLetter(e, ReasonDeliveries, fmt.Sprintf("Message could not be consumed after %d delivery attempts.", q.cfg.MaxDeliveries))
	default:
		q.makeAvailable(e)
	}
}

// makeAvailable makes a message available again, unless it is deferred.
func (q *Queue) makeAvailable(e *entry) {
	e.store.push(e)
	q.wake()
}

// expire removes or dead-letters an unlocked message if it has expired, and reports
// whether it has. Dead letters and deferred messages don't expire.
func (q *Queue) expire(e *entry, now int64) bool {
	switch {
	case e.store.dead || e.State == Deferred || e.Expires.IsZero() || e.Expires.UnixMilli() > now:
		return false
	case q.cfg.KeepExpired:
		q.deadLetter(e, ReasonExpired, "The message expired and was dead lettered.")
	default:
		q.changes.remove(q.id, e.Sequence)
		q.drop(e)
	}
	return true
}

func (q *Queue) drop(e *entry) {
	e.store.remove(e)
	q.bytes -= e.size()
	e.Payload = nil // deadlines may keep the entry for long
}

// deadLetter moves a message to the dead letters, with reason and description.
func (q *Queue) deadLetter(e *entry, reason, description string) {
	q.explain(e, reason, description)
	if e.store.dead {
		q.changes.update(q.id, e, false)
		q.makeAvailable(e)
		return
	}
	moved := &entry{Message: e.Message, generation: e.generation, unwritten: e.unwritten}
	moved.State = Active
	if moved.unwritten != nil {
		q.unwritten = append(q.unwritten, moved)
	}
	e.store.remove(e)
	e.Payload = nil
	q.deadLetters.add(moved)
	q.changes.update(q.id, moved, false)
	q.wake()
}

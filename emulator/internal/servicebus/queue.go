package servicebus

import (
	"container/heap"
	"slices"
	"sync"
	"time"

	"github.com/sluice-go/sluice/emulator/internal/disklog"
)

// Queue is a queue or a topic's subscription. It is safe for concurrent use.
type Queue struct {
	id      uint64
	name    string
	topic   *Topic // of a subscription
	journal *journal
	created time.Time
	use     *usage

	mu          sync.Mutex
	cfg         QueueConfig
	updated     time.Time
	messages    Store
	deadLetters Store
	sequence    int64 // of the newest message
	bytes       int64
	locks       map[Token]*entry
	deadlines   byTime
	unwritten   []*entry      // sent, but not on disk yet, in order
	changed     chan struct{} // closed when a message becomes available; nil if no receiver waits
	deleted     bool
	ofTopic     bool     // this queue holds a topic's scheduled messages…
	dueMessages []*entry // …of which these are due for the subscriptions
	changes     changes  // of the operation in progress
}

func newQueue(id uint64, name string, cfg QueueConfig, topic *Topic, j *journal) *Queue {
	now := time.Now()
	q := &Queue{id: id, name: name, topic: topic, journal: j, created: now, updated: now, cfg: cfg, locks: make(map[Token]*entry), use: newUsage(topic)}
	q.changes.disabled = j == nil
	q.messages.q = q
	q.deadLetters.q, q.deadLetters.dead = q, true
	if cfg.Sessions {
		q.messages.sessions = make(map[string]*session)
	}
	return q
}

// Name returns the queue's name; for a subscription, "topic/Subscriptions/name".
func (q *Queue) Name() string { return q.name }

// Created returns when the queue was created.
func (q *Queue) Created() time.Time { return q.created }

// Accessed returns when a message was last sent or received; zero if that never happened
// since the broker was opened.
func (q *Queue) Accessed() time.Time { return q.use.accessed() }

// Config returns the settings, defaults filled in.
func (q *Queue) Config() QueueConfig {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.cfg
}

// Configure changes the settings except Sessions. Existing locks and messages keep
// their deadlines.
func (q *Queue) Configure(cfg *QueueConfig) error {
	full, err := cfg.withDefaults()
	if err != nil {
		return err
	}
	q.use.keep()
	q.mu.Lock()
	if q.deleted {
		q.mu.Unlock()
		return ErrDeleted
	}
	full.Sessions = q.cfg.Sessions
	q.cfg, q.updated = full, time.Now()
	q.changes.define(q.definition())
	q.wake()
	return q.commit().Wait()
}

// Updated returns when the queue was created or last configured.
func (q *Queue) Updated() time.Time {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.updated
}

// Messages returns the store of the queue's messages.
func (q *Queue) Messages() *Store { return &q.messages }

// DeadLetters returns the store of the queue's dead letters.
func (q *Queue) DeadLetters() *Store { return &q.deadLetters }

// Counts counts the messages.
func (q *Queue) Counts() Counts {
	q.begin()
	defer q.end()
	return Counts{
		Active: int64(q.messages.live - q.messages.scheduled), DeadLetters: int64(q.deadLetters.live), Scheduled: int64(q.messages.scheduled), Bytes: q.bytes,
	}
}

// begin begins an operation: it takes the lock, applies what is due, and returns the
// time in ms since 1970.
func (q *Queue) begin() int64 {
	if q.topic != nil {
		q.topic.enqueueDue()
	}
	q.mu.Lock()
	return q.applyDue()
}

// beginUse is begin for an operation that uses the queue, so that it isn't idle.
func (q *Queue) beginUse() int64 {
	q.use.touch()
	return q.begin()
}

// commit ends an operation: it submits the operation's changes to the journal and
// releases the lock.
func (q *Queue) commit() Receipt {
	defer q.mu.Unlock()
	return q.journal.submit(&q.changes)
}

// end is commit for a caller that doesn't wait for the disk.
func (q *Queue) end() { q.commit().detach() }

// Receipt is the outcome of an operation that may not be on disk yet.
type Receipt struct {
	err     error
	journal *journal
	pending *disklog.Pending
	then    func(error) // called with the outcome
}

// Wait returns once the operation is on disk. The caller of an operation calls it
// exactly once.
func (r Receipt) Wait() error {
	err := r.err
	if r.pending != nil {
		_, err = r.pending.Wait()
	}
	if r.then != nil {
		r.then(err)
	}
	return err
}

// detach has the journal write the operation in the background.
func (r Receipt) detach() {
	if r.pending != nil {
		r.journal.flushLater(r.pending)
	}
}

// Send enqueues messages, all or none, and returns once they are on disk. Errors:
// [ErrFull], [ErrDeleted], [ErrSendDisabled], [ErrSessionNeeded]. The queue keeps the
// payloads.
func (q *Queue) Send(ms []Message) error {
	_, r := q.Submit(ms)
	return r.Wait()
}

// Submit is Send without waiting for the disk. It returns the messages' sequence
// numbers.
func (q *Queue) Submit(ms []Message) ([]int64, Receipt) {
	now := q.beginUse()
	switch {
	case q.cfg.Status.sendDisabled():
		return nil, q.reject(ErrSendDisabled)
	case q.cfg.Sessions && slices.ContainsFunc(ms, func(m Message) bool { return !m.InSession }):
		return nil, q.reject(ErrSessionNeeded)
	}
	if err := q.checkSend(ms); err != nil {
		return nil, q.reject(err)
	}
	numbers := make([]int64, len(ms))
	for i := range ms {
		numbers[i] = q.enqueue(&q.changes, &ms[i], now, 0).Sequence
	}
	return numbers, q.commitSent()
}

// reject ends an operation that failed with err.
func (q *Queue) reject(err error) Receipt {
	q.end()
	return Receipt{err: err}
}

// checkSend returns an error unless the queue has room for the messages.
func (q *Queue) checkSend(ms []Message) error {
	size := int64(0)
	for i := range ms {
		size += int64(len(ms[i].Payload))
	}
	switch {
	case q.deleted:
		return ErrDeleted
	case q.bytes+size > q.cfg.MaxBytes:
		return ErrFull
	}
	return nil
}

// enqueue adds a message to the queue and to the changes; original is its sequence
// number in the topic, or 0.
func (q *Queue) enqueue(n *changes, m *Message, now, original int64) *entry {
	q.sequence++
	e := &entry{Message: *m}
	e.Sequence, e.Original, e.Enqueued, e.TTL = q.sequence, original, timeOf(now), shorterTTL(m.TTL, q.cfg.TTL)
	e.State, e.Deliveries, e.Reason, e.Description = Active, 0, "", ""
	store := &q.messages
	if e.Scheduled.UnixMilli() > now {
		e.State, e.Scheduled = Scheduled, timeOf(e.Scheduled.UnixMilli())
	} else {
		e.Scheduled = time.Time{}
		if q.cfg.Sessions && !e.InSession { // Submit rejects it; a topic's message has not been checked
			store = &q.deadLetters
			e.Reason, e.Description = ReasonNoSession, "Session enabled entity doesn't allow a message whose session identifier is null."
		}
	}
	q.insert(n, store, e)
	return e
}

// insert adds a new entry to the store and, with its payload, to the changes.
func (q *Queue) insert(n *changes, store *Store, e *entry) {
	q.bytes += e.size()
	store.add(e)
	n.message(q.id, e)
	q.setDeadline(e)
}

// setDeadline sets the next deadline of an entry that isn't locked: due time or expiry.
func (q *Queue) setDeadline(e *entry) {
	switch {
	case e.State == Scheduled:
		heap.Push(&q.deadlines, deadline{due: e.Scheduled.UnixMilli(), e: e})
	case e.TTL > 0:
		e.Expires = e.Enqueued.Add(e.TTL)
		if !e.store.dead {
			heap.Push(&q.deadlines, deadline{due: e.Expires.UnixMilli(), e: e})
		}
	}
}

// commitSent is commit for an operation that added entries: they can be received once
// they are on disk.
func (q *Queue) commitSent() Receipt {
	wrote := q.changes.entries
	r := q.journal.submit(&q.changes)
	q.hideUntilWritten(wrote, r)
	q.mu.Unlock()
	r.then = func(error) { q.showWritten() }
	return r
}

// hideUntilWritten hides entries from receivers until they are on disk. q.mu is held.
func (q *Queue) hideUntilWritten(wrote []*entry, r Receipt) {
	if r.err == nil && r.pending == nil {
		q.wake()
		return
	}
	for _, e := range wrote {
		switch {
		case e.store.q != q: // of another subscription
		case r.err != nil:
			q.drop(e)
		default:
			e.unwritten = r.pending
			q.unwritten = append(q.unwritten, e)
		}
	}
}

// showWritten makes entries available that have been written meanwhile.
func (q *Queue) showWritten() {
	q.mu.Lock()
	q.applyDue()
	q.end()
}

// shorterTTL returns the shorter of two times to live; 0 is unlimited.
func shorterTTL(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// wake wakes all waiting receivers. q.mu is held.
func (q *Queue) wake() {
	if q.changed != nil {
		close(q.changed)
		q.changed = nil
	}
}

// delete marks the queue as deleted: all waits, and all later operations, end with
// [ErrDeleted].
func (q *Queue) delete() Receipt {
	q.mu.Lock()
	q.deleted = true
	q.wake()
	q.changes.deleteEntity(q.id)
	return q.commit()
}

// applyDue applies what is due, and returns the time in ms since 1970. q.mu is held.
func (q *Queue) applyDue() int64 {
	now := time.Now().UnixMilli()
	for len(q.unwritten) > 0 && q.unwritten[0].unwritten.Done() {
		e := q.unwritten[0]
		q.unwritten[0], q.unwritten = nil, q.unwritten[1:]
		_, err := e.unwritten.Wait()
		e.unwritten = nil
		switch {
		case e.gone:
		case err != nil:
			q.drop(e)
		default:
			e.store.push(e)
			q.wake()
		}
	}
	for len(q.deadlines) > 0 && q.deadlines[0].due <= now {
		d := heap.Pop(&q.deadlines).(deadline)
		e := d.e
		switch {
		case d.stale():
		case d.s != nil:
			q.releaseSession(d.s, now)
		case e.lock > now:
		case e.State == Scheduled && q.ofTopic:
			q.dueMessages = append(q.dueMessages, e)
		case e.State == Scheduled:
			q.activate(e, now)
		case e.lock > 0:
			q.unlock(e)
			q.abandon(e, now)
		default:
			q.expire(e, now)
		}
	}
	if len(q.deadlines) > 1024+4*(q.messages.live+q.deadLetters.live) {
		q.deadlines = slices.DeleteFunc(q.deadlines, func(d deadline) bool { return d.stale() })
		heap.Init(&q.deadlines)
	}
	return now
}

// activate makes a scheduled message active, with a new sequence number at the end of
// the queue. A topic's scheduled messages go to the subscriptions instead, by
// [Topic.enqueueDue].
func (q *Queue) activate(e *entry, now int64) {
	e.store.remove(e)
	old := e.Sequence
	moved := &entry{Message: e.Message, generation: e.generation, unwritten: e.unwritten}
	e.Payload = nil
	if q.sequence++; moved.Original == 0 {
		moved.Original = old
	}
	moved.Sequence, moved.State, moved.Enqueued, moved.Scheduled = q.sequence, Active, timeOf(now), time.Time{}
	q.changes.enqueue(q.id, old, moved.Sequence, now)
	if moved.unwritten != nil {
		q.unwritten = append(q.unwritten, moved)
	}
	q.messages.add(moved)
	q.setDeadline(moved)
	q.wake()
}

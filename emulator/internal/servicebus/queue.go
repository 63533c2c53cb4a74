package servicebus

import (
	"container/heap"
	"slices"
	"sync"
	"time"

	"github.com/sluice-go/sluice/emulator/internal/disklog"
)

// Queue is a queue, or a subscription of a topic. Its methods may be called concurrently.
type Queue struct {
	id      uint64
	name    string
	topic   *Topic // of a subscription
	journal *journal
	created time.Time

	mu        sync.Mutex
	cfg       QueueConfig
	updated   time.Time
	messages  Store
	dead      Store
	sequence  int64 // of the newest message
	bytes     int64
	locks     map[Token]*entry
	deadlines byTime
	unwritten []*entry      // sent, but not on disk yet, in order
	changed   chan struct{} // closed when a message has become available; nil if nobody waits
	deleted   bool
	held      bool     // it keeps the messages that are scheduled for a topic…
	due       []*entry // …and these are to go to the subscriptions
	notes     notes    // of the operation in progress
}

func newQueue(id uint64, name string, cfg QueueConfig, topic *Topic, j *journal) *Queue {
	now := time.Now()
	q := &Queue{id: id, name: name, topic: topic, journal: j, created: now, updated: now, cfg: cfg, locks: make(map[Token]*entry)}
	q.notes.off = j == nil
	q.messages.q = q
	q.dead.q, q.dead.dead = q, true
	if cfg.Sessions {
		q.messages.sessions = make(map[string]*session)
	}
	return q
}

// Name is the queue's name; of a subscription, that of the topic and its own: "topic/Subscriptions/name".
func (q *Queue) Name() string { return q.name }

// Created is when the queue was created.
func (q *Queue) Created() time.Time { return q.created }

// Config returns the settings, defaults filled in.
func (q *Queue) Config() QueueConfig {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.cfg
}

// Configure changes the settings, except for sessions. Locks that are held, and messages that are there, keep what they were given.
func (q *Queue) Configure(cfg *QueueConfig) error {
	full, err := cfg.withDefaults()
	if err != nil {
		return err
	}
	q.mu.Lock()
	if q.deleted {
		q.mu.Unlock()
		return ErrDeleted
	}
	full.Sessions = q.cfg.Sessions
	q.cfg, q.updated = full, time.Now()
	q.notes.defined(q.definition())
	q.wake()
	return q.leave().Wait()
}

// Updated is when the queue was created or configured last.
func (q *Queue) Updated() time.Time {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.updated
}

// Messages are what was sent to the queue.
func (q *Queue) Messages() *Store { return &q.messages }

// DeadLetters are the messages that couldn't be consumed.
func (q *Queue) DeadLetters() *Store { return &q.dead }

// Counts counts the messages.
func (q *Queue) Counts() Counts {
	q.enter()
	defer q.exit()
	return Counts{
		Active: int64(q.messages.live - q.messages.scheduled), DeadLetters: int64(q.dead.live), Scheduled: int64(q.messages.scheduled), Bytes: q.bytes,
	}
}

// enter begins an operation: it takes the lock, brings about what was due, and returns now in milliseconds.
func (q *Queue) enter() int64 {
	if q.topic != nil {
		q.topic.enqueueDue()
	}
	q.mu.Lock()
	return q.catchUp()
}

// leave ends an operation: it gives what the operation noted its place in the journal, and lets go of the lock.
func (q *Queue) leave() Receipt {
	defer q.mu.Unlock()
	return q.journal.begin(&q.notes)
}

// exit is leave where nobody waits for the disk.
func (q *Queue) exit() { q.leave().forget() }

// Receipt is the outcome of an operation, once it is on disk.
type Receipt struct {
	err     error
	journal *journal
	pending *disklog.Pending
	then    func(error) // what follows from the outcome
}

// Wait returns once the outcome of the operation is on disk. It must be called once, unless there is an error already.
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

// forget leaves it to the journal to write an operation whose outcome nobody waits for.
func (r Receipt) forget() {
	if r.pending != nil {
		r.journal.writeSoon(r.pending)
	}
}

// Send puts messages into the queue, all or none: [ErrFull] where there is no room for them, [ErrDeleted] where there is no queue any more,
// [ErrSendDisabled], [ErrSessionNeeded]. The queue keeps the payloads.
func (q *Queue) Send(ms []Message) error {
	_, r := q.Submit(ms)
	return r.Wait()
}

// Submit is Send that doesn't wait for the disk. It returns the messages' sequence numbers.
func (q *Queue) Submit(ms []Message) ([]int64, Receipt) {
	now := q.enter()
	switch {
	case q.cfg.Status.noSending():
		return nil, q.refuse(ErrSendDisabled)
	case q.cfg.Sessions && slices.ContainsFunc(ms, func(m Message) bool { return !m.InSession }):
		return nil, q.refuse(ErrSessionNeeded)
	}
	if err := q.room(ms); err != nil {
		return nil, q.refuse(err)
	}
	numbers := make([]int64, len(ms))
	for i := range ms {
		numbers[i] = q.accept(&q.notes, &ms[i], now, 0).Sequence
	}
	return numbers, q.submitted()
}

// refuse ends an operation that came to nothing.
func (q *Queue) refuse(err error) Receipt {
	q.exit()
	return Receipt{err: err}
}

// room tells whether the messages fit.
func (q *Queue) room(ms []Message) error {
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

// accept makes an entry of a message and notes it; original is the number that it has in the topic, or 0.
func (q *Queue) accept(n *notes, m *Message, now, original int64) *entry {
	q.sequence++
	e := &entry{Message: *m}
	e.Sequence, e.Original, e.Enqueued, e.TTL = q.sequence, original, timeOf(now), lesser(m.TTL, q.cfg.TTL)
	e.State, e.Deliveries, e.Reason, e.Description = Active, 0, "", ""
	if original == 0 {
		e.Original = e.Sequence
	}
	store := &q.messages
	if e.Scheduled.UnixMilli() > now {
		e.State, e.Scheduled = Scheduled, timeOf(e.Scheduled.UnixMilli())
	} else {
		e.Scheduled = time.Time{}
		if q.cfg.Sessions && !e.InSession { // only a topic's message can come so far
			store = &q.dead
			e.Reason, e.Description = ReasonNoSession, "Session enabled entity doesn't allow a message whose session identifier is null."
		}
	}
	q.put(n, store, e)
	return e
}

// put adds a new entry, which is noted as a whole.
func (q *Queue) put(n *notes, store *Store, e *entry) {
	q.bytes += int64(len(e.Payload))
	store.add(e)
	n.whole(q.id, e)
	q.watch(e)
}

// watch sets the deadline of an entry that isn't locked.
func (q *Queue) watch(e *entry) {
	switch {
	case e.State == Scheduled:
		heap.Push(&q.deadlines, deadline{at: e.Scheduled.UnixMilli(), e: e})
	case e.TTL > 0:
		e.Expires = e.Enqueued.Add(e.TTL)
		if !e.store.dead {
			heap.Push(&q.deadlines, deadline{at: e.Expires.UnixMilli(), e: e})
		}
	}
}

// submitted ends an operation that has put entries: they can be received once they are on disk.
func (q *Queue) submitted() Receipt {
	wrote := q.notes.entries
	r := q.journal.begin(&q.notes)
	q.sent(wrote, r)
	q.mu.Unlock()
	r.then = func(error) { q.settleWrites() }
	return r
}

// sent keeps entries from being received until they are on disk. The lock is held.
func (q *Queue) sent(wrote []*entry, r Receipt) {
	if r.err == nil && r.pending == nil {
		q.wake()
		return
	}
	for _, e := range wrote {
		switch {
		case e.store.q != q: // another subscription's
		case r.err != nil:
			q.drop(e)
		default:
			e.unwritten = r.pending
			q.unwritten = append(q.unwritten, e)
		}
	}
}

// settleWrites shows what has been written meanwhile.
func (q *Queue) settleWrites() {
	q.mu.Lock()
	q.catchUp()
	q.exit()
}

// lesser is the shorter of two lives, of which 0 has no end.
func lesser(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// wake ends all waits.
func (q *Queue) wake() {
	if q.changed != nil {
		close(q.changed)
		q.changed = nil
	}
}

// delete ends the queue: all waits, and all operations from now on, end with [ErrDeleted].
func (q *Queue) delete() Receipt {
	q.mu.Lock()
	q.deleted = true
	q.wake()
	q.notes.deleted(q.id)
	return q.leave()
}

// catchUp brings about what was due by now, and returns now in milliseconds.
func (q *Queue) catchUp() int64 {
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
	for len(q.deadlines) > 0 && q.deadlines[0].at <= now {
		d := heap.Pop(&q.deadlines).(deadline)
		e := d.e
		switch {
		case d.stale():
		case d.s != nil:
			q.endSession(d.s, now)
		case e.lock > now:
		case e.State == Scheduled && q.held:
			q.due = append(q.due, e)
		case e.State == Scheduled:
			q.enqueue(e, now)
		case e.lock > 0:
			q.unlock(e)
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

// enqueue makes a scheduled message one that can be received, at the end of the queue. Those of a topic's own queue go to its subscriptions
// instead, by [Topic.enqueueDue].
func (q *Queue) enqueue(e *entry, now int64) {
	e.store.remove(e)
	old := e.Sequence
	moved := &entry{Message: e.Message, generation: e.generation, unwritten: e.unwritten}
	e.Payload = nil
	q.sequence++
	moved.Sequence, moved.State, moved.Enqueued, moved.Scheduled = q.sequence, Active, timeOf(now), time.Time{}
	q.notes.enqueued(q.id, old, moved.Sequence, now)
	if moved.unwritten != nil {
		q.unwritten = append(q.unwritten, moved)
	}
	q.messages.add(moved)
	q.watch(moved)
	q.wake()
}

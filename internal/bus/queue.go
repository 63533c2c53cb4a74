package bus

import (
	"container/heap"
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"time"
)

// QueueConfig holds the settings of a [Queue] or of a topic's subscription. The zero value works.
type QueueConfig struct {
	// Lock is how long a received message is locked. Default 1 minute.
	Lock time.Duration
	// MaxDeliveries is how often a message may be received before it becomes a dead letter. Default 10.
	MaxDeliveries int
	// TTL is how long messages live at most. Default: for ever.
	TTL time.Duration
	// KeepExpired has messages that expire become dead letters. Default: they are dropped.
	KeepExpired bool
	// MaxBytes bounds the payloads that the queue holds, dead letters included. Default 1 GiB.
	MaxBytes int64
}

const (
	defaultLock          = time.Minute
	maxLock              = 5 * time.Minute
	defaultMaxDeliveries = 10
	defaultMaxBytes      = 1 << 30
)

func (c *QueueConfig) withDefaults() (QueueConfig, error) {
	var full QueueConfig
	if c != nil {
		full = *c
	}
	if full.Lock == 0 {
		full.Lock = defaultLock
	}
	if full.MaxDeliveries == 0 {
		full.MaxDeliveries = defaultMaxDeliveries
	}
	if full.MaxBytes == 0 {
		full.MaxBytes = defaultMaxBytes
	}
	switch {
	case full.Lock < 0 || full.Lock > maxLock:
		return full, fmt.Errorf("locks of %s: choose up to %s", full.Lock, maxLock)
	case full.MaxDeliveries < 0:
		return full, fmt.Errorf("at most %d deliveries: choose 1 or more", full.MaxDeliveries)
	case full.TTL < 0 || full.MaxBytes < 0:
		return full, fmt.Errorf("time to live %s, at most %d bytes: neither can be negative", full.TTL, full.MaxBytes)
	}
	return full, nil
}

// Queue is a queue, or a subscription of a topic. Its methods may be called concurrently.
type Queue struct {
	name    string
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
	changed   chan struct{} // closed when a message has become available; nil if nobody waits
	deleted   bool
}

func newQueue(name string, cfg *QueueConfig) (*Queue, error) {
	full, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	now := time.Now()
	q := &Queue{name: name, created: now, updated: now, cfg: full, locks: make(map[Token]*entry)}
	q.messages.q = q
	q.dead.q, q.dead.dead = q, true
	return q, nil
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

// Configure changes the settings. Locks that are held, and messages that are there, keep what they were given.
func (q *Queue) Configure(cfg *QueueConfig) error {
	full, err := cfg.withDefaults()
	if err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.cfg, q.updated = full, time.Now()
	return nil
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
	q.mu.Lock()
	defer q.mu.Unlock()
	q.catchUp()
	return Counts{Active: int64(q.messages.live), DeadLetters: int64(q.dead.live), Bytes: q.bytes}
}

// Send puts messages into the queue, all or none: [ErrFull] where there is no room for them, [ErrDeleted] where there is no queue any more.
// The queue keeps the payloads.
func (q *Queue) Send(ms []Message) error {
	var size int64
	for i := range ms {
		size += int64(len(ms[i].Payload))
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.catchUp()
	switch {
	case q.deleted:
		return ErrDeleted
	case q.bytes+size > q.cfg.MaxBytes:
		return ErrFull
	}
	q.bytes += size
	for _, m := range ms {
		q.sequence++
		e := &entry{Message: Message{Payload: m.Payload, TTL: m.TTL, Sequence: q.sequence, Enqueued: time.UnixMilli(now).UTC()}}
		if ttl := lesser(m.TTL, q.cfg.TTL); ttl > 0 {
			e.TTL, e.Expires = ttl, e.Enqueued.Add(ttl)
			heap.Push(&q.deadlines, deadline{at: e.Expires.UnixMilli(), e: e})
		}
		q.messages.add(e)
	}
	q.wake()
	return nil
}

// lesser is the shorter of two lives, of which 0 has no end.
func lesser(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// Receive locks up to n available messages, in the order in which they were sent, that have up to maxBytes together, or one. There may be none.
func (s *Store) Receive(n, maxBytes int) ([]Locked, error) {
	q := s.q
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.catchUp()
	if q.deleted {
		return nil, ErrDeleted
	}
	var got []Locked
	for size := 0; len(got) < n; {
		e := s.next()
		if e == nil {
			break
		}
		if size += len(e.Payload); size > maxBytes && len(got) > 0 {
			heap.Push(&s.ready, e)
			break
		}
		rand.Read(e.token[:])
		e.token[6], e.token[8] = e.token[6]&0x0f|0x40, e.token[8]&0x3f|0x80 // a UUID, version 4
		q.lock(e, now)
		q.locks[e.token] = e
		got = append(got, Locked{Message: e.Message, Token: e.token, Until: time.UnixMilli(e.lock).UTC()})
	}
	return got, nil
}

// Wait returns once there may be something to receive; with ctx's error if that ends first, with [ErrDeleted] if the queue does.
func (s *Store) Wait(ctx context.Context) error {
	q := s.q
	for {
		q.mu.Lock()
		now := q.catchUp()
		e := s.next()
		if e != nil {
			heap.Push(&s.ready, e)
		}
		if e != nil || q.deleted {
			q.mu.Unlock()
			if q.deleted {
				return ErrDeleted
			}
			return nil
		}
		if q.changed == nil {
			q.changed = make(chan struct{})
		}
		changed, until := q.changed, time.Hour
		if len(q.deadlines) > 0 {
			until = min(until, time.Duration(q.deadlines[0].at-now)*time.Millisecond)
		}
		q.mu.Unlock()
		timer := time.NewTimer(until)
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

// Peek returns up to n messages from a sequence number on, locked or not, that have up to maxBytes together, or one. Nothing becomes of them.
func (s *Store) Peek(from int64, n, maxBytes int) ([]Message, error) {
	q := s.q
	q.mu.Lock()
	defer q.mu.Unlock()
	q.catchUp()
	if q.deleted {
		return nil, ErrDeleted
	}
	var ms []Message
	size := 0
	for _, e := range s.entries[s.find(from):] {
		if e.gone {
			continue
		}
		if size += len(e.Payload); len(ms) == n || size > maxBytes && len(ms) > 0 {
			break
		}
		ms = append(ms, e.Message)
	}
	return ms, nil
}

// wake ends all waits.
func (q *Queue) wake() {
	if q.changed != nil {
		close(q.changed)
		q.changed = nil
	}
}

// delete ends the queue: all waits, and all operations from now on, end with [ErrDeleted].
func (q *Queue) delete() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.deleted = true
	q.wake()
}

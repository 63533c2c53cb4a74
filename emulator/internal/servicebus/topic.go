package servicebus

import (
	"cmp"
	"container/heap"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Topic is a topic: each of its subscriptions gets each message. Its methods may be called concurrently.
type Topic struct {
	id      uint64
	name    string
	broker  *Broker
	created time.Time
	held    *Queue       // the messages that are scheduled
	due     atomic.Int64 // when the first of them is, in ms since 1970
	status  atomic.Uint32

	mu            sync.Mutex
	cfg           TopicConfig
	updated       time.Time
	subscriptions map[string]*Queue
	deleted       bool
}

func newTopic(id uint64, name string, cfg TopicConfig, b *Broker) *Topic {
	now := time.Now()
	t := &Topic{id: id, name: name, broker: b, created: now, updated: now, subscriptions: make(map[string]*Queue)}
	t.held = newQueue(id, name, QueueConfig{MaxBytes: cfg.MaxBytes}, nil, b.journal)
	t.held.held = true
	t.due.Store(math.MaxInt64)
	t.apply(cfg)
	return t
}

// apply has settings count. t.mu is held, or nobody knows the topic yet.
func (t *Topic) apply(cfg TopicConfig) {
	t.cfg = cfg
	t.status.Store(uint32(cfg.Status))
	t.held.mu.Lock()
	defer t.held.mu.Unlock()
	t.held.cfg.MaxBytes = cfg.MaxBytes
}

// Name is the topic's name.
func (t *Topic) Name() string { return t.name }

// Created is when the topic was created.
func (t *Topic) Created() time.Time { return t.created }

// Updated is when the topic was created or configured last.
func (t *Topic) Updated() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.updated
}

// Config returns the settings, defaults filled in.
func (t *Topic) Config() TopicConfig {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.cfg
}

// Configure changes the settings. Messages that are there keep what they were given.
func (t *Topic) Configure(cfg *TopicConfig) error {
	full, err := cfg.withDefaults()
	if err != nil {
		return err
	}
	t.mu.Lock()
	if t.deleted {
		t.mu.Unlock()
		return ErrDeleted
	}
	t.apply(full)
	t.updated = time.Now()
	t.wake()
	t.mu.Unlock()
	return t.rewrite().Wait()
}

func (t *Topic) receivingDisabled() bool { return Status(t.status.Load()).noReceiving() }

// Counts counts the messages that are scheduled, and the bytes of all that the topic and its subscriptions hold.
func (t *Topic) Counts() Counts {
	t.enqueueDue()
	c := Counts{Scheduled: t.held.Counts().Scheduled, Bytes: t.held.Counts().Bytes}
	for _, q := range t.Subscriptions() {
		c.Bytes += q.Counts().Bytes
	}
	return c
}

// Subscribe adds a subscription: [ErrExists], [ErrDeleted].
func (t *Topic) Subscribe(name string, cfg *QueueConfig) (*Queue, error) {
	if err := checkName(name, maxSubscriptionName); err != nil {
		return nil, err
	}
	full, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("subscription %s: %w", name, err)
	}
	t.broker.mu.Lock()
	id := t.broker.nextID()
	t.mu.Lock()
	q := newQueue(id, t.name+"/Subscriptions/"+name, full, t, t.broker.journal)
	switch {
	case t.deleted:
		err = fmt.Errorf("topic %s: %w", t.name, ErrDeleted)
	case t.subscriptions[strings.ToLower(name)] != nil:
		err = fmt.Errorf("subscription %s: %w", q.name, ErrExists)
	case len(t.subscriptions) >= maxSubscriptions:
		err = fmt.Errorf("topic %s has %d subscriptions, more aren't possible", t.name, maxSubscriptions)
	}
	var r Receipt
	if err == nil {
		t.subscriptions[strings.ToLower(name)] = q
		q.mu.Lock()
		q.notes.defined(q.definition())
		r = q.leave()
	}
	t.mu.Unlock()
	t.broker.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if err := r.Wait(); err != nil {
		return nil, errors.Join(fmt.Errorf("subscription %s: %w", name, err), t.Unsubscribe(name))
	}
	return q, nil
}

// Unsubscribe removes a subscription with its messages: [ErrNotFound].
func (t *Topic) Unsubscribe(name string) error {
	t.mu.Lock()
	q := t.subscriptions[strings.ToLower(name)]
	if q == nil {
		t.mu.Unlock()
		return fmt.Errorf("subscription %s/%.60s: %w", t.name, name, ErrNotFound)
	}
	delete(t.subscriptions, strings.ToLower(name))
	r := q.delete()
	t.mu.Unlock()
	return r.Wait()
}

// Subscription finds a subscription.
func (t *Topic) Subscription(name string) (*Queue, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	q, ok := t.subscriptions[strings.ToLower(name)]
	return q, ok
}

// Subscriptions returns the subscriptions, by name.
func (t *Topic) Subscriptions() []*Queue {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.SortedFunc(maps.Values(t.subscriptions), func(p, q *Queue) int { return cmp.Compare(p.name, q.name) })
}

// Send puts messages into all subscriptions, all or none; without any, they are gone. [ErrFull] where one of them has no room, [ErrDeleted],
// [ErrSendDisabled].
func (t *Topic) Send(ms []Message) error {
	_, r := t.Submit(ms)
	return r.Wait()
}

// Submit is Send that doesn't wait for the disk. It returns the messages' sequence numbers in the topic.
func (t *Topic) Submit(ms []Message) ([]int64, Receipt) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.deleted:
		return nil, Receipt{err: ErrDeleted}
	case t.cfg.Status.noSending():
		return nil, Receipt{err: ErrSendDisabled}
	}
	now := time.Now().UnixMilli()
	var soon, later []Message
	for _, m := range ms {
		if m.Scheduled.UnixMilli() > now {
			later = append(later, m)
		} else {
			soon = append(soon, m)
		}
	}
	subscriptions := t.lockAll()
	err := t.held.room(later)
	for _, q := range subscriptions {
		if full := q.room(soon); full != nil && err == nil {
			err = fmt.Errorf("subscription %s: %w", q.name, full)
		}
	}
	if err != nil {
		for _, q := range append(subscriptions, t.held) {
			q.exit()
		}
		return nil, Receipt{err: err}
	}
	all := t.absorb(subscriptions)
	numbers := make([]int64, len(ms))
	for i := range ms {
		m := ms[i]
		m.TTL = lesser(m.TTL, t.cfg.TTL)
		if m.Scheduled.UnixMilli() > now {
			numbers[i] = t.held.accept(&all, &m, now, 0).Sequence
			t.due.Store(min(t.due.Load(), m.Scheduled.UnixMilli()))
			t.wakeLocked(subscriptions)
			continue
		}
		m.Scheduled = time.Time{}
		t.held.sequence++
		numbers[i] = t.held.sequence
		for _, q := range subscriptions {
			q.accept(&all, &m, now, numbers[i])
		}
	}
	wrote := all.entries
	r := t.broker.journal.begin(&all)
	for _, q := range append(subscriptions, t.held) {
		q.sent(wrote, r)
		q.mu.Unlock()
	}
	r.then = func(error) {
		for _, q := range append(subscriptions, t.held) {
			q.settleWrites()
		}
	}
	return numbers, r
}

// Cancel is as that of a [Queue].
func (t *Topic) Cancel(numbers []int64) Receipt {
	t.enqueueDue()
	return t.held.Cancel(numbers)
}

// lockAll locks the topic's own queue and those of its subscriptions. t.mu is held.
func (t *Topic) lockAll() []*Queue {
	all := slices.SortedFunc(maps.Values(t.subscriptions), func(p, q *Queue) int { return cmp.Compare(p.id, q.id) })
	t.held.mu.Lock()
	t.held.catchUp()
	for _, q := range all {
		q.mu.Lock()
		q.catchUp()
	}
	return all
}

// absorb takes what lockAll has brought about.
func (t *Topic) absorb(subscriptions []*Queue) notes {
	all := notes{off: t.broker.journal == nil}
	all.absorb(&t.held.notes)
	for _, q := range subscriptions {
		all.absorb(&q.notes)
	}
	all.entries = nil
	return all
}

// enqueueDue gives the subscriptions the messages that were scheduled for now, or earlier.
func (t *Topic) enqueueDue() {
	if t.due.Load() > time.Now().UnixMilli() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	subscriptions := t.lockAll()
	now := time.Now().UnixMilli()
	all := t.absorb(subscriptions)
	held := t.held
	var early []*entry // not on disk yet
	for _, e := range held.due {
		switch {
		case e.gone:
			continue
		case e.unwritten != nil:
			early = append(early, e)
			continue
		}
		m := e.Message
		m.Scheduled = time.Time{}
		for _, q := range subscriptions {
			q.accept(&all, &m, now, e.Sequence)
		}
		all.done(held.id, e.Sequence)
		held.drop(e)
	}
	held.due = early
	next := int64(math.MaxInt64)
	if len(early) > 0 {
		next = now + 1
	}
	for len(held.deadlines) > 0 && held.deadlines[0].stale() {
		heap.Pop(&held.deadlines)
	}
	if len(held.deadlines) > 0 {
		next = min(next, held.deadlines[0].at)
	}
	t.due.Store(next)
	// Whoever completes one of them is later in the journal than this: so they needn't be on disk to be received.
	t.broker.journal.begin(&all).forget()
	t.wakeLocked(subscriptions)
	for _, q := range append(subscriptions, held) {
		q.mu.Unlock()
	}
}

func (t *Topic) wakeLocked(subscriptions []*Queue) {
	for _, q := range subscriptions {
		q.wake()
	}
}

// wake ends all waits at the subscriptions. t.mu is held.
func (t *Topic) wake() {
	for _, q := range t.subscriptions {
		q.mu.Lock()
		q.wake()
		q.mu.Unlock()
	}
}

// rewrite notes the topic's definition.
func (t *Topic) rewrite() Receipt {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.deleted {
		return Receipt{}
	}
	t.held.mu.Lock()
	t.held.notes.defined(t.definition())
	return t.held.leave()
}

func (t *Topic) delete() Receipt {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.deleted = true
	for _, q := range t.subscriptions {
		q.delete().forget()
	}
	return t.held.delete()
}

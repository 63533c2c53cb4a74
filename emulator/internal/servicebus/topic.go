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

// Topic is a topic: each of its subscriptions gets each message. It is safe for
// concurrent use.
type Topic struct {
	id        uint64
	name      string
	broker    *Broker
	created   time.Time
	scheduled *Queue // holds the scheduled messages
	use       *usage
	nextDue   atomic.Int64 // when the first scheduled message is due, in ms since 1970
	status    atomic.Uint32

	mu            sync.Mutex
	cfg           TopicConfig
	updated       time.Time
	subscriptions map[string]*Queue
	deleted       bool
}

func newTopic(id uint64, name string, cfg TopicConfig, b *Broker) *Topic {
	now := time.Now()
	t := &Topic{id: id, name: name, broker: b, created: now, updated: now, subscriptions: make(map[string]*Queue), use: newUsage(nil)}
	t.scheduled = newQueue(id, name, QueueConfig{MaxBytes: cfg.MaxBytes}, nil, b.journal)
	t.scheduled.ofTopic = true
	t.nextDue.Store(math.MaxInt64)
	t.apply(cfg)
	return t
}

// apply makes settings effective. t.mu is held, or the topic isn't shared yet.
func (t *Topic) apply(cfg TopicConfig) {
	t.cfg = cfg
	t.status.Store(uint32(cfg.Status))
	t.scheduled.mu.Lock()
	defer t.scheduled.mu.Unlock()
	t.scheduled.cfg.MaxBytes = cfg.MaxBytes
}

// Name returns the topic's name.
func (t *Topic) Name() string { return t.name }

// Created returns when the topic was created.
func (t *Topic) Created() time.Time { return t.created }

// Updated returns when the topic was created or last configured.
func (t *Topic) Updated() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.updated
}

// Accessed is [Queue.Accessed] for the topic and its subscriptions.
func (t *Topic) Accessed() time.Time { return t.use.accessed() }

// Config returns the settings, defaults filled in.
func (t *Topic) Config() TopicConfig {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.cfg
}

// Configure changes the settings. Existing messages keep their deadlines.
func (t *Topic) Configure(cfg *TopicConfig) error {
	full, err := cfg.withDefaults()
	if err != nil {
		return err
	}
	t.use.keep()
	t.mu.Lock()
	if t.deleted {
		t.mu.Unlock()
		return ErrDeleted
	}
	t.apply(full)
	t.updated = time.Now()
	t.wake()
	t.mu.Unlock()
	return t.recordDefinition().Wait()
}

func (t *Topic) receiveDisabled() bool { return Status(t.status.Load()).receiveDisabled() }

// Counts returns the number of scheduled messages, and the payload bytes of the topic
// and its subscriptions.
func (t *Topic) Counts() Counts {
	t.enqueueDue()
	c := Counts{Scheduled: t.scheduled.Counts().Scheduled, Bytes: t.scheduled.Counts().Bytes}
	for _, q := range t.Subscriptions() {
		c.Bytes += q.Counts().Bytes
	}
	return c
}

// Subscribe adds a subscription. It fails with [ErrExists] or [ErrDeleted]. A nil cfg
// stands for the defaults.
func (t *Topic) Subscribe(name string, cfg *QueueConfig) (*Queue, error) {
	if err := checkName(name, maxSubscriptionName); err != nil {
		return nil, err
	}
	full, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("subscription %s: %w", name, err)
	}
	t.use.keep()
	t.broker.mu.Lock()
	id := t.broker.nextID()
	t.mu.Lock()
	t.deleteIdle()
	q := newQueue(id, t.name+"/Subscriptions/"+name, full, t, t.broker.journal)
	switch {
	case t.deleted:
		err = fmt.Errorf("topic %s: %w", t.name, ErrDeleted)
	case t.subscriptions[strings.ToLower(name)] != nil:
		err = fmt.Errorf("subscription %s: %w", q.name, ErrExists)
	case len(t.subscriptions) >= maxSubscriptions:
		err = fmt.Errorf("topic %s has %d subscriptions, which is the maximum: delete one first", t.name, maxSubscriptions)
	}
	var r Receipt
	if err == nil {
		t.subscriptions[strings.ToLower(name)] = q
		q.mu.Lock()
		q.changes.define(q.definition())
		r = q.commit()
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

// Unsubscribe removes a subscription with its messages. It fails with [ErrNotFound].
func (t *Topic) Unsubscribe(name string) error {
	t.use.keep()
	t.mu.Lock()
	t.deleteIdle()
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

// Subscription returns the subscription with the name.
func (t *Topic) Subscription(name string) (*Queue, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.deleteIdle()
	q, ok := t.subscriptions[strings.ToLower(name)]
	return q, ok
}

// Subscriptions returns all subscriptions, sorted by name.
func (t *Topic) Subscriptions() []*Queue {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.deleteIdle()
	return slices.SortedFunc(maps.Values(t.subscriptions), func(p, q *Queue) int { return cmp.Compare(p.name, q.name) })
}

// Send enqueues messages in all subscriptions, all or none, and returns once they are
// on disk. Without a subscription the messages are discarded. Errors: [ErrFull] if one
// of the subscriptions has no room, [ErrDeleted], [ErrSendDisabled].
func (t *Topic) Send(ms []Message) error {
	_, r := t.Submit(ms)
	return r.Wait()
}

// Submit is Send without waiting for the disk. It returns the messages' sequence
// numbers in the topic.
func (t *Topic) Submit(ms []Message) ([]int64, Receipt) {
	t.use.touch()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.deleteIdle()
	switch {
	case t.deleted:
		return nil, Receipt{err: ErrDeleted}
	case t.cfg.Status.sendDisabled():
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
	err := t.scheduled.checkSend(later)
	for _, q := range subscriptions {
		if full := q.checkSend(soon); full != nil && err == nil {
			err = fmt.Errorf("subscription %s: %w", q.name, full)
		}
	}
	if err != nil {
		for _, q := range append(subscriptions, t.scheduled) {
			q.end()
		}
		return nil, Receipt{err: err}
	}
	all := t.takeChanges(subscriptions)
	numbers := make([]int64, len(ms))
	for i := range ms {
		m := ms[i]
		m.TTL = shorterTTL(m.TTL, t.cfg.TTL)
		if m.Scheduled.UnixMilli() > now {
			numbers[i] = t.scheduled.enqueue(&all, &m, now, 0).Sequence
			t.nextDue.Store(min(t.nextDue.Load(), m.Scheduled.UnixMilli()))
			t.wakeLocked(subscriptions)
			continue
		}
		m.Scheduled = time.Time{}
		t.scheduled.sequence++
		numbers[i] = t.scheduled.sequence
		for _, q := range subscriptions {
			q.enqueue(&all, &m, now, numbers[i])
		}
	}
	wrote := all.entries
	r := t.broker.journal.submit(&all)
	for _, q := range append(subscriptions, t.scheduled) {
		q.hideUntilWritten(wrote, r)
		q.mu.Unlock()
	}
	r.then = func(error) {
		for _, q := range append(subscriptions, t.scheduled) {
			q.showWritten()
		}
	}
	return numbers, r
}

// Cancel is [Queue.Cancel] for the topic's scheduled messages.
func (t *Topic) Cancel(numbers []int64) Receipt {
	t.use.touch()
	t.enqueueDue()
	return t.scheduled.Cancel(numbers)
}

// lockAll locks the queue of scheduled messages and all subscriptions, which it
// returns, and applies what is due. t.mu is held.
func (t *Topic) lockAll() []*Queue {
	all := slices.SortedFunc(maps.Values(t.subscriptions), func(p, q *Queue) int { return cmp.Compare(p.id, q.id) })
	t.scheduled.mu.Lock()
	t.scheduled.applyDue()
	for _, q := range all {
		q.mu.Lock()
		q.applyDue()
	}
	return all
}

// takeChanges takes the changes that lockAll made in all queues.
func (t *Topic) takeChanges(subscriptions []*Queue) changes {
	all := changes{disabled: t.broker.journal == nil}
	all.take(&t.scheduled.changes)
	for _, q := range subscriptions {
		all.take(&q.changes)
	}
	all.entries = nil
	return all
}

// enqueueDue enqueues the scheduled messages that are due in all subscriptions.
func (t *Topic) enqueueDue() {
	if t.nextDue.Load() > time.Now().UnixMilli() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	subscriptions := t.lockAll()
	now := time.Now().UnixMilli()
	all := t.takeChanges(subscriptions)
	held := t.scheduled
	var early []*entry // not on disk yet
	for _, e := range held.dueMessages {
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
			q.enqueue(&all, &m, now, e.Sequence)
		}
		all.remove(held.id, e.Sequence)
		held.drop(e)
	}
	held.dueMessages = early
	next := int64(math.MaxInt64)
	if len(early) > 0 {
		next = now + 1
	}
	for len(held.deadlines) > 0 && held.deadlines[0].stale() {
		heap.Pop(&held.deadlines)
	}
	if len(held.deadlines) > 0 {
		next = min(next, held.deadlines[0].due)
	}
	t.nextDue.Store(next)
	// A later completion of one of them comes later in the journal: so they needn't be
	// on disk before they are received.
	t.broker.journal.submit(&all).detach()
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

// wake wakes the waiting receivers of all subscriptions. t.mu is held.
func (t *Topic) wake() {
	for _, q := range t.subscriptions {
		q.mu.Lock()
		q.wake()
		q.mu.Unlock()
	}
}

// recordDefinition writes the topic's definition to the journal.
func (t *Topic) recordDefinition() Receipt {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.deleted {
		return Receipt{}
	}
	t.scheduled.mu.Lock()
	t.scheduled.changes.define(t.definition())
	return t.scheduled.commit()
}

func (t *Topic) delete() Receipt {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.deleted = true
	for _, q := range t.subscriptions {
		q.delete().detach()
	}
	return t.scheduled.delete()
}

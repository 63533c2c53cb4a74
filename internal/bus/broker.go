package bus

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// Limits of Azure for names.
const (
	maxName             = 260
	maxSubscriptionName = 50
)

// Broker holds queues and topics. Names are the same in upper and lower case. Its methods may be called concurrently.
type Broker struct {
	mu     sync.Mutex
	queues map[string]*Queue
	topics map[string]*Topic
}

// Topic is a topic: each of its subscriptions gets each message. Its methods may be called concurrently.
type Topic struct {
	name    string
	created time.Time

	mu            sync.Mutex
	subscriptions map[string]*Queue
	deleted       bool
}

// New returns a broker without entities.
func New() *Broker {
	return &Broker{queues: make(map[string]*Queue), topics: make(map[string]*Topic)}
}

func checkName(name string, limit int) error {
	ok := name != "" && len(name) <= limit && !strings.HasPrefix(name, "/") && !strings.HasSuffix(name, "/") && !strings.Contains(name, "//")
	for i := 0; ok && i < len(name); i++ {
		c := name[i]
		ok = c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("._-/", c) >= 0
	}
	if !ok {
		return fmt.Errorf("name %.60q: choose up to %d letters, digits, periods, hyphens, underscores, and slashes inside", name, limit)
	}
	return nil
}

// CreateQueue adds a queue. Queues and topics share one space of names: [ErrExists].
func (b *Broker) CreateQueue(name string, cfg *QueueConfig) (*Queue, error) {
	if err := checkName(name, maxName); err != nil {
		return nil, err
	}
	q, err := newQueue(name, cfg)
	if err != nil {
		return nil, fmt.Errorf("queue %s: %w", name, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.taken(name) {
		return nil, fmt.Errorf("queue %s: %w", name, ErrExists)
	}
	b.queues[strings.ToLower(name)] = q
	return q, nil
}

// CreateTopic adds a topic without subscriptions.
func (b *Broker) CreateTopic(name string) (*Topic, error) {
	if err := checkName(name, maxName); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.taken(name) {
		return nil, fmt.Errorf("topic %s: %w", name, ErrExists)
	}
	t := &Topic{name: name, created: time.Now(), subscriptions: make(map[string]*Queue)}
	b.topics[strings.ToLower(name)] = t
	return t, nil
}

func (b *Broker) taken(name string) bool {
	name = strings.ToLower(name)
	return b.queues[name] != nil || b.topics[name] != nil
}

// Queue finds a queue.
func (b *Broker) Queue(name string) (*Queue, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	q, ok := b.queues[strings.ToLower(name)]
	return q, ok
}

// Topic finds a topic.
func (b *Broker) Topic(name string) (*Topic, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t, ok := b.topics[strings.ToLower(name)]
	return t, ok
}

// Queues returns the queues, by name.
func (b *Broker) Queues() []*Queue {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.SortedFunc(maps.Values(b.queues), func(p, q *Queue) int { return cmp.Compare(p.name, q.name) })
}

// Topics returns the topics, by name.
func (b *Broker) Topics() []*Topic {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.SortedFunc(maps.Values(b.topics), func(s, t *Topic) int { return cmp.Compare(s.name, t.name) })
}

// Delete removes a queue, or a topic with its subscriptions: [ErrNotFound].
func (b *Broker) Delete(name string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := strings.ToLower(name)
	switch q, t := b.queues[key], b.topics[key]; {
	case q != nil:
		delete(b.queues, key)
		q.delete()
	case t != nil:
		delete(b.topics, key)
		t.delete()
	default:
		return fmt.Errorf("entity %.100s: %w", name, ErrNotFound)
	}
	return nil
}

// Name is the topic's name.
func (t *Topic) Name() string { return t.name }

// Created is when the topic was created.
func (t *Topic) Created() time.Time { return t.created }

// Subscribe adds a subscription: [ErrExists], [ErrDeleted].
func (t *Topic) Subscribe(name string, cfg *QueueConfig) (*Queue, error) {
	if err := checkName(name, maxSubscriptionName); err != nil {
		return nil, err
	}
	q, err := newQueue(t.name+"/Subscriptions/"+name, cfg)
	if err != nil {
		return nil, fmt.Errorf("subscription %s: %w", name, err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.deleted:
		return nil, fmt.Errorf("topic %s: %w", t.name, ErrDeleted)
	case t.subscriptions[strings.ToLower(name)] != nil:
		return nil, fmt.Errorf("subscription %s: %w", q.name, ErrExists)
	}
	t.subscriptions[strings.ToLower(name)] = q
	return q, nil
}

// Unsubscribe removes a subscription with its messages: [ErrNotFound].
func (t *Topic) Unsubscribe(name string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.subscriptions[strings.ToLower(name)]
	if q == nil {
		return fmt.Errorf("subscription %s/%.60s: %w", t.name, name, ErrNotFound)
	}
	delete(t.subscriptions, strings.ToLower(name))
	q.delete()
	return nil
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
	return t.sorted()
}

func (t *Topic) sorted() []*Queue {
	return slices.SortedFunc(maps.Values(t.subscriptions), func(p, q *Queue) int { return cmp.Compare(p.name, q.name) })
}

// Send puts messages into all subscriptions; without any, they are gone. A subscription that is full gets none of them, and the error is its.
func (t *Topic) Send(ms []Message) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.deleted {
		return ErrDeleted
	}
	var errs []error
	for _, q := range t.sorted() {
		if err := q.Send(ms); err != nil {
			errs = append(errs, fmt.Errorf("subscription %s: %w", q.name, err))
		}
	}
	return errors.Join(errs...)
}

func (t *Topic) delete() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.deleted = true
	for _, q := range t.subscriptions {
		q.delete()
	}
}

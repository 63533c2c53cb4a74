package servicebus

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/sluice-go/sluice/emulator/internal/disklog"
)

// Limits of Azure.
const (
	maxName             = 260
	maxSubscriptionName = 50
	maxSubscriptions    = 2000
)

// Options adjust a [Broker]. The zero value and nil work.
type Options struct {
	// Failed learns of failures in the background: what was to be written, but nobody waits for, or the compaction of the journal. Default: nobody
	// does.
	Failed func(error)

	spare int64 // see compactFrom
}

// Broker holds queues and topics. Names are the same in upper and lower case. Its methods may be called concurrently.
type Broker struct {
	journal *journal // nil: all is in memory only

	mu     sync.Mutex
	lastID uint64
	queues map[string]*Queue
	topics map[string]*Topic
}

// Open returns a broker with the entities and messages of a directory, which is created if need be; one broker at a time can use it. With
// dir "" there are none, and nothing outlives the broker.
func Open(dir string, options *Options) (*Broker, error) {
	b := &Broker{queues: make(map[string]*Queue), topics: make(map[string]*Topic)}
	if dir == "" {
		return b, nil
	}
	var o Options
	if options != nil {
		o = *options
	}
	if o.Failed == nil {
		o.Failed = func(error) {}
	}
	log, err := disklog.Open(dir, &disklog.Config{MaxBatchBytes: 64 << 20, SegmentBytes: 16 << 20})
	if err != nil {
		return nil, err
	}
	j := &journal{log: log, spare: cmp.Or(o.spare, compactFrom), failed: o.Failed, kick: make(chan struct{}, 1), stop: make(chan struct{})}
	j.closed = sync.OnceValue(j.finish)
	b.journal = j
	if err := b.recover(); err != nil {
		return nil, errors.Join(fmt.Errorf("read the journal in %s: %w", dir, err), log.Close())
	}
	j.done.Add(1)
	go j.run(b.compact)
	return b, nil
}

// Close writes what is still to be written, and gives the directory back. Operations fail from now on, if there is one. A second Close
// returns what the first did.
func (b *Broker) Close() error { return b.journal.close() }

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
	full, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("queue %s: %w", name, err)
	}
	b.mu.Lock()
	if b.taken(name) {
		b.mu.Unlock()
		return nil, fmt.Errorf("queue %s: %w", name, ErrExists)
	}
	q := newQueue(b.nextID(), name, full, nil, b.journal)
	b.queues[strings.ToLower(name)] = q
	q.mu.Lock()
	q.notes.defined(q.definition())
	r := q.leave()
	b.mu.Unlock()
	if err := r.Wait(); err != nil {
		return nil, errors.Join(fmt.Errorf("queue %s: %w", name, err), b.Delete(name))
	}
	return q, nil
}

// CreateTopic adds a topic without subscriptions.
func (b *Broker) CreateTopic(name string, cfg *TopicConfig) (*Topic, error) {
	if err := checkName(name, maxName); err != nil {
		return nil, err
	}
	full, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("topic %s: %w", name, err)
	}
	b.mu.Lock()
	if b.taken(name) {
		b.mu.Unlock()
		return nil, fmt.Errorf("topic %s: %w", name, ErrExists)
	}
	t := newTopic(b.nextID(), name, full, b)
	b.topics[strings.ToLower(name)] = t
	r := t.rewrite()
	b.mu.Unlock()
	if err := r.Wait(); err != nil {
		return nil, errors.Join(fmt.Errorf("topic %s: %w", name, err), b.Delete(name))
	}
	return t, nil
}

// nextID returns an id that no entity has had. b.mu is held.
func (b *Broker) nextID() uint64 {
	b.lastID++
	return b.lastID
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

// all returns everything that holds messages, and the topics. b.mu is held.
func (b *Broker) all() (queues []*Queue, topics []*Topic) {
	queues = slices.Collect(maps.Values(b.queues))
	for _, t := range b.topics {
		topics = append(topics, t)
		queues = append(append(queues, t.held), t.Subscriptions()...)
	}
	return queues, topics
}

// Delete removes a queue, or a topic with its subscriptions: [ErrNotFound].
func (b *Broker) Delete(name string) error {
	b.mu.Lock()
	key := strings.ToLower(name)
	var r Receipt
	switch q, t := b.queues[key], b.topics[key]; {
	case q != nil:
		delete(b.queues, key)
		r = q.delete()
	case t != nil:
		delete(b.topics, key)
		r = t.delete()
	default:
		r.err = fmt.Errorf("entity %.100s: %w", name, ErrNotFound)
	}
	b.mu.Unlock()
	return r.Wait()
}

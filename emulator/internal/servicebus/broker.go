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

// Limits of Azure Service Bus.
const (
	maxName             = 260
	maxSubscriptionName = 50
	maxSubscriptions    = 2000
)

// Options adjust a [Broker]. The zero value and nil work.
type Options struct {
	// OnError is called with errors that happen in the background: a write whose
	// outcome no caller waits for, or the compaction of the journal. Default: such
	// errors are ignored.
	OnError func(error)

	slack int64 // overrides compactSlack, in tests
}

// Broker holds queues and topics. Names are case-insensitive. A Broker is safe for
// concurrent use.
type Broker struct {
	journal *journal // nil: in memory only

	mu     sync.Mutex
	lastID uint64
	queues map[string]*Queue
	topics map[string]*Topic
}

// Open returns a broker with the entities and messages in directory dir, which is
// created if it doesn't exist. Only one broker at a time can use a directory. If dir is
// empty, the broker starts empty and keeps everything in memory only.
func Open(dir string, options *Options) (*Broker, error) {
	b := &Broker{queues: make(map[string]*Queue), topics: make(map[string]*Topic)}
	if dir == "" {
		return b, nil
	}
	var o Options
	if options != nil {
		o = *options
	}
	if o.OnError == nil {
		o.OnError = func(error) {}
	}
	log, err := disklog.Open(dir, &disklog.Config{MaxBatchBytes: 64 << 20, SegmentBytes: 16 << 20})
	if err != nil {
		return nil, err
	}
	j := &journal{log: log, slack: cmp.Or(o.slack, compactSlack), onError: o.OnError, wakeup: make(chan struct{}, 1), stop: make(chan struct{})}
	j.closed = sync.OnceValue(j.finish)
	b.journal = j
	if err := b.recover(); err != nil {
		return nil, errors.Join(fmt.Errorf("read the journal in %s: %w", dir, err), log.Close())
	}
	j.done.Add(1)
	go j.run(b.compact)
	return b, nil
}

// Close writes what is not on disk yet and releases the directory. If the broker has a
// directory, later operations fail. A second Close returns the result of the first.
func (b *Broker) Close() error { return b.journal.close() }

func checkName(name string, limit int) error {
	ok := name != "" && len(name) <= limit && !strings.HasPrefix(name, "/") && !strings.HasSuffix(name, "/") && !strings.Contains(name, "//")
	for i := 0; ok && i < len(name); i++ {
		c := name[i]
		ok = c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("._-/", c) >= 0
	}
	if !ok {
		return fmt.Errorf("name %.60q: use 1 to %d letters, digits, periods, hyphens, underscores, and slashes that are neither first, last nor doubled", name, limit)
	}
	return nil
}

// CreateQueue adds a queue. It fails with [ErrExists] if a queue or topic has the name
// already. A nil cfg stands for the defaults.
func (b *Broker) CreateQueue(name string, cfg *QueueConfig) (*Queue, error) {
	if err := checkName(name, maxName); err != nil {
		return nil, err
	}
	full, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("queue %s: %w", name, err)
	}
	b.mu.Lock()
	b.deleteIdle(name)
	if b.taken(name) {
		b.mu.Unlock()
		return nil, fmt.Errorf("queue %s: %w", name, ErrExists)
	}
	q := newQueue(b.nextID(), name, full, nil, b.journal)
	b.queues[strings.ToLower(name)] = q
	q.mu.Lock()
	q.changes.define(q.definition())
	r := q.commit()
	b.mu.Unlock()
	if err := r.Wait(); err != nil {
		return nil, errors.Join(fmt.Errorf("queue %s: %w", name, err), b.Delete(name))
	}
	return q, nil
}

// CreateTopic adds a topic without subscriptions. It fails with [ErrExists] if a queue
// or topic has the name already. A nil cfg stands for the defaults.
func (b *Broker) CreateTopic(name string, cfg *TopicConfig) (*Topic, error) {
	if err := checkName(name, maxName); err != nil {
		return nil, err
	}
	full, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("topic %s: %w", name, err)
	}
	b.mu.Lock()
	b.deleteIdle(name)
	if b.taken(name) {
		b.mu.Unlock()
		return nil, fmt.Errorf("topic %s: %w", name, ErrExists)
	}
	t := newTopic(b.nextID(), name, full, b)
	b.topics[strings.ToLower(name)] = t
	r := t.recordDefinition()
	b.mu.Unlock()
	if err := r.Wait(); err != nil {
		return nil, errors.Join(fmt.Errorf("topic %s: %w", name, err), b.Delete(name))
	}
	return t, nil
}

// nextID returns an id that no entity ever had. b.mu is held.
func (b *Broker) nextID() uint64 {
	b.lastID++
	return b.lastID
}

func (b *Broker) taken(name string) bool {
	name = strings.ToLower(name)
	return b.queues[name] != nil || b.topics[name] != nil
}

// Queue returns the queue with the name.
func (b *Broker) Queue(name string) (*Queue, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.deleteIdle(name)
	q, ok := b.queues[strings.ToLower(name)]
	return q, ok
}

// Topic returns the topic with the name.
func (b *Broker) Topic(name string) (*Topic, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.deleteIdle(name)
	t, ok := b.topics[strings.ToLower(name)]
	return t, ok
}

// Queues returns all queues, sorted by name.
func (b *Broker) Queues() []*Queue {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.deleteAllIdle()
	return slices.SortedFunc(maps.Values(b.queues), func(p, q *Queue) int { return cmp.Compare(p.name, q.name) })
}

// Topics returns all topics, sorted by name.
func (b *Broker) Topics() []*Topic {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.deleteAllIdle()
	return slices.SortedFunc(maps.Values(b.topics), func(s, t *Topic) int { return cmp.Compare(s.name, t.name) })
}

// all returns everything that holds messages (queues, subscriptions, and the scheduled
// messages of topics), and the topics. b.mu is held.
func (b *Broker) all() (queues []*Queue, topics []*Topic) {
	queues = slices.Collect(maps.Values(b.queues))
	for _, t := range b.topics {
		topics = append(topics, t)
		queues = append(append(queues, t.scheduled), t.Subscriptions()...)
	}
	return queues, topics
}

// Delete removes a queue, or a topic with its subscriptions. It fails with
// [ErrNotFound] if there is neither.
func (b *Broker) Delete(name string) error {
	b.mu.Lock()
	b.deleteIdle(name)
	r := b.delete(name)
	b.mu.Unlock()
	return r.Wait()
}

// delete removes an entity. b.mu is held.
func (b *Broker) delete(name string) Receipt {
	key := strings.ToLower(name)
	switch q, t := b.queues[key], b.topics[key]; {
	case q != nil:
		delete(b.queues, key)
		return q.delete()
	case t != nil:
		delete(b.topics, key)
		return t.delete()
	}
	return Receipt{err: fmt.Errorf("entity %.100s: %w", name, ErrNotFound)}
}

package autoscale

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"
)

// MemoryQueue is a [Queue] in memory, within one process. It is safe for concurrent
// use, and waits on channels and timers only, so it can be used in a bubble of
// testing/synctest.
type MemoryQueue struct {
	lock time.Duration

	mu          sync.Mutex
	items       []*queuedMessage
	deadLetters []DeadLetter
	next        int
	arrived     chan struct{} // closed and replaced when messages are sent
}

type queuedMessage struct {
	id         int
	body       []byte
	deliveries int
	visibleAt  time.Time // hidden until then
}

// DeadLetter is a message in the dead-letter queue.
type DeadLetter struct {
	Body   []byte
	Reason string
}

// NewMemoryQueue returns an empty queue. lock is how long a received message is
// hidden from others; zero means 30 s.
func NewMemoryQueue(lock time.Duration) *MemoryQueue {
	if lock <= 0 {
		lock = 30 * time.Second
	}
	return &MemoryQueue{lock: lock, arrived: make(chan struct{})}
}

// maxQueued is how many messages a queue in memory holds. The receiver is far behind
// then, for example because it cannot reach its store.
const maxQueued = 10_000

// Send implements [Queue]. It fails if the queue holds 10,000 messages.
func (q *MemoryQueue) Send(_ context.Context, bodies ...[]byte) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.items)+len(bodies) > maxQueued {
		return fmt.Errorf("the queue is full: it holds %d messages", len(q.items))
	}
	for _, b := range bodies {
		q.next++
		q.items = append(q.items, &queuedMessage{id: q.next, body: slices.Clone(b)})
	}
	close(q.arrived)
	q.arrived = make(chan struct{})
	return nil
}

// Receive implements [Queue].
func (q *MemoryQueue) Receive(ctx context.Context, most int) ([]Message, error) {
	for {
		messages, added, wait := q.take(most)
		if len(messages) > 0 {
			return messages, nil
		}
		var due <-chan time.Time
		if wait > 0 {
			due = time.After(wait)
		}
		select {
		case <-added:
		case <-due:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// take returns the messages that can be received now. If there are none, arrived is
// closed when messages are sent, and wait is the time until a hidden message is
// delivered again, 0 if none is hidden.
func (q *MemoryQueue) take(most int) (messages []Message, added <-chan struct{}, wait time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	for _, item := range q.items {
		if hidden := item.visibleAt.Sub(now); hidden > 0 {
			if wait == 0 || hidden < wait {
				wait = hidden
			}
			continue
		}
		if len(messages) == most {
			break
		}
		item.deliveries++
		item.visibleAt = now.Add(q.lock)
		messages = append(messages, Message{
			ID:         strconv.Itoa(item.id),
			Body:       slices.Clone(item.body),
			Deliveries: item.deliveries,
			Receipt:    receipt{item, item.deliveries},
		})
	}
	return messages, q.arrived, wait
}

// receipt identifies a delivery. It is valid until the message is received again.
type receipt struct {
	item     *queuedMessage
	delivery int
}

// Extend implements [Queue].
func (q *MemoryQueue) Extend(_ context.Context, m *Message) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	r := m.Receipt.(receipt)
	if r.item.deliveries != r.delivery || !r.item.visibleAt.After(time.Now()) {
		return ErrLockLost
	}
	r.item.visibleAt = time.Now().Add(q.lock)
	return nil
}

// Delete implements [Queue].
func (q *MemoryQueue) Delete(_ context.Context, m *Message) error {
	q.remove(m)
	return nil
}

// DeadLetter implements [Queue].
func (q *MemoryQueue) DeadLetter(_ context.Context, m *Message, reason string) error {
	if q.remove(m) {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.deadLetters = append(q.deadLetters, DeadLetter{m.Body, reason})
		if extra := len(q.deadLetters) - maxDeadLetters; extra > 0 {
			q.deadLetters = slices.Delete(q.deadLetters, 0, extra)
		}
	}
	return nil
}

// maxDeadLetters is how many dead letters are kept.
const maxDeadLetters = 1000

// DeadLetters returns the dead letters, oldest first; the last 1,000 are kept.
func (q *MemoryQueue) DeadLetters() []DeadLetter {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Clone(q.deadLetters)
}

// remove takes a message out of the queue, unless it has been received again since,
// and reports whether it did.
func (q *MemoryQueue) remove(m *Message) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	r := m.Receipt.(receipt)
	i := slices.Index(q.items, r.item)
	if i < 0 || r.item.deliveries != r.delivery {
		return false
	}
	q.items = slices.Delete(q.items, i, i+1)
	return true
}

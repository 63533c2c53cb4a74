package servicebus

import (
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// usage records when an entity was used, so that it can be deleted once it is idle. Like
// everything that is due, that happens at the beginning of the next operation: here, of one
// that looks up an entity.
type usage struct {
	parent  *usage       // of the topic
	last    atomic.Int64 // when the entity was last used in any way, in ms since 1970
	message atomic.Int64 // when a message was last sent or received; 0: never
	waiting atomic.Int64 // receivers that wait for messages
}

func newUsage(topic *Topic) *usage {
	u := &usage{}
	if topic != nil {
		u.parent = topic.use
	}
	u.last.Store(time.Now().UnixMilli())
	return u
}

// keep records a use.
func (u *usage) keep() {
	now := time.Now().UnixMilli()
	for ; u != nil; u = u.parent {
		u.last.Store(now)
	}
}

// touch records a use by a sender or receiver.
func (u *usage) touch() {
	now := time.Now().UnixMilli()
	for ; u != nil; u = u.parent {
		u.last.Store(now)
		u.message.Store(now)
	}
}

// enter begins the wait of a receiver; leave ends it.
func (u *usage) enter() {
	for p := u; p != nil; p = p.parent {
		p.waiting.Add(1)
	}
}

func (u *usage) leave() {
	u.touch()
	for p := u; p != nil; p = p.parent {
		p.waiting.Add(-1)
	}
}

func (u *usage) accessed() time.Time {
	if ms := u.message.Load(); ms > 0 {
		return timeOf(ms)
	}
	return time.Time{}
}

// idle reports whether the entity has not been used for limit; never if that is 0.
func (u *usage) idle(limit time.Duration) bool {
	return limit > 0 && u.waiting.Load() == 0 && time.Since(timeOf(u.last.Load())) >= limit
}

// deleteIdle deletes the entity with the name if it is idle. b.mu is held.
func (b *Broker) deleteIdle(name string) {
	key := strings.ToLower(name)
	q, t := b.queues[key], b.topics[key]
	if q != nil && q.use.idle(q.Config().DeleteIdle) || t != nil && t.use.idle(t.Config().DeleteIdle) {
		b.delete(key).detach()
	}
}

// deleteAllIdle deletes all idle entities. b.mu is held.
func (b *Broker) deleteAllIdle() {
	for _, name := range slices.Concat(slices.Collect(maps.Keys(b.queues)), slices.Collect(maps.Keys(b.topics))) {
		b.deleteIdle(name)
	}
}

// deleteIdle deletes the idle subscriptions. t.mu is held.
func (t *Topic) deleteIdle() {
	for key, q := range t.subscriptions {
		if q.use.idle(q.Config().DeleteIdle) {
			delete(t.subscriptions, key)
			q.delete().detach()
		}
	}
}

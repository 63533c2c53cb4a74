package servicebus

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/sluice-go/sluice/emulator/internal/disklog"
)

// definition is an entity in the journal. Sequence is the newest message's when the
// definition was written.
type definition struct {
	ID       uint64       `json:"id"`
	Name     string       `json:"name"` // of a subscription, its own
	Topic    uint64       `json:"topic,omitempty"`
	Created  time.Time    `json:"created"`
	Updated  time.Time    `json:"updated"`
	Sequence int64        `json:"sequence"`
	Queue    *QueueConfig `json:"queue,omitempty"` // of a queue or subscription
	Fanout   *TopicConfig `json:"fanout,omitempty"`
}

// definition returns the queue's definition as JSON. q.mu is held.
func (q *Queue) definition() []byte {
	d := definition{ID: q.id, Name: q.name, Created: q.created, Updated: q.updated, Sequence: q.sequence, Queue: &q.cfg}
	if q.topic != nil {
		d.Topic, d.Name = q.topic.id, q.name[strings.LastIndex(q.name, "/")+1:]
	}
	return d.encode()
}

// definition returns the topic's definition as JSON. t.mu and t.held.mu are held.
func (t *Topic) definition() []byte {
	d := definition{ID: t.id, Name: t.name, Created: t.created, Updated: t.updated, Sequence: t.scheduled.sequence, Fanout: &t.cfg}
	return d.encode()
}

func (d *definition) encode() []byte {
	text, err := json.Marshal(d)
	if err != nil {
		panic(err) // no field can fail
	}
	return text
}

// recovery collects what the journal has about one queue.
type recovery struct {
	definition *definition
	deleted    bool
	sequence   int64
	messages   map[int64]*recovered
	sessions   map[string][]byte
}

// recovered is a message in a recovery.
type recovered struct {
	Message
	dead bool
}

// recover reads the journal and creates the entities in it.
func (b *Broker) recover() error {
	j := b.journal
	all := make(map[uint64]*recovery)
	info := j.log.Info()
	var batch disklog.Batch
	for next := info.First; next <= info.Last; {
		if err := j.log.ReadInto(&batch, next, 10_000, 4<<20); err != nil {
			return err
		}
		for i := range batch.Events {
			e := &batch.Events[i]
			if err := b.replay(all, e); err != nil {
				return fmt.Errorf("record %d: %w", e.Sequence, err)
			}
			j.written += int64(len(e.Key) + len(e.Payload) + 64)
			next = e.Sequence + 1
		}
	}
	kept, err := b.build(all)
	if err != nil {
		return err
	}
	j.limit = max(j.slack, kept) + kept
	return nil
}

// replay applies one record. The records of an entity may come before its definition,
// because compaction writes the definition again, at the end.
func (b *Broker) replay(all map[uint64]*recovery, e *disklog.Stored) error {
	r, err := parseRecord(e.Key)
	if err != nil {
		return err
	}
	of := func(id uint64) *recovery {
		x := all[id]
		if x == nil {
			x = &recovery{messages: make(map[int64]*recovered), sessions: make(map[string][]byte)}
			all[id] = x
			b.lastID = max(b.lastID, id)
		}
		return x
	}
	if r.kind == recordEntity {
		var d definition
		if err := json.Unmarshal(e.Payload, &d); err != nil {
			return fmt.Errorf("definition of an entity: %w", err)
		}
		x := of(d.ID)
		x.definition, x.sequence = &d, max(x.sequence, d.Sequence)
		return nil
	}
	var payload []byte
	if r.hasPayload {
		payload = bytes.Clone(e.Payload)
	}
	for _, t := range r.targets {
		x := of(t.queue)
		m := x.messages[t.sequence]
		x.sequence = max(x.sequence, t.sequence)
		switch r.kind {
		case recordDeleted:
			x.deleted, x.messages, x.sessions = true, nil, nil
		case recordMessage:
			if x.deleted {
				continue
			}
			x.messages[t.sequence] = &recovered{Message: r.state, dead: r.dead}
			x.messages[t.sequence].Payload, x.messages[t.sequence].Sequence = payload, t.sequence
		case recordUpdated:
			if m == nil {
				continue
			}
			if !r.hasPayload {
				payload = m.Payload
			}
			m.Message, m.dead = r.state, r.dead
			m.Payload, m.Sequence = payload, t.sequence
		case recordRemoved:
			delete(x.messages, t.sequence)
		case recordEnqueued:
			x.sequence = max(x.sequence, r.number)
			if m == nil {
				continue
			}
			delete(x.messages, t.sequence)
			if m.Original == 0 {
				m.Original = t.sequence
			}
			m.Sequence, m.State, m.Enqueued, m.Scheduled = r.number, Active, timeOf(r.when), time.Time{}
			x.messages[r.number] = m
		case recordSession:
			if !x.deleted {
				if delete(x.sessions, r.session); r.hasPayload {
					x.sessions[r.session] = payload
				}
			}
		}
	}
	return nil
}

// build creates the entities, and returns how many bytes their messages take in the
// journal.
func (b *Broker) build(all map[uint64]*recovery) (kept int64, err error) {
	topics := make(map[uint64]*Topic)
	var rest []*recovery
	for _, x := range all {
		switch d := x.definition; {
		case d == nil || x.deleted:
		case d.Fanout != nil:
			t := newTopic(d.ID, d.Name, *d.Fanout, b)
			t.created, t.updated = d.Created, d.Updated
			topics[d.ID] = t
			b.topics[strings.ToLower(d.Name)] = t
			kept += t.scheduled.restore(x)
			if len(t.scheduled.deadlines) > 0 {
				t.nextDue.Store(t.scheduled.deadlines[0].due)
			}
		case d.Queue != nil:
			rest = append(rest, x)
		default:
			return kept, fmt.Errorf("entity %d is neither a queue nor a topic: %w", d.ID, errRecord)
		}
	}
	for _, x := range rest {
		d := x.definition
		full, err := d.Queue.withDefaults()
		if err != nil {
			return kept, fmt.Errorf("settings of %s: %w", d.Name, err)
		}
		if d.Topic == 0 {
			q := newQueue(d.ID, d.Name, full, nil, b.journal)
			b.queues[strings.ToLower(d.Name)] = q
			kept += q.restore(x)
			continue
		}
		t := topics[d.Topic]
		if t == nil {
			continue // deleted with its topic
		}
		q := newQueue(d.ID, t.name+"/Subscriptions/"+d.Name, full, t, b.journal)
		t.subscriptions[strings.ToLower(d.Name)] = q
		kept += q.restore(x)
	}
	return kept, nil
}

// restore fills a new queue with what the journal has about it.
func (q *Queue) restore(x *recovery) (kept int64) {
	q.created, q.updated, q.sequence = x.definition.Created, x.definition.Updated, x.sequence
	entries := make([]*entry, 0, len(x.messages))
	for _, m := range x.messages {
		entries = append(entries, &entry{Message: m.Message, store: &q.messages})
		if m.dead {
			entries[len(entries)-1].store = &q.deadLetters
		}
	}
	slices.SortFunc(entries, func(a, b *entry) int { return cmp.Compare(a.Sequence, b.Sequence) })
	for _, e := range entries {
		q.bytes += e.size()
		kept += int64(len(e.Payload)) + 128
		e.store.add(e)
		q.setDeadline(e)
	}
	if q.messages.sessions != nil {
		for id, state := range x.sessions {
			held := q.messages.session(id)
			held.state, held.stated = state, time.Now().UnixMilli()
			q.bytes += int64(len(state))
			kept += int64(len(state))
		}
	}
	return min(kept, math.MaxInt64/4)
}

package servicebus

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-go/sluice/emulator/internal/disklog"
)

// Kinds of journal records. The key of a record is its kind, followed by numbers as
// varints and texts with their lengths; large data is in the payload.
const (
	// recordEntity: the definition of an entity. Payload: JSON.
	recordEntity = 'E'
	// recordDeleted: the entity's id.
	recordDeleted = 'X'
	// recordMessage: a message: the number of queues that have it; for each, queue and
	// sequence number; the message's state. Payload: the message's.
	recordMessage = 'M'
	// recordUpdated: a message has changed: queue, sequence number, whether there is a
	// payload, the message's state. Payload: the new one.
	recordUpdated = 'A'
	// recordRemoved: a message is removed: queue and sequence number.
	recordRemoved = 'D'
	// recordEnqueued: a scheduled message is enqueued: queue, old and new sequence
	// number, time.
	recordEnqueued = 'Q'
	// recordSession: the state of a session: queue, session id, whether there is a
	// state. Payload: the state.
	recordSession = 'S'
	// recordMark: the place from which compaction writes everything again.
	recordMark = '-'
)

// changes collects the records of an operation until they are submitted to the journal.
type changes struct {
	disabled bool // there is no journal
	records  []disklog.Message
	entries  []*entry // the messages in records that have their payloads

	// The last message, whose record is still open: other queues may get the same one.
	open    bool
	targets []byte
	count   uint64
	state   []byte
	payload []byte
}

func (n *changes) empty() bool { return len(n.records) == 0 && !n.open }

func (n *changes) add(key, payload []byte) {
	n.closeMessage()
	n.records = append(n.records, disklog.Message{Key: string(key), Payload: payload})
}

// message records a message with its payload.
func (n *changes) message(queue uint64, e *entry) {
	if n.disabled {
		return
	}
	n.entries = append(n.entries, e)
	state := appendState(nil, e)
	if !n.open || !bytes.Equal(state, n.state) || !same(e.Payload, n.payload) {
		n.closeMessage()
		n.open, n.targets, n.count, n.state, n.payload = true, n.targets[:0], 0, state, e.Payload
	}
	n.count++
	n.targets = appendTarget(n.targets, queue, e.Sequence)
}

// same reports whether two slices are the same memory.
func same(a, b []byte) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// closeMessage ends the record of the last message.
func (n *changes) closeMessage() {
	if !n.open {
		return
	}
	n.open = false
	key := binary.AppendUvarint([]byte{recordMessage}, n.count)
	key = append(append(key, n.targets...), n.state...)
	n.records = append(n.records, disklog.Message{Key: string(key), Payload: n.payload})
	n.payload = nil
}

func (n *changes) update(queue uint64, e *entry, withPayload bool) {
	if n.disabled {
		return
	}
	key := appendFlag(appendTarget([]byte{recordUpdated}, queue, e.Sequence), withPayload)
	var payload []byte
	if withPayload {
		payload = e.Payload
	}
	n.add(appendState(key, e), payload)
}

func (n *changes) remove(queue uint64, sequence int64) {
	if !n.disabled {
		n.add(appendTarget([]byte{recordRemoved}, queue, sequence), nil)
	}
}

func (n *changes) enqueue(queue uint64, old, sequence, now int64) {
	if !n.disabled {
		n.add(binary.AppendVarint(binary.AppendVarint(appendTarget([]byte{recordEnqueued}, queue, old), sequence), now), nil)
	}
}

func (n *changes) sessionState(queue uint64, id string, state []byte) {
	if !n.disabled {
		key := binary.AppendUvarint([]byte{recordSession}, queue)
		n.add(appendFlag(appendText(key, id), state != nil), state)
	}
}

func (n *changes) define(entity []byte) {
	if !n.disabled {
		n.add([]byte{recordEntity}, entity)
	}
}

func (n *changes) deleteEntity(id uint64) {
	if !n.disabled {
		n.add(binary.AppendUvarint([]byte{recordDeleted}, id), nil)
	}
}

// take moves the records of other to n.
func (n *changes) take(other *changes) {
	n.closeMessage()
	other.closeMessage()
	n.records, n.entries = append(n.records, other.records...), append(n.entries, other.entries...)
	other.records, other.entries = nil, nil
}

func appendTarget(b []byte, queue uint64, sequence int64) []byte {
	return binary.AppendVarint(binary.AppendUvarint(b, queue), sequence)
}

func appendText(b []byte, text string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

func appendFlag(b []byte, set bool) []byte {
	if set {
		return append(b, 1)
	}
	return append(b, 0)
}

// appendState appends the broker's properties of a message, except its sequence number.
func appendState(b []byte, e *entry) []byte {
	b = append(appendFlag(b, e.store.dead), byte(e.State))
	b = binary.AppendVarint(b, e.Original)
	b = binary.AppendVarint(b, e.Enqueued.UnixMilli())
	b = binary.AppendVarint(b, e.TTL.Milliseconds())
	if b = appendFlag(b, e.State == Scheduled); e.State == Scheduled {
		b = binary.AppendVarint(b, e.Scheduled.UnixMilli())
	}
	b = binary.AppendUvarint(b, uint64(e.Deliveries))
	if b = appendFlag(b, e.InSession); e.InSession {
		b = appendText(b, e.Session)
	}
	return appendText(appendText(b, e.Reason), e.Description)
}

// target is the place of a message.
type target struct {
	queue    uint64
	sequence int64
}

// record is a parsed record.
type record struct {
	kind       byte
	targets    []target // of a recordMessage, all queues that have it; else one
	state      Message
	dead       bool
	hasPayload bool // the record has a payload
	number     int64
	when       int64
	session    string
}

var errRecord = errors.New("not a journal record of this version, or a damaged one")

func parseRecord(key string) (r record, err error) {
	p := parser{b: []byte(key)}
	switch r.kind = p.byte(); r.kind {
	case recordEntity, recordMark:
	case recordDeleted:
		r.targets = []target{{queue: p.uvarint()}}
	case recordMessage:
		for n := p.uvarint(); n > 0 && !p.bad; n-- {
			r.targets = append(r.targets, p.target())
		}
		r.hasPayload = true
		p.state(&r)
	case recordUpdated:
		r.targets = []target{p.target()}
		r.hasPayload = p.flag()
		p.state(&r)
	case recordRemoved:
		r.targets = []target{p.target()}
	case recordEnqueued:
		r.targets = []target{p.target()}
		r.number, r.when = p.varint(), p.varint()
	case recordSession:
		r.targets = []target{{queue: p.uvarint()}}
		r.session = p.text()
		r.hasPayload = p.flag()
	default:
		return r, fmt.Errorf("kind %q: %w", r.kind, errRecord)
	}
	if p.bad || len(p.b) > 0 {
		return r, errRecord
	}
	return r, nil
}

// parser parses the key of a record. After a failure it returns zero values.
type parser struct {
	b   []byte
	bad bool
}

func (p *parser) fail() {
	p.b, p.bad = nil, true
}

func (p *parser) byte() byte {
	if len(p.b) == 0 {
		p.fail()
		return 0
	}
	c := p.b[0]
	p.b = p.b[1:]
	return c
}

func (p *parser) flag() bool { return p.byte() == 1 }

func (p *parser) uvarint() uint64 {
	v, n := binary.Uvarint(p.b)
	if n <= 0 {
		p.fail()
		return 0
	}
	p.b = p.b[n:]
	return v
}

func (p *parser) varint() int64 {
	v, n := binary.Varint(p.b)
	if n <= 0 {
		p.fail()
		return 0
	}
	p.b = p.b[n:]
	return v
}

func (p *parser) text() string {
	n := p.uvarint()
	if n > uint64(len(p.b)) {
		p.fail()
		return ""
	}
	s := string(p.b[:n])
	p.b = p.b[n:]
	return s
}

func (p *parser) target() target { return target{queue: p.uvarint(), sequence: p.varint()} }

func (p *parser) state(r *record) {
	r.dead = p.flag()
	r.state.State = State(p.byte())
	r.state.Original = p.varint()
	r.state.Enqueued = timeOf(p.varint())
	r.state.TTL = time.Duration(p.varint()) * time.Millisecond
	if p.flag() {
		r.state.Scheduled = timeOf(p.varint())
	}
	r.state.Deliveries = uint32(p.uvarint())
	if p.flag() {
		r.state.InSession, r.state.Session = true, p.text()
	}
	r.state.Reason, r.state.Description = p.text(), p.text()
}

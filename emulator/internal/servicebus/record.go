package servicebus

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-go/sluice/emulator/internal/disklog"
)

// Records of the journal. The key of a record is its kind, followed by numbers as varints and texts with their lengths; what is large is the
// payload.
const (
	// recordEntity: an entity as JSON, in the payload.
	recordEntity = 'E'
	// recordDeleted: the entity's id.
	recordDeleted = 'X'
	// recordWhole: number of targets; for each, queue and sequence number; the message's state. Payload: the message's.
	recordWhole = 'M'
	// recordAltered: queue, sequence number, whether there is a payload, the message's state.
	recordAltered = 'A'
	// recordDone: queue and sequence number of a message that is gone.
	recordDone = 'D'
	// recordEnqueued: queue, old and new sequence number, time of a scheduled message.
	recordEnqueued = 'Q'
	// recordState: queue, session, whether there is a state. Payload: the state.
	recordState = 'S'
	// recordMark: nothing; it marks a place.
	recordMark = '-'
)

// notes are records on their way into the journal.
type notes struct {
	off     bool // nothing is to be noted
	records []disklog.Message
	entries []*entry // noted as a whole

	// A message that was noted as a whole last: other queues may get the same.
	open    bool
	targets []byte
	count   uint64
	state   []byte
	payload []byte
}

func (n *notes) empty() bool { return len(n.records) == 0 && !n.open }

func (n *notes) add(key, payload []byte) {
	n.close()
	n.records = append(n.records, disklog.Message{Key: string(key), Payload: payload})
}

// whole notes a message with its payload.
func (n *notes) whole(queue uint64, e *entry) {
	if n.off {
		return
	}
	n.entries = append(n.entries, e)
	state := appendState(nil, e)
	if !n.open || !bytes.Equal(state, n.state) || !same(e.Payload, n.payload) {
		n.close()
		n.open, n.targets, n.count, n.state, n.payload = true, n.targets[:0], 0, state, e.Payload
	}
	n.count++
	n.targets = appendTarget(n.targets, queue, e.Sequence)
}

// same tells whether two slices are the same memory.
func same(a, b []byte) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// close ends the record of a whole message.
func (n *notes) close() {
	if !n.open {
		return
	}
	n.open = false
	key := binary.AppendUvarint([]byte{recordWhole}, n.count)
	key = append(append(key, n.targets...), n.state...)
	n.records = append(n.records, disklog.Message{Key: string(key), Payload: n.payload})
	n.payload = nil
}

func (n *notes) altered(queue uint64, e *entry, withPayload bool) {
	if n.off {
		return
	}
	key := appendFlag(appendTarget([]byte{recordAltered}, queue, e.Sequence), withPayload)
	var payload []byte
	if withPayload {
		payload = e.Payload
	}
	n.add(appendState(key, e), payload)
}

func (n *notes) done(queue uint64, sequence int64) {
	if !n.off {
		n.add(appendTarget([]byte{recordDone}, queue, sequence), nil)
	}
}

func (n *notes) enqueued(queue uint64, old, sequence, now int64) {
	if !n.off {
		n.add(binary.AppendVarint(binary.AppendVarint(appendTarget([]byte{recordEnqueued}, queue, old), sequence), now), nil)
	}
}

func (n *notes) sessionState(queue uint64, id string, state []byte) {
	if !n.off {
		key := binary.AppendUvarint([]byte{recordState}, queue)
		n.add(appendFlag(appendText(key, id), state != nil), state)
	}
}

func (n *notes) defined(entity []byte) {
	if !n.off {
		n.add([]byte{recordEntity}, entity)
	}
}

func (n *notes) deleted(id uint64) {
	if !n.off {
		n.add(binary.AppendUvarint([]byte{recordDeleted}, id), nil)
	}
}

// absorb takes over what another has noted.
func (n *notes) absorb(other *notes) {
	n.close()
	other.close()
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

// appendState appends what the broker keeps of a message beside its sequence number.
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

// target is a message's place.
type target struct {
	queue    uint64
	sequence int64
}

// record is a record taken apart.
type record struct {
	kind    byte
	targets []target // of a whole message, as many as have it; else one
	state   Message
	dead    bool
	has     bool // there is a payload
	number  int64
	when    int64
	session string
}

var errRecord = errors.New("not a record of a broker's journal")

func parseRecord(key string) (r record, err error) {
	p := parser{b: []byte(key)}
	switch r.kind = p.byte(); r.kind {
	case recordEntity, recordMark:
	case recordDeleted:
		r.targets = []target{{queue: p.uvarint()}}
	case recordWhole:
		for n := p.uvarint(); n > 0 && !p.bad; n-- {
			r.targets = append(r.targets, p.target())
		}
		r.has = true
		p.state(&r)
	case recordAltered:
		r.targets = []target{p.target()}
		r.has = p.flag()
		p.state(&r)
	case recordDone:
		r.targets = []target{p.target()}
	case recordEnqueued:
		r.targets = []target{p.target()}
		r.number, r.when = p.varint(), p.varint()
	case recordState:
		r.targets = []target{{queue: p.uvarint()}}
		r.session = p.text()
		r.has = p.flag()
	default:
		return r, fmt.Errorf("kind %q: %w", r.kind, errRecord)
	}
	if p.bad || len(p.b) > 0 {
		return r, errRecord
	}
	return r, nil
}

// parser takes a key apart. Once something is missing, all is zero.
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

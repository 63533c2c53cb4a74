package emulator

import (
	"crypto/rand"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/sluice-go/sluice/emulator/internal/servicebus"
	"github.com/sluice-go/sluice/internal/amqp"
)

// The annotations of a message that the broker sets, in addition to those of an event.
// Those that a sender sends under these names are removed.
const (
	annLockedUntil = "x-opt-locked-until"
	annLockToken   = "x-opt-lock-token"
	annState       = "x-opt-message-state"
	annOriginal    = "x-opt-enqueue-sequence-number"
)

// annScheduled is the annotation by which a sender schedules a message. Receivers see it too.
const annScheduled = "x-opt-scheduled-enqueue-time"

// The application properties of a dead letter.
const (
	propReason      = "DeadLetterReason"
	propDescription = "DeadLetterErrorDescription"
)

func reservedInBus(name string) bool {
	switch name {
	case annSequence, annEnqueued, annLockedUntil, annLockToken, annState, annOriginal:
		return true
	}
	return false
}

// busMessage checks an encoded message, which it keeps, and extracts what the broker
// needs.
func busMessage(b []byte) (m servicebus.Message, err error) {
	m.Payload = b
	named := false
	err = eachSection(b, func(sec amqp.Section, _ []byte) (err error) {
		switch sec.Code {
		case amqp.SectionHeader:
			m.TTL, err = ttlOf(sec)
		case amqp.SectionMessageAnnotations:
			m.Scheduled, err = scheduleOf(sec)
		case amqp.SectionProperties:
			named, err = readProperties(sec, &m)
		}
		return err
	})
	switch {
	case err == errMisplaced:
		if b, err = inOrder(b); err != nil {
			return m, err
		}
		return busMessage(b)
	case err != nil:
		return m, err
	}
	if !named {
		m.Payload = withID(m.Payload)
	}
	return m, nil
}

// withID adds a message id to an encoded message without one, as the service does:
// clients rely on it.
func withID(message []byte) []byte {
	fields := amqp.List{rand.Text()}
	b := make([]byte, 0, len(message)+64)
	for rest := message; len(rest) > 0; {
		sec, after, err := amqp.NextSection(rest)
		if err != nil || sec.Code > amqp.SectionProperties {
			break
		}
		rest, message = after, after
		if sec.Code < amqp.SectionProperties {
			b = append(b, sec.Raw...)
		} else if v, err := sec.Decode(); err == nil {
			if others, _ := v.(amqp.List); len(others) > 1 {
				fields = append(fields, others[1:]...)
			}
		}
	}
	return append(amqp.AppendValue(amqp.AppendSection(b, amqp.SectionProperties), fields), message...)
}

// ttlOf returns the time to live in a header; 0 if there is none.
func ttlOf(header amqp.Section) (time.Duration, error) {
	v, err := header.Decode()
	if err != nil {
		return 0, err
	}
	fields, _ := v.(amqp.List)
	if len(fields) < 3 || fields[2] == nil {
		return 0, nil
	}
	ms, ok := integer(fields[2])
	if !ok || ms < 0 {
		return 0, amqp.Errorf(amqp.CondInvalidField, "the time to live of a message must be a number of milliseconds of at least 0")
	}
	return time.Duration(min(ms, 1<<32)) * time.Millisecond, nil
}

// scheduleOf returns the scheduled enqueue time in annotations; zero if there is none.
func scheduleOf(annotations amqp.Section) (at time.Time, err error) {
	v, err := annotations.Decode()
	if err != nil {
		return at, err
	}
	pairs, _ := v.(amqp.Map)
	switch v := pairs.Get(annScheduled).(type) {
	case nil:
	case time.Time:
		at = v
	default:
		err = amqp.Errorf(amqp.CondInvalidField, "the annotation %s must be a timestamp", annScheduled)
	}
	return at, err
}

// maxSessionID is the maximum length of a session id in characters, as on Azure.
const maxSessionID = 128

// readProperties sets the session from a properties section, and reports whether that
// has a message id.
func readProperties(properties amqp.Section, m *servicebus.Message) (named bool, err error) {
	const messageID, groupID = 0, 10 // section 3.2.4
	v, err := properties.Decode()
	if err != nil {
		return false, err
	}
	fields, _ := v.(amqp.List)
	named = len(fields) > messageID && fields[messageID] != nil
	if len(fields) <= groupID || fields[groupID] == nil {
		return named, nil
	}
	id, ok := fields[groupID].(string)
	if !ok || utf8.RuneCountInString(id) > maxSessionID {
		return false, amqp.Errorf(amqp.CondInvalidField, "the group-id of a message, which names its session, must be a string of up to %d characters", maxSessionID)
	}
	m.Session, m.InSession = id, true
	return named, nil
}

// appendBusMessage appends a message in the form for receivers; lock is nil if it isn't
// locked for them.
func appendBusMessage(b []byte, m *servicebus.Message, lock *servicebus.Locked) []byte {
	rest := m.Payload
	// take removes the next section if it is of that kind.
	take := func(code byte) (sec amqp.Section) {
		if next, after, err := amqp.NextSection(rest); err == nil && next.Code == code {
			sec, rest = next, after
		}
		return sec
	}
	b = appendHeader(b, m, take(amqp.SectionHeader))
	b = appendDeliveryAnnotations(b, take(amqp.SectionDeliveryAnnotations), lock)
	a, n := amqp.AppendLong(append(make([]byte, 0, 256), symSequence...), m.Sequence), 2
	a = amqp.AppendTimestamp(append(a, symEnqueued...), m.Enqueued)
	if m.Original != 0 {
		a = amqp.AppendLong(amqp.AppendSymbol(a, annOriginal), m.Original)
		n++
	}
	if m.State != servicebus.Active {
		a = amqp.AppendValue(amqp.AppendSymbol(a, annState), int32(m.State))
		n++
	}
	if lock != nil {
		a = amqp.AppendTimestamp(amqp.AppendSymbol(a, annLockedUntil), lock.LockedUntil)
		n++
	}
	a, n = appendOthers(a, n, take(amqp.SectionMessageAnnotations))
	b = amqp.AppendMapHeader(amqp.AppendSection(b, amqp.SectionMessageAnnotations), n, len(a))
	b = append(b, a...)
	var why amqp.Map
	if m.Reason != "" {
		why = append(why, amqp.Pair{Key: propReason, Value: m.Reason})
	}
	if m.Description != "" {
		why = append(why, amqp.Pair{Key: propDescription, Value: m.Description})
	}
	return appendWithProperties(b, rest, changedOf(why))
}

// appendHeader appends the header; durable and priority are those of the sender.
func appendHeader(b []byte, m *servicebus.Message, sent amqp.Section) []byte {
	header := amqp.List{nil, nil, nil, nil, m.Deliveries}
	if sent.Code != 0 {
		if v, err := sent.Decode(); err == nil {
			fields, _ := v.(amqp.List)
			copy(header[:2], fields)
		}
	}
	if m.TTL > 0 {
		header[2] = uint32(min(m.TTL.Milliseconds(), 1<<32-1))
	}
	return amqp.AppendValue(amqp.AppendSection(b, amqp.SectionHeader), header)
}

// appendDeliveryAnnotations appends those of the sender and the lock token. The section is there
// even if it is empty, as Azure's own tests expect.
func appendDeliveryAnnotations(b []byte, sent amqp.Section, lock *servicebus.Locked) []byte {
	var a []byte
	n := 0
	if lock != nil {
		a = amqp.AppendValue(amqp.AppendSymbol(a, annLockToken), amqp.UUID(lock.Token))
		n++
	}
	a, n = appendOthers(a, n, sent)
	b = amqp.AppendMapHeader(amqp.AppendSection(b, amqp.SectionDeliveryAnnotations), n, len(a))
	return append(b, a...)
}

// appendOthers appends the annotations of a section that the broker doesn't set, and
// returns n plus their number.
func appendOthers(a []byte, n int, sent amqp.Section) ([]byte, int) {
	if sent.Code != 0 {
		sent.Pairs(func(p amqp.RawPair) bool {
			if !reservedInBus(p.Key) {
				a = append(a, p.Raw...)
				n++
			}
			return true
		})
	}
	return a, n
}

// appendWithProperties appends an encoded message with changes to its application
// properties.
func appendWithProperties(b, message []byte, changed changedProperties) []byte {
	if changed.count == 0 {
		return append(b, message...)
	}
	a := changed.encoded
	n := changed.count
	var front []byte
	for rest := message; len(rest) > 0; {
		sec, after, err := amqp.NextSection(rest)
		if err != nil || sec.Code > amqp.SectionApplicationProperties {
			break
		}
		rest, message = after, after
		if sec.Code < amqp.SectionApplicationProperties {
			front = append(front, sec.Raw...)
			continue
		}
		sec.Pairs(func(p amqp.RawPair) bool {
			if !changed.names[p.Key] {
				a = append(a, p.Raw...)
				n++
			}
			return true
		})
	}
	b = append(b, front...)
	b = amqp.AppendMapHeader(amqp.AppendSection(b, amqp.SectionApplicationProperties), n, len(a))
	b = append(b, a...)
	return append(b, message...)
}

// changedProperties are application properties that replace those of the same names.
type changedProperties struct {
	names   map[string]bool
	encoded []byte // keys and values; clipped, so that an append doesn't change it
	count   int
}

// changedOf returns the entries whose keys are text. Of a name that is there twice, it is
// the first.
func changedOf(properties amqp.Map) (c changedProperties) {
	c.names = make(map[string]bool)
	for _, p := range properties {
		var name string
		switch k := p.Key.(type) {
		case amqp.Symbol:
			name = string(k)
		case string:
			name = k
		default:
			continue
		}
		if !c.names[name] {
			c.names[name] = true
			c.encoded = amqp.AppendValue(amqp.AppendValue(c.encoded, name), p.Value)
			c.count++
		}
	}
	c.encoded = slices.Clip(c.encoded)
	return c
}

// editProperties returns the function that applies changes to an encoded message's
// application properties; nil if there are none. It returns an error if the message
// would have more than most bytes.
func editProperties(properties amqp.Map, most int) func([]byte) ([]byte, error) {
	changed := changedOf(properties)
	if changed.count == 0 {
		return nil
	}
	return func(message []byte) ([]byte, error) {
		edited := appendWithProperties(nil, message, changed)
		if len(edited) > most && len(edited) > len(message) {
			return nil, amqp.Errorf(amqp.CondMessageSize, "The message with its changed properties has %d bytes: at most %d are allowed.", len(edited), most)
		}
		return edited, nil
	}
}

// omit returns a map without some keys.
func omit(m amqp.Map, names ...string) (rest amqp.Map) {
next:
	for _, p := range m {
		for _, name := range names {
			if p.Key == any(name) || p.Key == any(amqp.Symbol(name)) {
				continue next
			}
		}
		rest = append(rest, p)
	}
	return rest
}

package eventhub

import (
	"errors"
	"fmt"

	"github.com/sluice-go/sluice/driver"

	"github.com/sluice-go/sluice/internal/amqp"

	sdk "github.com/Azure/go-amqp"
)

// decodeEvent fills e from a whole AMQP message, and returns the event's sequence number, with an
// error -1 if that is not known. The event keeps payload, its body is a part of it: the caller must
// not use payload again. An error says what of the message is wrong.
//
// The result is what convert makes of the SDK's event. Beyond the SDK it decodes decimals, as
// their text such as 12.50, characters, as strings of one, arrays of every type, and names of
// properties that are no strings.
func decodeEvent(e *driver.Event, payload []byte, partition string) (sequence int64, err error) {
	e.Partition = partition
	d := eventDecoder{Reader: amqp.NewReader(payload), e: e, payload: payload}
	d.message()
	if err = d.failure(); err != nil && !d.numbered && !decodePosition(e, payload) {
		return -1, err
	}
	return e.Sequence, err
}

// decodePosition fills the annotations of e from a message whose sections are not all readable. It
// reports whether the sequence number is known then.
func decodePosition(e *driver.Event, payload []byte) bool {
	d := eventDecoder{Reader: amqp.NewReader(payload), e: e, payload: payload}
	for d.More() {
		code := d.Section()
		at := d.Offset()
		d.Jump()
		if code != amqp.SectionMessageAnnotations || d.Err() != nil {
			continue
		}
		d.text = string(payload[:d.Offset()])
		d.enter(extent{at, d.Offset()}, "message-annotations")
		d.annotationsSection()
		return d.numbered
	}
	return false
}

// parked returns what a dead letter has of an event that cannot be decoded: its position, key and
// time as far as they are known, and the message.
func parked(e *driver.Event, payload []byte, err error) driver.Event {
	return driver.Event{
		Partition: e.Partition, Sequence: e.Sequence, Offset: e.Offset, Enqueued: e.Enqueued, Key: e.Key,
		Body: payload, Undecodable: err.Error(),
	}
}

// eventDecoder decodes one message into e.
type eventDecoder struct {
	amqp.Reader
	e       *driver.Event
	payload []byte
	text    string // the message up to the body; every text of e is a part of it, so that all are one allocation
	section string // the section that is decoded, for errors
	name    string // the entry of the section, or empty

	numbered   bool // the event has its sequence number
	properties map[string]any
	device     map[string]any // annotations of IoT Hub
	encoding   string
	body       messageBody
}

// messageBody is what a message has as body. A message should have sections of one kind only.
type messageBody struct {
	sections int      // of binary data
	first    []byte   // the first of them
	data     [][]byte // all of them, if there are several
	sequence [][]any
	value    extent
}

func (d *eventDecoder) failure() error {
	err := d.Err()
	if err == nil {
		return nil
	}
	reason := err.Error()
	if e := new(amqp.Error); errors.As(err, &e) {
		reason = e.Description
	}
	if d.name != "" {
		return fmt.Errorf("%s, %q: %s", d.section, utf8(d.name), reason)
	}
	return fmt.Errorf("%s: %s", d.section, reason)
}

// message decodes the sections. As in the SDK, null stands for a section that is not there. Of
// several sections where one is allowed, the last counts.
func (d *eventDecoder) message() {
	d.section = "the message"
	var annotations, properties, application extent
	text := 0 // where the last of them ends
	for d.More() {
		code := d.Section()
		at := d.Offset()
		switch {
		case code == amqp.SectionData:
			d.dataSection()
		case code == amqp.SectionSequence:
			d.sequenceSection()
		case d.Null():
		case code == amqp.SectionMessageAnnotations:
			d.Jump()
			text = d.Offset()
			annotations = extent{at, text}
		case code == amqp.SectionProperties:
			d.Jump()
			text = d.Offset()
			properties = extent{at, text}
		case code == amqp.SectionApplicationProperties:
			d.Jump()
			text = d.Offset()
			application = extent{at, text}
		default:
			d.Skip()
			if code == amqp.SectionValue {
				d.body.value = extent{at, d.Offset()}
			}
		}
	}
	if d.Err() != nil {
		return
	}
	d.text = string(d.payload[:text])
	// First, so that the number of an event is known whose other parts cannot be decoded.
	if d.enter(annotations, "message-annotations") {
		d.annotationsSection()
	}
	if d.enter(properties, "properties") {
		d.propertiesSection()
	}
	if d.enter(application, "application-properties") {
		d.applicationSection()
	}
	d.e.Properties = withEncoding(withDevice(d.properties, d.device), d.encoding)
	d.bodySections()
}

// extent is where a value lies in the message; zero if there is none.
type extent struct{ start, end int }

// enter lets the decoder continue with the value of a section, if there is one.
func (d *eventDecoder) enter(x extent, section string) (there bool) {
	if x.end == 0 || d.Err() != nil {
		return false
	}
	d.section, d.name = section, ""
	d.Seek(x.start, x.end)
	return true
}

// leave ends the list or map of a section.
func (d *eventDecoder) leave(end int) {
	if d.Err() == nil {
		d.name = ""
		d.Leave(end)
	}
}

func (d *eventDecoder) dataSection() {
	b, ok := d.Binary()
	if !ok && !d.Null() { // which Azure's JavaScript library sends
		d.Fail("a data section that is not binary")
	}
	switch d.body.sections++; d.body.sections {
	case 1:
		d.body.first = b
	case 2:
		d.body.data = [][]byte{d.body.first, b}
	default:
		d.body.data = append(d.body.data, b)
	}
}

func (d *eventDecoder) sequenceSection() {
	var elements []any
	switch v := d.Value().(type) {
	case amqp.List:
		elements = list(v)
	case nil:
	default:
		d.Fail("a sequence section that is not a list")
	}
	d.body.sequence = append(d.body.sequence, elements)
}

// bodySections sets the body. Bytes and text are a part of the message.
func (d *eventDecoder) bodySections() {
	b := &d.body
	switch {
	case b.sections == 1:
		d.e.Body = b.first
		return
	case b.sections > 1 || len(b.sequence) > 0:
		d.e.Body = body(b.data, b.sequence, nil)
		return
	}
	if !d.enter(b.value, "the body") {
		return
	}
	if start, end, ok := d.Text(); ok {
		d.e.Body = d.payload[start:end:end]
	} else if data, ok := d.Binary(); ok {
		d.e.Body = data
	} else {
		d.e.Body = body(nil, nil, value(d.Value()))
	}
}

// propertiesSection decodes the properties that an event has (section 3.2.4).
func (d *eventDecoder) propertiesSection() {
	end, n := d.List()
	for i := 0; i < n && d.Err() == nil; i++ {
		if d.Null() {
			continue
		}
		switch i {
		case 0:
			d.name = "message-id"
			d.e.MessageID = d.identifier()
		case 5:
			d.name = "correlation-id"
			d.e.CorrelationID = d.identifier()
		case 6:
			d.name = "content-type"
			d.e.ContentType = utf8(d.string())
		case 7:
			d.name = "content-encoding"
			d.encoding = d.string()
		default:
			d.name = ""
			d.Skip()
		}
	}
	d.leave(end)
}

func (d *eventDecoder) identifier() string {
	if start, end, ok := d.Text(); ok {
		return utf8(d.text[start:end])
	}
	return identifier(value(d.Value()))
}

// string reads a value that must be text.
func (d *eventDecoder) string() string {
	start, end, ok := d.Text()
	if !ok {
		d.Fail("a value of another type in place of text")
	}
	return d.text[start:end]
}

// maxProperties bounds for how many properties a map is allocated before they are decoded.
const maxProperties = 64

// applicationSection decodes the properties that a sender has made up (section 3.2.5).
func (d *eventDecoder) applicationSection() {
	end, n := d.Map()
	if n == 0 {
		return
	}
	d.properties = make(map[string]any, min(n, maxProperties))
	broken := false
	for i := 0; i < n && d.Err() == nil; i++ {
		d.name = ""
		if start, end, ok := d.Text(); ok {
			d.name = d.text[start:end]
			broken = broken || utf8(d.name) != d.name
		} else {
			d.name = identifier(value(d.Value()))
		}
		if start, end, ok := d.Text(); ok {
			d.properties[d.name] = utf8(d.text[start:end])
		} else {
			d.properties[d.name] = storable(value(d.Value()))
		}
	}
	if broken {
		d.properties = properties(d.properties)
	}
	d.leave(end)
}

// annotationsSection decodes what the broker has added to the event: the annotations of Event Hubs,
// and those of IoT Hub.
func (d *eventDecoder) annotationsSection() {
	end, n := d.Map()
	for i := 0; i < n && d.Err() == nil; i++ {
		d.name = ""
		start, end, ok := d.Text()
		if !ok {
			d.Skip()
			d.Skip()
			continue
		}
		d.name = d.text[start:end]
		if !d.annotation() {
			d.Skip()
		}
	}
	d.leave(end)
}

// annotation decodes the annotation d.name, if the event needs it.
func (d *eventDecoder) annotation() (done bool) {
	switch d.name {
	case "x-opt-sequence-number":
		if d.e.Sequence, done = d.Int(); !done {
			d.Fail("not a signed integer")
		}
		d.numbered = done
	case "x-opt-offset":
		d.e.Offset, done = d.string(), true
	case "x-opt-partition-key":
		if done = d.Null(); !done {
			d.e.Key, done = utf8(d.string()), true
		}
	case "x-opt-enqueued-time":
		if d.e.Enqueued, done = d.Timestamp(); !done {
			d.Fail("not a timestamp")
		}
	default:
		if ofIoTHub(d.name) {
			if d.device == nil {
				d.device = map[string]any{}
			}
			d.device[d.name], done = value(d.Value()), true
		}
	}
	return done
}

// value converts a value of the codec to the type that go-amqp has for it, which the rules of
// convert are for. What go-amqp has no type for becomes text.
func value(v any) any {
	switch v := v.(type) {
	case amqp.Symbol:
		return string(v)
	case amqp.UUID:
		return sdk.UUID(v)
	case amqp.Decimal:
		return v.String()
	case amqp.Char:
		return v.String()
	case amqp.List:
		return list(v)
	case amqp.Map:
		return mapping(v)
	case amqp.Array:
		if b, ok := v.Bytes(); ok && len(b) > 0 {
			return octets(b)
		}
		return list(v.Values())
	case amqp.Described:
		return described{value(v.Descriptor), value(v.Value)}
	}
	return v
}

// octets is an array of unsigned bytes, which is no binary.
type octets []byte

// described is a value with a descriptor, as go-amqp has it.
type described struct{ Descriptor, Value any }

func list(in []any) []any {
	out := make([]any, len(in))
	for i, v := range in {
		out[i] = value(v)
	}
	return out
}

// mapping makes a map[string]any if every key is text, as go-amqp does, else a map[any]any.
func mapping(in amqp.Map) any {
	named := make(map[string]any)
	mixed := make(map[any]any)
	for _, p := range in {
		key, v := value(p.Key), value(p.Value)
		if name, ok := key.(string); ok {
			named[name] = v
		}
		switch k := key.(type) {
		case []byte:
			key = string(k)
		case octets, []any, map[string]any, map[any]any, described: // which cannot be keys in Go
			key = string(encodeJSON(k))
		}
		mixed[key] = v
	}
	if len(named) == len(mixed) {
		return named
	}
	return mixed
}

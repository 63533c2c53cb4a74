package emulator

import (
	"bytes"
	"testing"
	"time"

	"github.com/sluice-go/sluice/emulator/internal/eventhubs"
	"github.com/sluice-go/sluice/internal/amqp"
)

// The delivery annotations of a message may be anywhere; an event and a message of Service Bus
// have them in their place. Other sections must be in order.
func TestSectionOrder(t *testing.T) {
	section := func(code byte, value any) []byte { return amqp.AppendValue(amqp.AppendSection(nil, code), value) }
	header := section(amqp.SectionHeader, amqp.List{true})
	delivery := section(amqp.SectionDeliveryAnnotations, amqp.Map{{Key: amqp.Symbol("d"), Value: int32(1)}})
	annotations := section(amqp.SectionMessageAnnotations, amqp.Map{{Key: amqp.Symbol("m"), Value: int32(1)}})
	pair := section(0, int32(1))[3:]
	pair = append(amqp.AppendSymbol(nil, "m"), pair...)
	kept := append(amqp.AppendMapHeader(amqp.AppendSection(nil, amqp.SectionMessageAnnotations), 1, len(pair)), pair...)
	properties := section(amqp.SectionProperties, amqp.List{"id"})
	body := section(amqp.SectionData, []byte("body"))
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	ordered := join(header, delivery, annotations, properties, body)
	for _, message := range [][]byte{
		ordered, join(header, annotations, delivery, properties, body), join(header, annotations, properties, body, delivery),
	} {
		var s splitter
		m, err := s.event(message)
		if want := join(delivery, kept, properties, body); err != nil || !bytes.Equal(m.Payload, want) {
			t.Errorf("an event is kept as %x, %v, want %x", m.Payload, err, want)
		}
		q, err := busMessage(message)
		if err != nil || !bytes.Equal(q.Payload, ordered) {
			t.Errorf("a message is kept as %x, %v, want %x", q.Payload, err, ordered)
		}
	}
	for _, message := range [][]byte{join(body, properties), join(delivery, delivery, body), join(body, delivery, delivery), join(properties, header, body)} {
		var s splitter
		if m, err := s.event(message); err == nil {
			t.Errorf("%x is accepted as %x", message, m.Payload)
		}
	}
}

// A producer may write the descriptor of its delivery annotations in eight bytes. Receivers get
// the sections in order nevertheless.
func TestLongDescriptor(t *testing.T) {
	delivery := amqp.AppendValue(amqp.AppendSection(nil, amqp.SectionDeliveryAnnotations), amqp.Map{{Key: amqp.Symbol("d"), Value: int32(1)}})
	long := append([]byte{0, 0x80, 0, 0, 0, 0, 0, 0, 0, amqp.SectionDeliveryAnnotations}, delivery[3:]...)
	annotations := amqp.AppendValue(amqp.AppendSection(nil, amqp.SectionMessageAnnotations), amqp.Map{{Key: amqp.Symbol("m"), Value: int32(1)}})
	var s splitter
	m, err := s.event(append(long, annotations...))
	if err != nil {
		t.Fatal(err)
	}
	for _, metrics := range [][]byte{nil, appendMetrics(nil, eventhubs.Info{}, time.Now())} {
		sent := appendEvent(nil, &eventhubs.Stored{Payload: m.Payload}, metrics)
		if err := eachSection(sent, func(amqp.Section, []byte) error { return nil }); err != nil {
			t.Errorf("receivers get %x: %v", sent, err)
		}
	}
}

// A message with a damaged section is refused also if its delivery annotations are not in their
// place.
func TestMisplacedBeforeDamagedSection(t *testing.T) {
	properties := amqp.AppendValue(amqp.AppendSection(nil, amqp.SectionProperties), amqp.List{"id"})
	delivery := amqp.AppendValue(amqp.AppendSection(nil, amqp.SectionDeliveryAnnotations), amqp.Map{{Key: amqp.Symbol("d"), Value: int32(1)}})
	message := append(bytes.Join([][]byte{properties, delivery}, nil), 0)
	var s splitter
	if _, err := s.event(message); err == nil {
		t.Error("the event is accepted")
	}
	if _, err := busMessage(message); err == nil {
		t.Error("the message is accepted")
	}
}

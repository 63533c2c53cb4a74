package eventhub

import (
	"fmt"
	"testing"
	textutf8 "unicode/utf8"

	"github.com/sluice-go/sluice/driver"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"github.com/Azure/go-amqp"

	"github.com/sluice-go/sluice/internal/property"
)

// Whatever message a sender makes up, the event that comes of it can be stored
// as a dead letter and is retried as what it was.
func FuzzConvert(f *testing.F) {
	for _, m := range []*amqp.Message{
		{Data: [][]byte{[]byte("body")}, Properties: &amqp.MessageProperties{MessageID: uuid, CorrelationID: []byte{1}},
			ApplicationProperties: map[string]any{"a": "text", "b": uuid, "c": int8(1), "d": 1.5, "e": amqp.Symbol("\xff")}},
		{Value: map[any]any{"a": []any{int32(1), amqp.Symbol("s"), nil}, uint64(1): "x"}},
		{Sequence: [][]any{{"a", []byte{0}}, {true}}},
		{Data: [][]byte{{1}, {}, {2}}, Annotations: amqp.Annotations{"x-opt-partition-key": "k"}},
	} {
		data, err := m.MarshalBinary()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		in := received(data)
		if in == nil {
			return
		}
		var e driver.Event
		convert(&e, in, "0")
		for _, s := range []string{e.Key, e.MessageID, e.CorrelationID, e.ContentType} {
			if !textutf8.ValidString(s) {
				t.Fatalf("%x: %q is no text", data, s)
			}
		}
		stored, err := property.Encode(e.Properties)
		if err != nil {
			t.Fatalf("%x: %v", data, err)
		}
		again, err := property.Decode(stored)
		if err != nil || fmt.Sprintf("%#v", again) != fmt.Sprintf("%#v", e.Properties) && len(e.Properties) > 0 {
			t.Fatalf("%x: %#v became %#v, %v", data, e.Properties, again, err)
		}
	})
}

// received is what the SDK makes of a message, or nil if it is none.
func received(data []byte) *azeventhubs.ReceivedEventData {
	var m amqp.Message
	if !unmarshals(&m, data) {
		return nil
	}
	in := &azeventhubs.ReceivedEventData{RawAMQPMessage: &azeventhubs.AMQPAnnotatedMessage{
		Body: azeventhubs.AMQPAnnotatedMessageBody{Data: m.Data, Value: m.Value, Sequence: m.Sequence},
	}}
	if len(m.Data) == 1 {
		in.Body = m.Data[0]
	}
	in.Properties = m.ApplicationProperties
	if p := m.Properties; p != nil {
		in.ContentType, in.CorrelationID = p.ContentType, p.CorrelationID
		in.RawAMQPMessage.Properties = &azeventhubs.AMQPAnnotatedMessageProperties{MessageID: p.MessageID}
	}
	if key, ok := m.Annotations["x-opt-partition-key"].(string); ok {
		in.PartitionKey = &key
	}
	return in
}

// unmarshals keeps out what the SDK's own decoder can't stand.
func unmarshals(m *amqp.Message, data []byte) (ok bool) {
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	return m.UnmarshalBinary(data) == nil
}

package eventhub

import (
	"math/rand/v2"
	"slices"
	"testing"
	textutf8 "unicode/utf8"

	"github.com/sluice-go/sluice/driver"

	sdk "github.com/Azure/go-amqp"

	"github.com/sluice-go/sluice/internal/amqp"
	"github.com/sluice-go/sluice/internal/property"
)

// messages are the first inputs of the fuzz targets.
func messages(f *testing.F) {
	for _, m := range []*sdk.Message{
		{Data: [][]byte{[]byte("body")}, Properties: &sdk.MessageProperties{MessageID: uuid, CorrelationID: []byte{1}},
			ApplicationProperties: map[string]any{"a": "text", "b": uuid, "c": int8(1), "d": 1.5, "e": sdk.Symbol("\xff")}},
		{Value: map[any]any{"a": []any{int32(1), sdk.Symbol("s"), nil}, uint64(1): "x"}},
		{Sequence: [][]any{{"a", []byte{0}}, {true}}},
		{Data: [][]byte{{1}, {}, {2}}, Annotations: sdk.Annotations{"x-opt-partition-key": "k", "x-opt-offset": "7", "x-opt-sequence-number": int64(7), "iothub-x": "y"}},
	} {
		data, err := m.MarshalBinary()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	w := &wire{Rand: rand.New(rand.NewPCG(3, 4))}
	for i := range 20 {
		w.undecodable = i%2 == 1
		f.Add(w.message())
	}
}

// Whatever message a sender makes up, the event that comes of it can be stored
// as a dead letter and is retried as what it was.
func FuzzConvert(f *testing.F) {
	messages(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		if e, err := fromSDK(data); err == nil {
			checkEvent(t, data, e)
		}
	})
}

// Whatever bytes come as a message, the event can be stored as a dead letter. If the message is
// well formed, the event is that of the SDK.
func FuzzDecodeEvent(f *testing.F) {
	messages(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		var e driver.Event
		_, err := decodeEvent(&e, slices.Clone(data), "3")
		if err == nil {
			checkEvent(t, data, &e)
		}
		want, sdkErr := fromSDK(data)
		switch {
		case sdkErr != nil || !wellFormed(data):
		case err != nil:
			t.Fatalf("%x: %v, but the SDK decodes it", data, err)
		case !same(&e, want):
			t.Fatalf("%x:\ngot  %#v\nwant %#v", data, e, want)
		}
	})
}

// wellFormed reports whether a message obeys the standard where it matters for the comparison:
// go-amqp does not use the sizes of lists and maps, merges sections that may be there only once,
// and has types of its own for AMQP's composite values. Keys of maps may be NaN, which Go does not
// find again.
func wellFormed(message []byte) bool {
	seen := map[byte]bool{}
	for len(message) > 0 {
		s, rest, err := amqp.NextSection(message)
		if err != nil || seen[s.Code] && s.Code != amqp.SectionData && s.Code != amqp.SectionSequence {
			return false
		}
		seen[s.Code] = true
		message = rest
		r := amqp.NewReader(s.Value)
		if !valid(r.Value()) || r.Err() != nil {
			return false
		}
	}
	return true
}

func valid(v any) bool {
	switch v := v.(type) {
	case amqp.Described:
		code, ok := v.Descriptor.(uint64)
		return !(ok && code <= 0xff) && valid(v.Descriptor) && valid(v.Value)
	case amqp.List:
		return !slices.ContainsFunc(v, func(w any) bool { return !valid(w) })
	case amqp.Array:
		return !slices.ContainsFunc(v.Values(), func(w any) bool { return !valid(w) })
	case amqp.Map:
		for i, p := range v {
			switch key := p.Key.(type) {
			case float32, float64:
				return false
			default:
				if !valid(key) || !valid(p.Value) || slices.ContainsFunc(v[:i], func(q amqp.Pair) bool { return value(q.Key) == value(key) }) {
					return false
				}
			}
		}
	}
	return true
}

// checkEvent checks that the texts of an event are texts, and that the event can be stored as a
// dead letter.
func checkEvent(t *testing.T, message []byte, e *driver.Event) {
	t.Helper()
	for _, s := range []string{e.Key, e.MessageID, e.CorrelationID, e.ContentType} {
		if !textutf8.ValidString(s) {
			t.Fatalf("%x: %q is no text", message, s)
		}
	}
	stored, err := property.Encode(e.Properties)
	if err != nil {
		t.Fatalf("%x: %v", message, err)
	}
	again, err := property.Decode(stored)
	if err != nil || len(e.Properties) > 0 && !same(&driver.Event{Properties: again}, &driver.Event{Properties: e.Properties}) {
		t.Fatalf("%x: %#v became %#v, %v", message, e.Properties, again, err)
	}
}

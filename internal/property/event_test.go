package property

import (
	"reflect"
	"testing"
	"time"

	"github.com/sluice-go/sluice/driver"
)

func TestEventRoundTrip(t *testing.T) {
	created := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	for _, e := range []driver.Event{
		{Body: []byte{}},
		{Body: []byte("x"), Properties: map[string]any{"a": int8(1), "": "no name"}},
		{},
		{Body: []byte{}, EmptyKey: true},
		{Body: []byte{0, 0x53}, Undecodable: "properties: map of an odd number of elements"},
		{Body: []byte{}, Key: "\x00"},
		{Body: []byte{}, Key: "\xff", Created: created, Properties: map[string]any{"sluice-event": "a", "sluice-event-": true}},
		{Body: []byte{}, Headers: []driver.Header{{Name: "a", Value: []byte("1")}, {Name: "a"}, {Name: "\xff", Value: []byte{}}, {}}},
	} {
		data, err := EncodeEvent(&e)
		if err != nil {
			t.Fatal(err)
		}
		got := driver.Event{Body: append([]byte{}, e.Body...), Key: e.Key}
		if e.Key == "\x00" || e.Key == "\xff" {
			got.Key = "\uFFFD" // as a store keeps it
		}
		if err := DecodeEvent(data, &got); err != nil {
			t.Fatalf("%s: %v", data, err)
		}
		if !reflect.DeepEqual(got, e) {
			t.Errorf("%s\ngot  %#v\nwant %#v", data, got, e)
		}
	}
}

// What only AMQP's events have is stored as before.
func TestEventOfProperties(t *testing.T) {
	properties := map[string]any{"a": int32(1)}
	want, _ := Encode(properties)
	got, err := EncodeEvent(&driver.Event{Body: []byte("x"), Key: "key", Properties: properties})
	if err != nil || string(got) != string(want) {
		t.Errorf("encoded as %s, %v, want %s", got, err, want)
	}
	if got, err := EncodeEvent(&driver.Event{Body: []byte("x")}); got != nil || err != nil {
		t.Errorf("an event without properties is encoded as %s, %v", got, err)
	}
}

func TestEventRefuses(t *testing.T) {
	if _, err := EncodeEvent(&driver.Event{Properties: map[string]any{"x": struct{}{}}}); err == nil {
		t.Error("a struct was encoded")
	}
	for _, bad := range []string{`[`, `{"a":1}`, `{"a":{"event":"x"}}`, `{"a":{"event":{"headers":1}}}`, `{"a":{"event":{}},"b":{"event":{}}}`} {
		if err := DecodeEvent([]byte(bad), &driver.Event{}); err == nil {
			t.Errorf("%s was decoded", bad)
		}
	}
}

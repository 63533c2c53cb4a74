package eventhub

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
	_ "unsafe" // for the linkname

	"github.com/sluice-go/sluice/driver"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	sdk "github.com/Azure/go-amqp"
)

// newReceivedEventData is what the SDK makes of a message that go-amqp has decoded. It is not
// exported, and a copy of it would prove less.
//
//go:linkname newReceivedEventData github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2.newReceivedEventData
func newReceivedEventData(*sdk.Message) (*azeventhubs.ReceivedEventData, error)

// fromSDK is what the SDK and convert make of a message. go-amqp panics on some keys of maps.
func fromSDK(payload []byte) (e *driver.Event, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	var m sdk.Message
	if err := m.UnmarshalBinary(payload); err != nil {
		return nil, err
	}
	in, err := newReceivedEventData(&m)
	if err != nil {
		return nil, err
	}
	e = new(driver.Event)
	convert(e, in, "3")
	return e, nil
}

// same reports whether two events are equal in every field. NaN is NaN.
func same(a, b *driver.Event) bool {
	return reflect.DeepEqual(a, b) || fmt.Sprintf("%#v", a) == fmt.Sprintf("%#v", b)
}

// TestDecodeAtRandom compares events field by field with those of the SDK. Of the types that
// go-amqp does not decode, the event can be stored as a dead letter and is retried as what it was.
// The variable SLUICE_DECODED sets the number of events.
func TestDecodeAtRandom(t *testing.T) {
	events := 50_000
	if text := os.Getenv("SLUICE_DECODED"); text != "" {
		var err error
		if events, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	w := &wire{Rand: rand.New(rand.NewPCG(1, 2))}
	compared, beyond := 0, 0
	for i := range events {
		w.undecodable = i%10 == 9
		payload := w.message()
		want, sdkErr := fromSDK(payload)
		var got driver.Event
		sequence, err := decodeEvent(&got, payload, "3")
		if err != nil {
			t.Fatalf("event %d, %x: %v", i, payload, err)
		}
		if sequence != got.Sequence {
			t.Fatalf("event %d, %x: %d returned, the event is %d", i, payload, sequence, got.Sequence)
		}
		switch {
		case sdkErr == nil:
			compared++
			if !same(&got, want) {
				t.Fatalf("event %d, %x:\ngot  %#v\nwant %#v", i, payload, got, want)
			}
		case w.undecodable:
			beyond++
			checkEvent(t, payload, &got)
		default:
			t.Fatalf("event %d, %x: go-amqp does not decode it: %v", i, payload, sdkErr)
		}
	}
	t.Logf("%d events compared with the SDK's, %d that it does not decode", compared, beyond)
}

// framed is a section whose value is a list or map of 32 bits, and its elements.
func framed(section, code byte, elements ...string) string {
	content := strings.Join(elements, "")
	return octet(0x00, 0x53, section, code) + uint32be(len(content)+4) + uint32be(len(elements)) + content
}

func str(s string) string { return octet(0xa1, byte(len(s))) + s }

// TestDecodeEveryType has each type of AMQP in each position where an event has values of any type.
func TestDecodeEveryType(t *testing.T) {
	const text64, time64 = "\x00\x00\x01\x31\x17\xfc\x43\xc8", "2011-07-11T06:57:13.672Z"
	at := time.Date(2011, 7, 11, 6, 57, 13, 672e6, time.UTC)
	for _, c := range []struct {
		name, wire  string
		property    any    // as a property, and as an annotation of IoT Hub
		body        string // as the value of the body
		id          string // as a message or correlation id
		undecodable bool   // go-amqp does not decode it
	}{
		{"null", "\x40", nil, "", "", false},
		{"true", "\x41", true, "true", "true", false},
		{"false", "\x42", false, "false", "false", false},
		{"boolean", "\x56\x01", true, "true", "true", false},
		{"ubyte", "\x50\xff", uint8(255), "255", "255", false},
		{"ushort", "\x60\xff\xfe", uint16(65534), "65534", "65534", false},
		{"uint0", "\x43", uint32(0), "0", "0", false},
		{"smalluint", "\x52\x07", uint32(7), "7", "7", false},
		{"uint", "\x70\xff\xff\xff\xff", uint32(math.MaxUint32), "4294967295", "4294967295", false},
		{"ulong0", "\x44", uint64(0), "0", "0", false},
		{"smallulong", "\x53\x07", uint64(7), "7", "7", false},
		{"ulong", "\x80\xff\xff\xff\xff\xff\xff\xff\xff", uint64(math.MaxUint64), "18446744073709551615", "18446744073709551615", false},
		{"byte", "\x51\xff", int8(-1), "-1", "-1", false},
		{"short", "\x61\xff\xfe", int16(-2), "-2", "-2", false},
		{"smallint", "\x54\xfd", int32(-3), "-3", "-3", false},
		{"int", "\x71\xff\xff\xff\xfc", int32(-4), "-4", "-4", false},
		{"smalllong", "\x55\xfb", int64(-5), "-5", "-5", false},
		{"long", "\x81\x80\x00\x00\x00\x00\x00\x00\x00", int64(math.MinInt64), "-9223372036854775808", "-9223372036854775808", false},
		{"float", "\x72\x3f\xc0\x00\x00", float32(1.5), "1.5", "1.5", false},
		{"double", "\x82\x3f\xf8\x00\x00\x00\x00\x00\x00", 1.5, "1.5", "1.5", false},
		{"infinity", "\x82\x7f\xf0\x00\x00\x00\x00\x00\x00", math.Inf(1), "+Inf", "+Inf", false},
		{"timestamp", "\x83" + text64, at, `"` + time64 + `"`, at.String(), false},
		{"far timestamp", "\x83\x7f\xff\xff\xff\xff\xff\xff\xff", int64(math.MaxInt64), "9223372036854775807", "9223372036854775807", false},
		{"uuid", "\x98\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f", uuidText, `"` + uuidText + `"`, uuidText, false},
		{"vbin8", "\xa0\x02\x00\xff", []byte{0, 255}, "\x00\xff", "00ff", false},
		{"vbin32", "\xb0\x00\x00\x00\x02\x00\xff", []byte{0, 255}, "\x00\xff", "00ff", false},
		{"empty binary", "\xa0\x00", []byte{}, "", "", false},
		{"str8", "\xa1\x02hi", "hi", "hi", "hi", false},
		{"str32", "\xb1\x00\x00\x00\x02hi", "hi", "hi", "hi", false},
		{"not UTF-8", "\xa1\x03a\xffb", "a\uFFFDb", "a\xffb", "a\uFFFDb", false},
		{"sym8", "\xa3\x02hi", "hi", "hi", "hi", false},
		{"sym32", "\xb3\x00\x00\x00\x02hi", "hi", "hi", "hi", false},
		{"list0", "\x45", "[]", "[]", "[]", false},
		{"list8", "\xc0\x04\x02\x54\x01\x41", "[1,true]", "[1,true]", "[1,true]", false},
		{"list32", "\xd0\x00\x00\x00\x05\x00\x00\x00\x01\x41", "[true]", "[true]", "[true]", false},
		{"map8", "\xc1\x05\x02\xa1\x01a\x41", `{"a":true}`, `{"a":true}`, `{"a":true}`, false},
		{"map of other keys", "\xc1\x08\x04\x54\x01\x41\xa1\x01a\x42", `{"1":true,"a":false}`, `{"1":true,"a":false}`, `{"1":true,"a":false}`, false},
		{"array of ints", "\xe0\x04\x02\x54\x01\x02", "[1,2]", "[1,2]", "[1,2]", false},
		{"array of ubytes", "\xe0\x04\x02\x50\x01\x02", `"AQI="`, `"AQI="`, `"AQI="`, false},
		{"array without elements", "\xe0\x02\x00\x50", "[]", "[]", "[]", false},
		{"array of timestamps", "\xe0\x0a\x01\x83" + text64, `["` + time64 + `"]`, `["` + time64 + `"]`, `["` + time64 + `"]`, false},
		{"Uri of .NET", "\x00\xa3\x11com.microsoft:uri\xa1\x03a:b", driver.URI("a:b"),
			`{"Descriptor":"com.microsoft:uri","Value":"a:b"}`, "a:b", false},
		{"DateTimeOffset of .NET", "\x00\xa3\x1dcom.microsoft:datetime-offset\x81\x08\xdc\x0b\x2f\x9d\xd8\x9e\x40",
			driver.DateTimeOffset(638397546319355456), `{"Descriptor":"com.microsoft:datetime-offset","Value":638397546319355456}`, "2024-01-02T01:10:31.9355456Z", false},
		{"TimeSpan of .NET", "\x00\xa3\x16com.microsoft:timespan\x55\x0a", driver.TimeSpan(10),
			`{"Descriptor":"com.microsoft:timespan","Value":10}`, "00:00:00.000001", false},
		{"time outside of .NET's range", "\x00\xa3\x1dcom.microsoft:datetime-offset\x55\xff", `{"Descriptor":"com.microsoft:datetime-offset","Value":-1}`,
			`{"Descriptor":"com.microsoft:datetime-offset","Value":-1}`, `{"Descriptor":"com.microsoft:datetime-offset","Value":-1}`, false},
		{"described", "\x00\xa3\x01x\xa1\x03a:b", `{"Descriptor":"x","Value":"a:b"}`,
			`{"Descriptor":"x","Value":"a:b"}`, `{"Descriptor":"x","Value":"a:b"}`, false},
		{"char", "\x73\x00\x01\xf6\x00", "😀", `😀`, "😀", true},
		{"decimal32", "\x74\x31\x80\x04\xe2", "12.50", "12.50", "12.50", true},
		{"decimal64", "\x84\xb1\xc0\x00\x00\x07\x5b\xcd\x15", "-123456789", "-123456789", "-123456789", true},
		{"decimal128", "\x94\x30\x3c" + strings.Repeat("\x00", 12) + "\x04\xe2", "12.50", "12.50", "12.50", true},
		{"map with a binary key", "\xc1\x05\x02\xa0\x01a\x41", `{"a":true}`, `{"a":true}`, `{"a":true}`, true},
		{"map with a list as key", "\xc1\x06\x02\xc0\x02\x01\x41\x41", `{"[true]":true}`, `{"[true]":true}`, `{"[true]":true}`, true},
		{"array of lists", "\xe0\x05\x01\xc0\x02\x01\x41", "[[true]]", "[[true]]", "[[true]]", true},
		{"array of decimals", "\xe0\x06\x01\x74\x31\x80\x04\xe2", `["12.50"]`, `["12.50"]`, `["12.50"]`, true},
	} {
		want := driver.Event{Partition: "3", Sequence: 7, MessageID: c.id, CorrelationID: c.id, Body: []byte(c.body),
			Properties: map[string]any{"p": c.property, "iothub-x": c.property}}
		if c.name == "null" {
			want.Body = nil
		}
		message := framed(0x72, 0xd1, str("x-opt-sequence-number"), "\x55\x07", str("iothub-x"), c.wire) +
			framed(0x73, 0xd0, c.wire, "\x40", "\x40", "\x40", "\x40", c.wire) +
			framed(0x74, 0xd1, str("p"), c.wire) + "\x00\x53\x77" + c.wire
		var got driver.Event
		if _, err := decodeEvent(&got, []byte(message), "3"); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v\ngot  %#v\nwant %#v", c.name, err, got, want)
		}
		bySDK, err := fromSDK([]byte(message))
		switch {
		case (err != nil) != c.undecodable:
			t.Errorf("%s: the SDK says %v", c.name, err)
		case err == nil && !reflect.DeepEqual(*bySDK, want):
			t.Errorf("%s:\nSDK  %#v\nwant %#v", c.name, *bySDK, want)
		}
		// Names of properties, which go-amqp decodes if they are text.
		if c.name == "null" {
			continue
		}
		var named driver.Event
		message = framed(0x74, 0xd1, c.wire, "\x41")
		if _, err := decodeEvent(&named, []byte(message), "3"); err != nil || len(named.Properties) != 1 || named.Properties[c.id] != true {
			t.Errorf("%s as a name: %#v, %v", c.name, named.Properties, err)
		}
	}
}

// An error names the part of the message that is wrong.
func TestDecodeErrors(t *testing.T) {
	deep := strings.Repeat("\x00\x53\x01", 101) + "\x40"
	body := "\x00\x53\x75\xa0\x01x"
	for _, c := range []struct{ name, message, want string }{
		{"no message", "hello", `the message: expected a described value`},
		{"cut off", "\x00\x53\x75\xa0\x05x", `the message: value of 5 bytes ends after 1`},
		{"unknown section", "\x00\x53\x10\x45", `the message: descriptor 0x10 is not a section of a message`},
		{"data of another type", "\x00\x53\x75\xa1\x01x", `the message: a data section that is not binary`},
		{"sequence of another type", "\x00\x53\x76\xa1\x01x", `the message: a sequence section that is not a list`},
		{"header", "\x00\x53\x70\xff", `the message: unknown format code 0xff`},
		{"properties of another type", "\x00\x53\x73\x41" + body, `properties: format code 0x41 in place of a list`},
		{"content type", framed(0x73, 0xd0, "\x40", "\x40", "\x40", "\x40", "\x40", "\x40", "\x41"), `properties, "content-type": a value of another type in place of text`},
		{"message id", framed(0x73, 0xd0, deep), `properties, "message-id": values nested deeper than 100`},
		{"a property", framed(0x74, 0xd1, str("price"), "\x41", str("size"), "\xff") + body, `application-properties, "size": unknown format code 0xff`},
		{"a property that reaches into the body", framed(0x74, 0xd1, str("price"), "\xa1\x03a") + body, `application-properties, "price": value of 3 bytes ends after 1`},
		{"application properties that are a list", "\x00\x53\x74\x45" + body, `application-properties: format code 0x45 in place of a map`},
		{"sequence number", framed(0x72, 0xd1, str("x-opt-sequence-number"), str("7")), `message-annotations, "x-opt-sequence-number": not a signed integer`},
		{"offset", framed(0x72, 0xd1, str("x-opt-offset"), "\x41"), `message-annotations, "x-opt-offset": a value of another type in place of text`},
		{"partition key", framed(0x72, 0xd1, str("x-opt-partition-key"), "\x41"), `message-annotations, "x-opt-partition-key": a value of another type in place of text`},
		{"enqueued time", framed(0x72, 0xd1, str("x-opt-enqueued-time"), "\x55\x07"), `message-annotations, "x-opt-enqueued-time": not a timestamp`},
		{"value", "\x00\x53\x77" + deep, `the message: values nested deeper than 100`},
	} {
		var e driver.Event
		_, err := decodeEvent(&e, []byte(c.message), "3")
		if err == nil || err.Error() != c.want {
			t.Errorf("%s: got %v, want %s", c.name, err, c.want)
		}
	}
}

// The body is where the message is, and nothing else of the event is: who changes the body in place
// changes no text.
func TestDecodedBodyIsNotCopied(t *testing.T) {
	payload := typical(t)
	var e, again driver.Event
	if _, err := decodeEvent(&e, payload, "3"); err != nil {
		t.Fatal(err)
	}
	if _, err := decodeEvent(&again, bytes.Clone(payload), "3"); err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(payload, e.Body)
	if at < 0 || &payload[at] != &e.Body[0] || cap(e.Body) != len(e.Body) {
		t.Fatalf("the body is at %d of the message, with room for %d more bytes", at, cap(e.Body)-len(e.Body))
	}
	clear(payload[:at])
	if !reflect.DeepEqual(e, again) {
		t.Errorf("got  %#v\nwant %#v", e, again)
	}
}

// What a message claims to contain takes no memory before it is there.
func TestDecodeMemory(t *testing.T) {
	message := framed(0x74, 0xd1, str("p"), claims(90))
	var before, after runtime.MemStats
	took := uint64(math.MaxUint64) // the least: the process counts, and other goroutines allocate too
	for range 5 {
		runtime.ReadMemStats(&before)
		_, err := decodeEvent(new(driver.Event), []byte(message), "3")
		runtime.ReadMemStats(&after)
		if took = min(took, (after.TotalAlloc-before.TotalAlloc)/uint64(len(message))); err == nil {
			t.Fatal("no error")
		}
	}
	if took > 300 {
		t.Errorf("%d bytes for each byte of the message", took)
	}
}

// claims is a list in a list and so on, each of which claims to have as many elements as bytes.
func claims(depth int) (s string) {
	s = strings.Repeat("\x40", 1<<16)
	for range depth {
		s = octet(0xd0) + uint32be(len(s)+4) + uint32be(len(s)) + s
	}
	return s
}

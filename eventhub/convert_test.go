package eventhub

import (
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/sluice-go/sluice/driver"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"github.com/Azure/go-amqp"

	"github.com/sluice-go/sluice/internal/property"
)

var uuid = amqp.UUID{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}

const uuidText = "00010203-0405-0607-0809-0a0b0c0d0e0f"

func TestConvert(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.FixedZone("", 3600))
	in := &azeventhubs.ReceivedEventData{
		EventData: azeventhubs.EventData{
			Body: []byte("body"), ContentType: to.Ptr("application/json"), CorrelationID: uint64(7),
			Properties: map[string]any{"a": "text", "b": uuid},
		},
		EnqueuedTime: &at, PartitionKey: to.Ptr("key"), Offset: "4096", SequenceNumber: 42,
		RawAMQPMessage: &azeventhubs.AMQPAnnotatedMessage{Properties: &azeventhubs.AMQPAnnotatedMessageProperties{MessageID: uuid}},
	}
	want := driver.Event{
		Partition: "3", Sequence: 42, Offset: "4096", Enqueued: at.UTC(), Key: "key", MessageID: uuidText, CorrelationID: "7",
		ContentType: "application/json", Properties: map[string]any{"a": "text", "b": uuidText}, Body: []byte("body"),
	}
	var got driver.Event
	convert(&got, in, "3")
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	var bare driver.Event
	convert(&bare, &azeventhubs.ReceivedEventData{SequenceNumber: 1}, "3")
	if !reflect.DeepEqual(bare, driver.Event{Partition: "3", Sequence: 1}) {
		t.Errorf("of nothing came %+v", bare)
	}
}

// TestContentEncoding: AMQP's property is one of the event, unless the sender has set one of its
// own.
func TestContentEncoding(t *testing.T) {
	for _, c := range []struct {
		own  map[string]any
		amqp *string
		want map[string]any
	}{
		{nil, nil, nil},
		{nil, to.Ptr(""), nil},
		{nil, to.Ptr("gzip"), map[string]any{"content-encoding": "gzip"}},
		{map[string]any{"a": "b"}, to.Ptr("gzip"), map[string]any{"a": "b", "content-encoding": "gzip"}},
		{map[string]any{"content-encoding": "zstd"}, to.Ptr("gzip"), map[string]any{"content-encoding": "zstd"}},
	} {
		var e driver.Event
		in := &azeventhubs.ReceivedEventData{EventData: azeventhubs.EventData{Properties: c.own},
			RawAMQPMessage: &azeventhubs.AMQPAnnotatedMessage{Properties: &azeventhubs.AMQPAnnotatedMessageProperties{ContentEncoding: c.amqp}}}
		convert(&e, in, "3")
		if !reflect.DeepEqual(e.Properties, c.want) {
			t.Errorf("%v: got %v", c, e.Properties)
		}
	}
}

func TestIdentifier(t *testing.T) {
	for _, c := range []struct {
		in   any
		want string
	}{
		{"text", "text"}, {"\xff", "\uFFFD"}, {uint64(math.MaxUint64), "18446744073709551615"}, {uuid, uuidText}, {[]byte{0, 255}, "00ff"}, {int32(-1), "-1"},
	} {
		if got := identifier(c.in); got != c.want {
			t.Errorf("%#v: got %q, want %q", c.in, got, c.want)
		}
	}
}

func TestBody(t *testing.T) {
	deep := any("bottom")
	for range 1000 {
		deep = []any{deep}
	}
	for _, c := range []struct {
		in   azeventhubs.AMQPAnnotatedMessageBody
		want string
	}{
		{azeventhubs.AMQPAnnotatedMessageBody{}, ""},
		{azeventhubs.AMQPAnnotatedMessageBody{Data: [][]byte{[]byte("a"), nil, []byte("b")}}, "ab"},
		{azeventhubs.AMQPAnnotatedMessageBody{Value: amqp.Null{}}, ""},
		{azeventhubs.AMQPAnnotatedMessageBody{Value: "text"}, "text"},
		{azeventhubs.AMQPAnnotatedMessageBody{Value: []byte{1, 2}}, "\x01\x02"},
		{azeventhubs.AMQPAnnotatedMessageBody{Value: int64(7)}, "7"},
		{azeventhubs.AMQPAnnotatedMessageBody{Value: math.NaN()}, "NaN"},
		{azeventhubs.AMQPAnnotatedMessageBody{Value: uuid}, `"` + uuidText + `"`},
		{azeventhubs.AMQPAnnotatedMessageBody{Value: map[string]any{"a": []any{true, nil}}}, `{"a":[true,null]}`},
		{azeventhubs.AMQPAnnotatedMessageBody{Value: map[any]any{int32(1): map[any]any{"x": uuid}}}, `{"1":{"x":"` + uuidText + `"}}`},
		{azeventhubs.AMQPAnnotatedMessageBody{Sequence: [][]any{{int32(1), "a"}, {}, {nil}}}, `[1,"a",null]`},
	} {
		if got := body(c.in.Data, c.in.Sequence, c.in.Value); string(got) != c.want {
			t.Errorf("%+v: got %q, want %q", c.in, got, c.want)
		}
	}
	if got := body(nil, nil, deep); len(got) == 0 || len(got) > 500 {
		t.Errorf("of nested lists came %d bytes", len(got))
	}
}

// Whatever a sender makes a property of, a dead letter can be stored with it,
// and read again as what it was.
func TestPropertiesCanBeStored(t *testing.T) {
	in := map[string]any{
		"nil": nil, "null": amqp.Null{}, "bool": true, "string": "x", "bad": "a\xffb", "i8": int8(-1), "i16": int16(-1), "i32": int32(-1), "i64": int64(-1),
		"u8": uint8(1), "u16": uint16(1), "u32": uint32(1), "u64": uint64(math.MaxUint64), "f32": float32(0.1), "f64": math.Inf(-1), "bytes": []byte{1},
		"time": time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC), "far": time.UnixMilli(math.MaxInt64 / 2), "past": time.UnixMilli(math.MinInt64 / 2),
		"uuid": uuid, "symbol": amqp.Symbol("s"), "list": []any{int32(1)}, "map": map[string]any{"a": uuid}, "array": []int32{1, 2}, "odd": struct{ A int }{1},
		"name\xff": "x", "two\xfe": "first", "two\xff": "second", "there\xff": 1, "there\uFFFD": "stays",
	}
	out := properties(in)
	data, err := property.Encode(out)
	if err != nil {
		t.Fatal(err)
	}
	again, err := property.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(out, again) {
		t.Errorf("stored %#v\nread   %#v", out, again)
	}
	for name, want := range map[string]any{
		"null": nil, "bad": "a\uFFFDb", "u64": uint64(math.MaxUint64), "f32": float32(0.1), "uuid": uuidText, "symbol": "s",
		"list": "[1]", "map": `{"a":"` + uuidText + `"}`, "array": "[1,2]", "far": int64(math.MaxInt64 / 2),
		"name\uFFFD": "x", "two\uFFFD": "first", "there\uFFFD": "stays",
	} {
		if !reflect.DeepEqual(out[name], want) {
			t.Errorf("%s: got %#v, want %#v", name, out[name], want)
		}
	}
}

package eventhub

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	textutf8 "unicode/utf8"

	"github.com/sluice-go/sluice/driver"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"github.com/Azure/go-amqp"
)

// convert fills e from an event of the SDK. It keeps the SDK's memory, to which
// there is no other reference.
func convert(e *driver.Event, in *azeventhubs.ReceivedEventData, partition string) {
	e.Partition = partition
	e.Sequence = in.SequenceNumber
	e.Offset = in.Offset
	if in.EnqueuedTime != nil {
		e.Enqueued = in.EnqueuedTime.UTC()
	}
	if in.PartitionKey != nil {
		e.Key = utf8(*in.PartitionKey)
	}
	if in.ContentType != nil {
		e.ContentType = utf8(*in.ContentType)
	}
	if in.CorrelationID != nil {
		e.CorrelationID = identifier(in.CorrelationID)
	}
	e.Body = in.Body
	if raw := in.RawAMQPMessage; raw != nil {
		if raw.Properties != nil && raw.Properties.MessageID != nil {
			e.MessageID = identifier(raw.Properties.MessageID)
		}
		if in.Body == nil { // which the SDK fills from a single data section only
			e.Body = body(raw.Body.Data, raw.Body.Sequence, raw.Body.Value)
		}
	}
	if len(in.Properties) > 0 {
		e.Properties = properties(in.Properties)
	}
	e.Properties = withDevice(e.Properties, in.SystemProperties)
	if raw := in.RawAMQPMessage; raw != nil && raw.Properties != nil && raw.Properties.ContentEncoding != nil {
		e.Properties = withEncoding(e.Properties, *raw.Properties.ContentEncoding)
	}
}

// withEncoding adds AMQP's own content-encoding to the properties, unless the sender has set a
// property of that name: a dead letter keeps it there, so that a redrive decodes the body as the
// first attempt did.
func withEncoding(properties map[string]any, encoding string) map[string]any {
	const name = "content-encoding"
	if _, set := properties[name]; set || encoding == "" {
		return properties
	}
	if properties == nil {
		properties = map[string]any{}
	}
	properties[name] = utf8(encoding)
	return properties
}

// withDevice adds what IoT Hub states about the sender of an event, in annotations such as
// iothub-connection-device-id, to the event's properties, under the same names. Of an event
// of IoT Hub, properties of such names come from annotations alone: a device sets its own
// properties, and must not pass for another one.
func withDevice(properties, annotations map[string]any) map[string]any {
	found := false
	for name := range annotations {
		found = found || ofIoTHub(name)
	}
	if !found {
		return properties
	}
	maps.DeleteFunc(properties, func(name string, _ any) bool { return ofIoTHub(name) })
	if properties == nil {
		properties = map[string]any{}
	}
	for _, name := range slices.Sorted(maps.Keys(annotations)) {
		if ofIoTHub(name) {
			properties[utf8(name)] = storable(annotations[name])
		}
	}
	return properties
}

// ofIoTHub reports whether an annotation is one of IoT Hub (iothub-) or of its digital twins
// (dt-).
func ofIoTHub(name string) bool {
	name = strings.ToLower(name)
	return strings.HasPrefix(name, "iothub-") || strings.HasPrefix(name, "dt-")
}

// identifier formats a message or correlation id. In AMQP it may be a string, an
// unsigned long, a UUID or binary (part 3, section 3.2.11); binary becomes hex.
func identifier(v any) string {
	switch v := v.(type) {
	case string:
		return utf8(v)
	case uint64:
		return strconv.FormatUint(v, 10)
	case amqp.UUID:
		return v.String()
	case []byte:
		return hex.EncodeToString(v)
	}
	return utf8(fmt.Sprint(storable(v)))
}

// body returns the bytes of a body that is not a single data section: several
// sections one after the other, the bytes of a string or binary value, and JSON of
// any other value or sequence.
func body(data [][]byte, sequence [][]any, value any) []byte {
	if len(data) > 0 {
		return slices.Concat(data...)
	}
	if len(sequence) > 0 {
		all := []any{}
		for _, section := range sequence {
			all = append(all, section...)
		}
		value = all
	}
	switch v := value.(type) {
	case nil, amqp.Null:
		return nil
	case []byte:
		return v
	case string:
		return []byte(v)
	}
	return encodeJSON(value)
}

// properties converts values to types, and names to UTF-8, that a dead letter can
// be stored with.
func properties(in map[string]any) map[string]any {
	var broken []string
	for name, v := range in {
		if utf8(name) != name {
			broken = append(broken, name)
		}
		if s, ok := v.(string); ok && utf8(s) == s {
			continue
		}
		in[name] = storable(v)
	}
	slices.Sort(broken) // if two become the same name, the same one always stays
	for _, name := range broken {
		if _, there := in[utf8(name)]; !there {
			in[utf8(name)] = in[name]
		}
		delete(in, name)
	}
	return in
}

func storable(v any) any {
	switch v := v.(type) {
	case nil, bool, int8, int16, int32, int64, int, uint8, uint16, uint32, uint64, uint, float32, float64, []byte:
		return v
	case string:
		return utf8(v)
	case time.Time:
		// AMQP's milliseconds have a wider range than RFC 3339's years.
		if y := v.UTC().Year(); y < 0 || y > 9999 {
			return v.UnixMilli()
		}
		return v.UTC()
	case amqp.UUID:
		return v.String()
	case amqp.Symbol:
		return utf8(string(v))
	case amqp.Null:
		return nil
	}
	if own, ok := dotNet(v); ok {
		return own
	}
	return string(encodeJSON(v)) // a list or a map, which AMQP forbids here (part 3, section 3.2.5)
}

// dotNet returns a value that .NET's clients send with a descriptor.
func dotNet(v any) (own any, ok bool) {
	r := reflect.ValueOf(v)
	if !isDescribed(r) {
		return nil, false
	}
	value := r.Field(1).Interface()
	if text, is := value.(string); is {
		value = utf8(text)
	}
	return driver.Described(fmt.Sprint(r.Field(0).Interface()), value)
}

// isDescribed reports whether a value is a described one, of go-amqp or of our own decoder.
func isDescribed(r reflect.Value) bool {
	return r.Kind() == reflect.Struct && r.NumField() == 2 && r.Type().Field(0).Name == "Descriptor"
}

// encodeJSON encodes a value as JSON. A value that JSON does not have becomes text.
func encodeJSON(v any) []byte {
	v = jsonValue(v, 0)
	data, err := json.Marshal(v)
	if err != nil {
		return []byte(utf8(fmt.Sprint(v)))
	}
	return data
}

// jsonValue converts a value to types that JSON has. Values nested more than 100
// deep, which no sender intends, become null.
func jsonValue(v any, depth int) any {
	if depth > 100 {
		return nil
	}
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, w := range v {
			out[k] = jsonValue(w, depth+1)
		}
		return out
	case map[any]any:
		out := make(map[string]any, len(v))
		for _, k := range slices.SortedFunc(maps.Keys(v), compareTypes) { // if 1 and "1" are keys, the same one always stays
			name, ok := k.(string)
			if !ok {
				name = fmt.Sprint(storable(k))
			}
			out[name] = jsonValue(v[k], depth+1)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, w := range v {
			out[i] = jsonValue(w, depth+1)
		}
		return out
	case []byte:
		if len(v) == 0 {
			return "" // in an array go-amqp makes it nil, which JSON has as null
		}
		return v
	case string, amqp.UUID, amqp.Symbol, amqp.Null, time.Time:
		return storable(v)
	}
	switch r := reflect.ValueOf(v); {
	case r.Kind() == reflect.Slice && (r.Len() == 0 || r.Type().Elem().Kind() != reflect.Uint8): // an array
		out := make([]any, r.Len())
		for i := range out {
			out[i] = jsonValue(r.Index(i).Interface(), depth+1)
		}
		return out
	case isDescribed(r):
		return map[string]any{"Descriptor": jsonValue(r.Field(0).Interface(), depth+1), "Value": jsonValue(r.Field(1).Interface(), depth+1)}
	}
	return v
}

func compareTypes(a, b any) int { return strings.Compare(fmt.Sprintf("%T", a), fmt.Sprintf("%T", b)) }

// utf8 replaces bytes that are not UTF-8.
func utf8(s string) string {
	if textutf8.ValidString(s) { // which is faster
		return s
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

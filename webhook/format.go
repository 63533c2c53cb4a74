package webhook

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/jsonscan"
)

// maxDepth is how deep a body may nest that is sent as JSON. System.Text.Json reads 64 levels
// by default, and the array and the event around a body take two.
const maxDepth = 60

// contentType returns the media type of requests.
func (f Format) contentType() string {
	switch f {
	case JSON:
		return "application/json"
	case JSONLines:
		return "application/x-ndjson"
	}
	return "application/cloudevents-batch+json"
}

// encoder encodes the events of one origin.
type encoder struct {
	format Format
	typ    string // the default type of CloudEvents
	prefix []byte // of each event: what is the same for all
}

func newEncoder(cfg *Config, of *origin) *encoder {
	b := []byte(`{`)
	if cfg.Format == CloudEvents {
		b = append(b, `"specversion":"1.0",`...)
	}
	b = appendString(append(b, `"source":`...), of.source())
	if cfg.Format != CloudEvents {
		b = appendString(append(b, `,"topic":`...), of.topic)
		b = appendString(append(b, `,"incarnation":`...), of.incarnation)
		b = appendString(append(b, `,"partition":`...), of.partition)
	}
	return &encoder{cfg.Format, cfg.Type, b}
}

// batch appends the messages to b, at least one and otherwise as many as have room in limit
// bytes, and returns how many that are.
func (c *encoder) batch(b []byte, messages []*Message, limit int) ([]byte, int) {
	if c.format != JSONLines {
		b = append(b, '[')
	}
	for i, m := range messages {
		begin := len(b)
		if i > 0 && c.format != JSONLines {
			b = append(b, ',')
		}
		if b = c.message(b, m); i > 0 && len(b)+1 > limit {
			return c.end(b[:begin]), i
		}
	}
	return c.end(b), len(messages)
}

func (c *encoder) end(b []byte) []byte {
	if c.format == JSONLines {
		return b
	}
	return append(b, ']')
}

// message appends one message.
func (c *encoder) message(b []byte, m *Message) []byte {
	b = append(b, c.prefix...)
	b = append(strconv.AppendInt(append(b, `,"id":"`...), m.Event.Sequence, 10), '"')
	b = strconv.AppendInt(append(b, `,"attempt":`...), int64(m.attempts+1), 10)
	b = appendText(b, "traceparent", m.TraceParent)
	b = appendText(b, "tracestate", m.TraceState)
	if c.format == CloudEvents {
		return c.cloudEvent(b, m)
	}
	return c.object(b, m.Event)
}

// cloudEvent appends the rest of a CloudEvent (the JSON format of version 1.0.2). Names of
// extensions have only letters and digits.
func (c *encoder) cloudEvent(b []byte, m *Message) []byte {
	e, typ := m.Event, m.Type
	if typ == "" {
		typ = c.typ
	}
	b = appendString(append(b, `,"type":`...), typ)
	b = appendTime(b, "time", e.Enqueued)
	b = appendKey(b, "partitionkey", "partitionkeybase64", e)
	b = appendText(b, "messageid", e.MessageID)
	b = appendText(b, "correlationid", e.CorrelationID)
	if len(e.Properties) > 0 {
		// As a text: an extension can't be an object.
		b = appendString(append(b, `,"properties":`...), string(appendProperties(nil, e.Properties)))
	}
	if value, ok := asJSON(e); ok {
		b = appendText(b, "datacontenttype", jsonType(e.ContentType))
		return append(append(append(b, `,"data":`...), value...), '}')
	}
	b = appendText(b, "datacontenttype", e.ContentType)
	if e.Body == nil {
		return append(b, '}') // a CloudEvent without data
	}
	return append(appendBase64(append(b, `,"data_base64":`...), e.Body), '}')
}

// object appends the rest of an object of the formats JSON and JSONLines.
func (c *encoder) object(b []byte, e *driver.Event) []byte {
	b = strconv.AppendInt(append(b, `,"sequence":`...), e.Sequence, 10)
	b = appendTime(b, "enqueued", e.Enqueued)
	b = appendTime(b, "created", e.Created)
	b = appendKey(b, "key", "key_base64", e)
	b = appendText(b, "message_id", e.MessageID)
	b = appendText(b, "correlation_id", e.CorrelationID)
	b = appendText(b, "content_type", e.ContentType)
	if len(e.Properties) > 0 {
		b = appendProperties(append(b, `,"properties":`...), e.Properties)
	}
	value, ok := asJSON(e)
	switch {
	case e.Body == nil:
		b = append(b, `,"data":null`...)
	case !ok:
		b = appendBase64(append(b, `,"data_base64":`...), e.Body)
	default:
		b = append(b, `,"data":`...)
		begin := len(b)
		if b = append(b, value...); c.format == JSONLines {
			toOneLine(b[begin:])
		}
	}
	b = append(b, '}')
	if c.format == JSONLines {
		b = append(b, '\n')
	}
	return b
}

// toOneLine replaces the line breaks of valid JSON, where they are white space only.
func toOneLine(value []byte) {
	for i, c := range value {
		if c == '\n' || c == '\r' {
			value[i] = ' '
		}
	}
}

// asJSON returns an event's body if it is JSON, and its sender has not said that it is
// something else.
func asJSON(e *driver.Event) ([]byte, bool) {
	if jsonType(e.ContentType) == "" {
		return nil, false
	}
	s := jsonscan.New(e.Body, maxDepth)
	value, err := s.Value()
	if err != nil || s.End() != nil {
		return nil, false
	}
	return value, true
}

// jsonType returns the media type of a JSON body, "" if a content type is not one of JSON.
func jsonType(contentType string) string {
	if contentType == "" {
		return "application/json"
	}
	media, _, _ := strings.Cut(contentType, ";")
	media = strings.ToLower(strings.TrimSpace(media))
	if media == "application/json" || media == "text/json" || strings.HasSuffix(media, "+json") {
		return contentType
	}
	return ""
}

func appendKey(b []byte, name, binary string, e *driver.Event) []byte {
	switch {
	case e.EmptyKey:
		return append(append(append(b, `,"`...), name...), `":""`...)
	case utf8.ValidString(e.Key):
		return appendText(b, name, e.Key)
	}
	return appendBase64(append(append(append(b, `,"`...), binary...), `":`...), []byte(e.Key))
}

// appendText appends a member, unless its text is empty.
func appendText(b []byte, name, text string) []byte {
	if text == "" {
		return b
	}
	return appendString(append(append(append(b, `,"`...), name...), `":`...), text)
}

// appendTime appends a member, unless its time is zero.
func appendTime(b []byte, name string, at time.Time) []byte {
	if at.IsZero() {
		return b
	}
	b = append(append(append(b, `,"`...), name...), `":"`...)
	return append(at.UTC().AppendFormat(b, time.RFC3339Nano), '"')
}

func appendBase64(b, data []byte) []byte {
	return append(base64.StdEncoding.AppendEncode(append(b, '"'), data), '"')
}

// appendString appends a text as JSON.
func appendString(b []byte, text string) []byte {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c >= 0x7f || c == '"' || c == '\\' {
			quoted, _ := json.Marshal(text) // a string is always valid
			return append(b, quoted...)
		}
	}
	return append(append(append(b, '"'), text...), '"')
}

// appendProperties appends an event's application properties as an object, sorted by name.
// Bytes become base64, and times RFC 3339.
func appendProperties(b []byte, properties map[string]any) []byte {
	b = append(b, '{')
	for i, name := range slices.Sorted(maps.Keys(properties)) {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendString(b, name), ':')
		value := properties[name]
		if text, ok := value.(string); ok {
			b = appendString(b, text)
			continue
		}
		encoded, err := json.Marshal(value)
		if err != nil { // such as an infinite number: JSON has none
			encoded, _ = json.Marshal(fmt.Sprint(value))
		}
		b = append(b, encoded...)
	}
	return append(b, '}')
}

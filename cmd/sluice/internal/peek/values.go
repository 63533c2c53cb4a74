package peek

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/property"
)

// entry is a property of an event, or a header.
type entry struct {
	name  string
	value any
}

// properties returns an event's properties sorted by name; of a log with headers each of these.
func properties(e *driver.Event) (list []entry) {
	for _, h := range e.Headers {
		var value any
		if h.Value != nil {
			value = h.Value
		}
		if decoded, ok := property.DecodeAMQP(h.Value); ok && !sentAs(e.Properties[h.Name], h.Value) {
			value = decoded
		}
		list = append(list, entry{h.Name, value})
	}
	if e.Headers == nil {
		for name, value := range e.Properties {
			list = append(list, entry{name, value})
		}
	}
	slices.SortStableFunc(list, func(a, b entry) int { return cmp.Compare(a.name, b.name) })
	return list
}

// sentAs reports whether a property is what was sent, as text or bytes.
func sentAs(value any, sent []byte) bool {
	switch v := value.(type) {
	case string:
		return v == string(sent)
	case []byte:
		return true
	}
	return value == nil
}

// encoded is a value of bytes that are no text, in JSON.
type encoded struct {
	Base64 string `json:"base64"`
}

// plain returns a value as JSON has it.
func plain(value any) any {
	switch v := value.(type) {
	case []byte:
		if utf8.Valid(v) {
			return string(v)
		}
		return encoded{base64.StdEncoding.EncodeToString(v)}
	case string:
		if !utf8.ValidString(v) {
			return encoded{base64.StdEncoding.EncodeToString([]byte(v))}
		}
		return v
	case float32:
		return plain(float64(v))
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Sprint(v)
		}
		return v
	case time.Time:
		return v.UTC()
	case nil, bool, int, int8, int16, int32, int64, uint, uint8, uint16, uint32, uint64:
		return v
	}
	return fmt.Sprint(value)
}

// readable returns a value for a terminal.
func readable(value any) string {
	switch v := value.(type) {
	case nil:
		return "null"
	case []byte:
		if !utf8.Valid(v) {
			return fmt.Sprintf("% x", v)
		}
		return string(v)
	case string:
		return readable([]byte(v))
	case time.Time:
		return v.UTC().Format(time.RFC3339Nano)
	}
	return fmt.Sprint(value)
}

// line is an event as a line of JSON.
type line struct {
	Partition     string         `json:"partition"`
	Sequence      int64          `json:"sequence"`
	Offset        string         `json:"offset,omitempty"`
	Enqueued      *time.Time     `json:"enqueued,omitempty"`
	Key           any            `json:"key,omitempty"`
	MessageID     string         `json:"message_id,omitempty"`
	CorrelationID string         `json:"correlation_id,omitempty"`
	ContentType   string         `json:"content_type,omitempty"`
	Properties    map[string]any `json:"properties,omitempty"`
	Headers       []header       `json:"headers,omitempty"`
	// One of the next three.
	Body   json.RawMessage `json:"body,omitempty"` // null where the log has no body
	Text   *string         `json:"body_text,omitempty"`
	Base64 *string         `json:"body_base64,omitempty"`
	Error  string          `json:"decode_error,omitempty"` // the body is as it was sent then
}

// header is one header, of a name that an event has more than once.
type header struct {
	Name  string `json:"name"`
	Value any    `json:"value"`
}

// describe returns an event as a line of JSON.
func describe(s Seen) *line {
	e, body := s.Event, s.Event.Body
	l := &line{Partition: e.Partition, Sequence: e.Sequence, Offset: e.Offset, Enqueued: moment(e.Enqueued),
		MessageID: e.MessageID, CorrelationID: e.CorrelationID, ContentType: e.ContentType}
	if e.Key != "" || e.EmptyKey {
		l.Key = plain(e.Key)
	}
	if s.Err != nil {
		l.Error = s.Err.Error()
	} else if s.Decoded != nil {
		body = s.Decoded.Body
	}
	list := properties(e)
	for _, p := range list {
		if l.Properties == nil {
			l.Properties = map[string]any{}
		}
		l.Properties[p.name] = plain(p.value)
	}
	if len(list) > len(l.Properties) {
		for _, h := range e.Headers {
			var value any
			if h.Value != nil {
				value = plain(h.Value)
			}
			l.Headers = append(l.Headers, header{h.Name, value})
		}
	}
	switch kindOf(body) {
	case noBody:
		l.Body = json.RawMessage("null")
	case jsonBody:
		l.Body = body
	case emptyBody, textBody:
		text := string(body)
		l.Text = &text
	case binaryBody:
		text := base64.StdEncoding.EncodeToString(body)
		l.Base64 = &text
	}
	return l
}

// moment is a time in UTC, nil for the zero time and for one that JSON does not have.
func moment(t time.Time) *time.Time {
	if t = t.UTC(); t.IsZero() || t.Year() > 9999 || t.Year() < 0 {
		return nil
	}
	return &t
}

package kafka

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
	"unsafe"

	"github.com/sluice-go/sluice/driver"
)

// converter makes events of records.
type converter struct {
	partition string
	values    HeaderValues // of headers; empty: bytes
	shared    bool         // events may share the memory of the records
	left      int          // bytes of the batch that were not copied yet
	slab      []byte
	events    []driver.Event
	names     map[string]string // of headers, so that each is stored once
}

const (
	slabSize  = 64 << 10
	eventSize = int(unsafe.Sizeof(driver.Event{}))
	maxNames  = 1000
)

// begin prepares for the records of a batch. If shared, their memory is the events'. Else what they
// keep is copied into slabs: an event that is held for long keeps its slab in memory.
func (c *converter) begin(bytes int, shared bool) {
	c.shared, c.left, c.slab, c.events = shared, bytes, nil, nil
}

// event returns the event of a record, without its offset. The count is how many records of the
// batch are left, with this one.
func (c *converter) event(r *record, appendTime bool, count int) (*driver.Event, bool) {
	if len(c.events) == 0 {
		c.events = make([]driver.Event, min(slabSize/eventSize, count))
	}
	e := &c.events[0]
	c.events = c.events[1:]
	e.Partition, e.Sequence = c.partition, r.number
	if r.timestamp >= 0 {
		e.Enqueued = time.UnixMilli(r.timestamp).UTC()
		if !appendTime {
			e.Created = e.Enqueued
		}
	}
	e.Key, e.EmptyKey = c.text(r.key), r.key != nil && len(r.key) == 0
	e.Body = c.copy(r.value)
	return e, c.headers(e, r)
}

// copy returns bytes that stay as they are, nil if they are.
func (c *converter) copy(b []byte) []byte {
	switch {
	case b == nil || c.shared:
		return b
	case len(b) == 0:
		return []byte{}
	case len(b) >= slabSize/2:
		c.left -= len(b)
		return append([]byte(nil), b...)
	case len(b) > cap(c.slab)-len(c.slab):
		c.slab = make([]byte, 0, max(len(b), min(slabSize, c.left)))
	}
	c.left -= len(b)
	at := len(c.slab)
	c.slab = append(c.slab, b...)
	return c.slab[at:len(c.slab):len(c.slab)]
}

// text returns bytes as a string. Nothing writes to the memory that it shares.
func (c *converter) text(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	b = c.copy(b)
	return unsafe.String(unsafe.SliceData(b), len(b))
}

// headers sets an event's headers and what follows from them. It returns false if they do not fit
// the record.
func (c *converter) headers(e *driver.Event, r *record) bool {
	if r.headersCount == 0 {
		return true
	}
	// Each takes two bytes at least.
	if r.headersCount > len(r.headers)/2 {
		return false
	}
	e.Headers = make([]driver.Header, r.headersCount)
	data := r.headers
	for i := range e.Headers {
		name, value, rest, ok := header(data)
		if !ok {
			return false
		}
		data = rest
		e.Headers[i] = driver.Header{Name: c.name(name), Value: c.copy(value)}
	}
	e.Properties = c.properties(e.Headers)
	e.MessageID = fieldText(e.Properties, HeaderMessageID)
	e.CorrelationID = fieldText(e.Properties, HeaderCorrelationID)
	e.ContentType = fieldText(e.Properties, HeaderContentType)
	return true
}

// fieldText returns a property as the text of a field of the event; empty if it is missing or null.
func fieldText(properties map[string]any, name string) string {
	switch v := properties[name].(type) {
	case nil:
		return ""
	case string:
		return v
	case []byte:
		return validText(string(v))
	default:
		return fmt.Sprint(v)
	}
}

// header returns the header that data begins with.
func header(data []byte) (name, value, rest []byte, ok bool) {
	if name, rest, ok = bytesOf(data); !ok || name == nil {
		return nil, nil, nil, false
	}
	value, rest, ok = bytesOf(rest)
	return name, value, rest, ok
}

// plainProperty returns a header's value as that of a property: nil if it is null, a string if it
// is text, else bytes.
func plainProperty(value []byte) any {
	switch {
	case value == nil:
		return nil
	case utf8.Valid(value):
		return string(value)
	}
	return value
}

// validText replaces what is not UTF-8.
func validText(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }

// name returns a header's name, the same string for the same name.
func (c *converter) name(b []byte) string {
	if name, known := c.names[string(b)]; known {
		return name
	}
	name := string(b)
	if c.names == nil {
		c.names = map[string]string{}
	}
	if len(c.names) < maxNames && len(name) <= 1000 {
		c.names[name] = name
	}
	return name
}

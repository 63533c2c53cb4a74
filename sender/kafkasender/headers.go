package kafkasender

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kbin"

	"github.com/sluice-go/sluice/kafka"
	"github.com/sluice-go/sluice/sender"
)

// headers is the encoded headers of a message. Its memory is used again for the next message.
type headers struct {
	encoded []byte
	count   int
	names   []string // of the properties
	text    []byte   // of a value
}

// set encodes the headers of a message.
func (h *headers) set(m *sender.Message) error {
	h.encoded, h.count = h.encoded[:0], 0
	for i := range m.Headers {
		name, value := m.Headers[i].Name, m.Headers[i].Value
		switch _, property := m.Properties[name]; {
		case property, replacedBy(m, name) != "":
		case value == nil:
			h.addNull(name)
		default:
			appendHeader(h, name, value)
		}
	}
	for _, name := range [...]string{kafka.HeaderMessageID, kafka.HeaderCorrelationID, kafka.HeaderContentType} {
		if value := replacedBy(m, name); value != "" {
			appendHeader(h, name, value)
		}
	}
	h.names = h.names[:0]
	for name := range m.Properties {
		if replacedBy(m, name) == "" {
			h.names = append(h.names, name)
		}
	}
	slices.Sort(h.names)
	for _, name := range h.names {
		if err := h.addProperty(name, m.Properties[name]); err != nil {
			return err
		}
	}
	return nil
}

// replacedBy returns the field of the message that has a header of this name; empty: none.
func replacedBy(m *sender.Message, name string) string {
	switch name {
	case kafka.HeaderMessageID:
		return m.MessageID
	case kafka.HeaderCorrelationID:
		return m.CorrelationID
	case kafka.HeaderContentType:
		return m.ContentType
	}
	return ""
}

func (h *headers) addNull(name string) {
	h.encoded = kbin.AppendVarint(kbin.AppendVarintString(h.encoded, name), -1)
	h.count++
}

func appendHeader[T string | []byte](h *headers, name string, value T) {
	h.encoded = kbin.AppendVarintString(h.encoded, name)
	h.encoded = append(kbin.AppendVarint(h.encoded, int32(len(value))), value...)
	h.count++
}

func (h *headers) addProperty(name string, value any) error {
	text := h.text[:0]
	switch v := value.(type) {
	case nil:
		h.addNull(name)
		return nil
	case string:
		appendHeader(h, name, v)
		return nil
	case []byte:
		if v == nil {
			v = []byte{}
		}
		appendHeader(h, name, v)
		return nil
	case bool:
		text = strconv.AppendBool(text, v)
	case int:
		text = strconv.AppendInt(text, int64(v), 10)
	case int8:
		text = strconv.AppendInt(text, int64(v), 10)
	case int16:
		text = strconv.AppendInt(text, int64(v), 10)
	case int32:
		text = strconv.AppendInt(text, int64(v), 10)
	case int64:
		text = strconv.AppendInt(text, v, 10)
	case uint:
		text = strconv.AppendUint(text, uint64(v), 10)
	case uint8:
		text = strconv.AppendUint(text, uint64(v), 10)
	case uint16:
		text = strconv.AppendUint(text, uint64(v), 10)
	case uint32:
		text = strconv.AppendUint(text, uint64(v), 10)
	case uint64:
		text = strconv.AppendUint(text, v, 10)
	case float32:
		text = strconv.AppendFloat(text, float64(v), 'g', -1, 32)
	case float64:
		text = strconv.AppendFloat(text, v, 'g', -1, 64)
	case time.Time:
		text = v.AppendFormat(text, time.RFC3339Nano)
	case fmt.Stringer:
		text = append(text, v.String()...)
	default:
		return fmt.Errorf("property %.50q is a %T, which no header can hold: make it a string", name, value)
	}
	appendHeader(h, name, text)
	h.text = text
	return nil
}

package property

import (
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/amqp"
)

// DecodeAMQP returns the property that data is the AMQP encoding of: one value of a simple type, or
// of a type of .NET, and nothing after it. It is false for other bytes, also for lists, maps and
// arrays, which are no properties in AMQP.
func DecodeAMQP(data []byte) (value any, ok bool) {
	if !wholeValue(data) {
		return nil, false
	}
	r := amqp.NewReader(data)
	v := r.Value()
	if r.Err() != nil || r.More() {
		return nil, false
	}
	return ofAMQP(v)
}

// wholeValue reports whether the first byte of data is the constructor of a value with as many
// bytes. Most bytes that are no AMQP value end here.
func wholeValue(data []byte) bool {
	if len(data) == 0 {
		return false
	}
	code, n := data[0], len(data)
	switch code >> 4 {
	case 0x0:
		return code == 0 && n > 2
	case 0x4:
		return n == 1
	case 0x5:
		return n == 2 && (code != 0x56 || data[1] <= 1) // a boolean
	case 0x6:
		return n == 3
	case 0x7:
		return n == 5
	case 0x8:
		return n == 9
	case 0x9:
		return n == 17
	case 0xa:
		return n >= 2 && n == 2+int(data[1])
	case 0xb:
		return n >= 5 && uint64(n) == 5+uint64(binary.BigEndian.Uint32(data[1:]))
	}
	return false
}

// ofAMQP returns a decoded value as that of a property, as the driver of Event Hubs has it.
func ofAMQP(v any) (value any, ok bool) {
	switch v := v.(type) {
	case nil, bool, int8, int16, int32, int64, uint8, uint16, uint32, uint64, float32, float64, []byte:
		return v, true
	case string:
		return text(v), true
	case amqp.Symbol:
		return text(string(v)), true
	case time.Time:
		if y := v.Year(); y < 0 || y > 9999 { // which RFC 3339 does not have
			return v.UnixMilli(), true
		}
		return v, true
	case amqp.UUID:
		return fmt.Sprintf("%x-%x-%x-%x-%x", v[:4], v[4:6], v[6:8], v[8:10], v[10:]), true
	case amqp.Decimal:
		return v.String(), true
	case amqp.Char:
		return v.String(), true
	case amqp.Described:
		descriptor, _ := v.Descriptor.(amqp.Symbol)
		inner := v.Value
		if s, is := inner.(string); is {
			inner = text(s)
		}
		return driver.Described(string(descriptor), inner)
	}
	return nil, false
}

// text replaces what is not UTF-8.
func text(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

package amqp

import (
	"encoding/binary"
	"time"
)

// The Go types of decoded AMQP values are nil, bool, uint8 … uint64, int8 … int64, float32,
// float64, []byte, string and [time.Time] for a timestamp (millisecond precision), and the types
// below for the rest.
type (
	// Symbol is an ASCII name from a constrained domain.
	Symbol string
	// Char is one Unicode code point.
	Char rune
	// UUID is an RFC 4122 identifier.
	UUID [16]byte
	// Decimal is an IEEE 754-2008 decimal number of 4, 8 or 16 bytes, kept in its encoding,
	// without constructor.
	Decimal string
	// List is a sequence of values of any type.
	List []any
	// Array is a sequence of values of one type, kept in its encoding: well-formed, with
	// constructor.
	Array string
	// Map is a list of pairs in wire order. It isn't a Go map because AMQP keys may be of any
	// type, including unhashable ones.
	Map []Pair
	// Pair is an entry of a [Map].
	Pair struct{ Key, Value any }
	// Described is a value with a descriptor, which gives its meaning (section 1.2).
	Described struct{ Descriptor, Value any }
)

// UUIDs returns the elements of an array of UUIDs; ok is false for other arrays.
func (a Array) UUIDs() (ids []UUID, ok bool) {
	ok = a.each(func(d *decoder, code byte) bool {
		if code != codeUUID {
			return false
		}
		ids = append(ids, UUID(d.take(16)))
		return true
	})
	return ids, ok
}

// Longs returns the elements of an array of longs; ok is false for other arrays.
func (a Array) Longs() (all []int64, ok bool) {
	ok = a.each(func(d *decoder, code byte) bool {
		switch code {
		case codeLong:
			all = append(all, int64(binary.BigEndian.Uint64(d.take(8))))
		case codeSmallLong:
			all = append(all, int64(int8(d.take(1)[0])))
		default:
			return false
		}
		return true
	})
	return all, ok
}

// each calls f for each element until f returns false; f reads the element from the decoder.
func (a Array) each(f func(d *decoder, code byte) bool) bool {
	d := decoder{buf: []byte(a)}
	code := d.constructor()
	if code != codeArray8 && code != codeArray32 {
		return false
	}
	end, n := d.compound(code)
	for of := d.constructor(); n > 0 && d.err == nil; n-- {
		if !f(&d, of) {
			return false
		}
	}
	d.closeCompound(end)
	return d.err == nil
}

// Get returns the value of the entry whose key is name, as a string or as a symbol, and nil if
// there is none.
func (m Map) Get(name string) any {
	for _, p := range m {
		switch k := p.Key.(type) {
		case string:
			if k == name {
				return p.Value
			}
		case Symbol:
			if string(k) == name {
				return p.Value
			}
		}
	}
	return nil
}

// String returns the entry name as text, whether it is a string or a symbol, and "" if it is
// neither.
func (m Map) String(name string) string {
	switch v := m.Get(name).(type) {
	case string:
		return v
	case Symbol:
		return string(v)
	}
	return ""
}

// Format codes of the primitive types (table in section 1.6).
const (
	codeDescribed  = 0x00
	codeNull       = 0x40
	codeTrue       = 0x41
	codeFalse      = 0x42
	codeUint0      = 0x43
	codeUlong0     = 0x44
	codeList0      = 0x45
	codeUbyte      = 0x50
	codeByte       = 0x51
	codeSmallUint  = 0x52
	codeSmallUlong = 0x53
	codeSmallInt   = 0x54
	codeSmallLong  = 0x55
	codeBool       = 0x56
	codeUshort     = 0x60
	codeShort      = 0x61
	codeUint       = 0x70
	codeInt        = 0x71
	codeFloat      = 0x72
	codeChar       = 0x73
	codeDecimal32  = 0x74
	codeUlong      = 0x80
	codeLong       = 0x81
	codeDouble     = 0x82
	codeTimestamp  = 0x83
	codeDecimal64  = 0x84
	codeDecimal128 = 0x94
	codeUUID       = 0x98
	codeBin8       = 0xa0
	codeStr8       = 0xa1
	codeSym8       = 0xa3
	codeBin32      = 0xb0
	codeStr32      = 0xb1
	codeSym32      = 0xb3
	codeList8      = 0xc0
	codeMap8       = 0xc1
	codeList32     = 0xd0
	codeMap32      = 0xd1
	codeArray8     = 0xe0
	codeArray32    = 0xf0
)

// Descriptor codes of the composite types this package knows. All are in domain 0, so that one
// byte is enough.
const (
	descOpen        = 0x10
	descBegin       = 0x11
	descAttach      = 0x12
	descFlow        = 0x13
	descTransfer    = 0x14
	descDisposition = 0x15
	descDetach      = 0x16
	descEnd         = 0x17
	descClose       = 0x18
	descError       = 0x1d
	descAccepted    = 0x24
	descRejected    = 0x25
	descReleased    = 0x26
	descModified    = 0x27
	descSource      = 0x28
	descTarget      = 0x29
	descCoordinator = 0x30 // a target, too (section 4.5.1)
	descMechanisms  = 0x40
	descInit        = 0x41
	descOutcome     = 0x44
)

// Descriptor codes of the sections of a message (section 3.2).
const (
	SectionHeader                = 0x70
	SectionDeliveryAnnotations   = 0x71
	SectionMessageAnnotations    = 0x72
	SectionProperties            = 0x73
	SectionApplicationProperties = 0x74
	SectionData                  = 0x75
	SectionSequence              = 0x76
	SectionValue                 = 0x77
	SectionFooter                = 0x78
)

// sectionNames are the symbolic descriptors of the sections, which a sender may use instead of the
// codes.
var sectionNames = map[string]byte{
	"amqp:header:list":                SectionHeader,
	"amqp:delivery-annotations:map":   SectionDeliveryAnnotations,
	"amqp:message-annotations:map":    SectionMessageAnnotations,
	"amqp:properties:list":            SectionProperties,
	"amqp:application-properties:map": SectionApplicationProperties,
	"amqp:data:binary":                SectionData,
	"amqp:amqp-sequence:list":         SectionSequence,
	"amqp:amqp-value:*":               SectionValue,
	"amqp:footer:map":                 SectionFooter,
}

func timeOf(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

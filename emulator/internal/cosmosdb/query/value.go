package query

import (
	"bytes"
	"cmp"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/sluice-go/sluice/internal/jsonscan"
)

// Value is a value in a query. The zero value is undefined, as a property that doesn't
// exist.
type Value struct {
	kind   kind
	truth  bool
	number float64
	text   string
	raw    []byte // of arrays and objects, in JSON
}

// kind is a type of value. ORDER BY sorts values of different types in this order.
type kind byte

const (
	kindUndefined kind = iota
	kindNull
	kindBool
	kindNumber
	kindString
	kindArray
	kindObject
)

// valueOf returns the value of valid JSON.
func valueOf(raw []byte) Value {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		return Value{}
	}
	switch raw[0] {
	case '"':
		return Value{kind: kindString, text: string(jsonscan.Unquote(raw))}
	case 't', 'f':
		return Value{kind: kindBool, truth: raw[0] == 't'}
	case 'n':
		return Value{kind: kindNull}
	case '[':
		return Value{kind: kindArray, raw: raw}
	case '{':
		return Value{kind: kindObject, raw: raw}
	}
	f, _ := strconv.ParseFloat(string(raw), 64) // a number that is too large becomes infinite
	return Value{kind: kindNumber, number: f, raw: raw}
}

// appendJSON appends the value, unless it is undefined.
func (v Value) appendJSON(dst []byte) []byte {
	switch v.kind {
	case kindUndefined:
		return dst
	case kindNull:
		return append(dst, "null"...)
	case kindBool:
		return strconv.AppendBool(dst, v.truth)
	case kindNumber:
		if v.raw != nil {
			return append(dst, v.raw...) // as written in the document
		}
		return appendNumber(dst, v.number)
	case kindString:
		return appendQuoted(dst, v.text)
	default:
		return append(dst, v.raw...)
	}
}

// Size is how many bytes the value takes in memory, beside itself.
func (v Value) Size() int { return len(v.text) + len(v.raw) }

// compare orders values of the same type. Arrays and objects are equal if their JSON
// text is equal.
func (v Value) compare(o Value) int {
	switch v.kind {
	case kindBool:
		return boolInt(v.truth) - boolInt(o.truth)
	case kindNumber:
		return cmp.Compare(v.number, o.number)
	case kindString:
		return strings.Compare(v.text, o.text)
	default:
		return bytes.Compare(v.raw, o.raw)
	}
}

// order orders values of any types.
func (v Value) order(o Value) int {
	if c := cmp.Compare(v.kind, o.kind); c != 0 {
		return c
	}
	return v.compare(o)
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (v Value) isTrue() bool { return v.kind == kindBool && v.truth }

func boolean(b bool) Value { return Value{kind: kindBool, truth: b} }

// appendNumber appends a number in JSON: integers without an exponent, as long as they
// are exact.
func appendNumber(dst []byte, f float64) []byte {
	if f == float64(int64(f)) && f < 1<<53 && f > -1<<53 {
		return strconv.AppendInt(dst, int64(f), 10)
	}
	return strconv.AppendFloat(dst, f, 'g', -1, 64)
}

// appendQuoted appends a JSON string.
func appendQuoted(dst []byte, s string) []byte {
	text, _ := json.Marshal(s) // strings can always be written
	return append(dst, text...)
}

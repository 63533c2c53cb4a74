package partitionkey

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
)

// Value is one component of a partition key. The zero value is [Undefined].
type Value struct {
	kind   kind
	text   string
	number float64
}

// kind is the byte before a component in the hashed data.
type kind byte

const (
	undefinedKind kind = 0x00
	nullKind      kind = 0x01
	falseKind     kind = 0x02
	trueKind      kind = 0x03
	numberKind    kind = 0x05
	textKind      kind = 0x08
)

// Undefined is the key of a document without the property; clients write it as {}. Null
// is the JSON null, which is a different key.
var (
	Undefined = Value{}
	Null      = Value{kind: nullKind}
)

// String returns the key of a string.
func String(s string) Value { return Value{kind: textKind, text: s} }

// Number returns the key of a number. -0 is 0, because clients write both as 0 in JSON.
func Number(f float64) Value {
	if f == 0 { // -0 too
		f = 0
	}
	return Value{kind: numberKind, number: f}
}

// Bool returns the key of a boolean.
func Bool(b bool) Value {
	if b {
		return Value{kind: trueKind}
	}
	return Value{kind: falseKind}
}

// maxComponents is the maximum number of components of a hierarchical key.
const maxComponents = 3

// ErrMalformed means that a text is not a partition key: a JSON array of up to three
// strings, numbers, booleans, nulls and empty objects.
var ErrMalformed = errors.New("not a partition key, a JSON array of strings, numbers, booleans, nulls and {}")

// Parse parses a partition key as in the header x-ms-documentdb-partitionkey and in the
// operations of a batch: ["a", 1, null, {}]. An empty array is a key without
// components. The only error is [ErrMalformed].
func Parse(data []byte) ([]Value, error) {
	var raw []json.RawMessage
	if err := json.Unmarshal(data, &raw); err != nil || raw == nil || len(raw) > maxComponents {
		return nil, ErrMalformed
	}
	values := make([]Value, len(raw))
	for i, r := range raw {
		v, err := ParseValue(r)
		if err != nil {
			return nil, err
		}
		values[i] = v
	}
	return values, nil
}

// ParseValue parses one component in JSON. It returns [ErrMalformed] for arrays and for
// objects other than {}.
func ParseValue(data []byte) (Value, error) {
	data = bytes.TrimSpace(data)
	if len(data) == 0 {
		return Value{}, ErrMalformed
	}
	switch data[0] {
	case '"':
		if s, ok := plainText(data); ok {
			return String(s), nil
		}
		var s string
		if json.Unmarshal(data, &s) != nil {
			return Value{}, ErrMalformed
		}
		return String(s), nil
	case '{':
		if data[len(data)-1] == '}' && len(bytes.TrimSpace(data[1:len(data)-1])) == 0 && len(data) > 1 {
			return Undefined, nil
		}
		return Value{}, ErrMalformed
	}
	switch string(data) {
	case "null":
		return Null, nil
	case "true":
		return Bool(true), nil
	case "false":
		return Bool(false), nil
	}
	f, err := strconv.ParseFloat(string(data), 64)
	if err != nil || math.IsInf(f, 0) || math.IsNaN(f) || !json.Valid(data) {
		return Value{}, ErrMalformed
	}
	return Number(f), nil
}

// plainText returns the text of a string in ASCII without escapes, the usual case.
func plainText(data []byte) (string, bool) {
	if len(data) < 2 || data[len(data)-1] != '"' {
		return "", false
	}
	data = data[1 : len(data)-1]
	for _, c := range data {
		if c < ' ' || c >= 0x7f || c == '"' || c == '\\' {
			return "", false
		}
	}
	return string(data), true
}

// AppendJSON appends the key in the form that [Parse] reads.
func AppendJSON(dst []byte, values []Value) []byte {
	dst = append(dst, '[')
	for i, v := range values {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = v.AppendJSON(dst)
	}
	return append(dst, ']')
}

// AppendJSON appends the component in JSON, undefined as {}. Equal numbers have the
// same text.
func (v Value) AppendJSON(dst []byte) []byte {
	switch v.kind {
	case nullKind:
		return append(dst, "null"...)
	case falseKind:
		return append(dst, "false"...)
	case trueKind:
		return append(dst, "true"...)
	case numberKind:
		return strconv.AppendFloat(dst, v.number, 'g', -1, 64)
	case textKind:
		return appendString(dst, v.text)
	default:
		return append(dst, "{}"...)
	}
}

// appendString appends a string in ASCII, because keys are sent in headers.
func appendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			dst = append(dst, '\\', byte(r))
		case r >= ' ' && r < 0x7f:
			dst = append(dst, byte(r))
		case r < 0x10000:
			dst = appendUnit(dst, uint16(r))
		default:
			r -= 0x10000
			dst = appendUnit(appendUnit(dst, 0xd800|uint16(r>>10)), 0xdc00|uint16(r&0x3ff))
		}
	}
	return append(dst, '"')
}

func appendUnit(dst []byte, u uint16) []byte { return fmt.Appendf(dst, `\u%04x`, u) }

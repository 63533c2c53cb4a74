package epk

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
)

// A Value is one component of a partition key. The zero value is [Undefined].
type Value struct {
	kind   kind
	text   string
	number float64
}

// kind is the byte that stands before a component in what is hashed.
type kind byte

const (
	undefined kind = 0x00
	null      kind = 0x01
	no        kind = 0x02
	yes       kind = 0x03
	number    kind = 0x05
	text      kind = 0x08
)

// Undefined is the key of a document that lacks the property; clients write it as {}. Null is the JSON null, a key of its own.
var (
	Undefined = Value{}
	Null      = Value{kind: null}
)

// String is a string's key.
func String(s string) Value { return Value{kind: text, text: s} }

// Number is a number's key. -0 is 0, as clients write both in JSON.
func Number(f float64) Value {
	if f == 0 { // -0 too
		f = 0
	}
	return Value{kind: number, number: f}
}

// Bool is a boolean's key.
func Bool(b bool) Value {
	if b {
		return Value{kind: yes}
	}
	return Value{kind: no}
}

// maxComponents is the depth of Cosmos' hierarchical keys.
const maxComponents = 3

// ErrMalformed says that a text is not a partition key: a JSON array of up to three strings, numbers, booleans, nulls and empty objects.
var ErrMalformed = errors.New("not a partition key, a JSON array of strings, numbers, booleans, nulls and {}")

// Parse reads a partition key as the header x-ms-documentdb-partitionkey and the operations of a batch carry it: ["a", 1, null, {}]. An empty
// array is a key without components. Of an error the text is [ErrMalformed]'s.
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

// ParseValue reads one component from JSON. Objects other than {} and arrays are no keys.
func ParseValue(data []byte) (Value, error) {
	data = bytes.TrimSpace(data)
	if len(data) == 0 {
		return Value{}, ErrMalformed
	}
	switch data[0] {
	case '"':
		if s, ok := plain(data); ok {
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

// plain is the common string: ASCII, without escapes.
func plain(data []byte) (string, bool) {
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

// AppendJSON appends the key as [Parse] reads it.
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

// AppendJSON appends the component, undefined as {}. Numbers are in a form that two equal ones share.
func (v Value) AppendJSON(dst []byte) []byte {
	switch v.kind {
	case null:
		return append(dst, "null"...)
	case no:
		return append(dst, "false"...)
	case yes:
		return append(dst, "true"...)
	case number:
		return strconv.AppendFloat(dst, v.number, 'g', -1, 64)
	case text:
		return appendString(dst, v.text)
	default:
		return append(dst, "{}"...)
	}
}

// appendString writes ASCII only: keys travel in headers.
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

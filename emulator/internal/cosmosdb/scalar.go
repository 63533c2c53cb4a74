package cosmosdb

import (
	"bytes"
	"cmp"
	"strconv"
	"strings"

	"github.com/sluice-go/sluice/internal/jsonscan"
)

// scalar is a value in a query. The zero value is undefined, which a property that isn't there is.
type scalar struct {
	kind   kind
	truth  bool
	number float64
	text   string
	raw    []byte // of arrays and objects, in JSON
}

// kind is in the order in which ORDER BY sorts values of different types.
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

// scalarOf reads a value from valid JSON.
func scalarOf(raw []byte) scalar {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		return scalar{}
	}
	switch raw[0] {
	case '"':
		return scalar{kind: kindString, text: string(jsonscan.Unquote(raw))}
	case 't', 'f':
		return scalar{kind: kindBool, truth: raw[0] == 't'}
	case 'n':
		return scalar{kind: kindNull}
	case '[':
		return scalar{kind: kindArray, raw: raw}
	case '{':
		return scalar{kind: kindObject, raw: raw}
	}
	f, _ := strconv.ParseFloat(string(raw), 64) // too large a number is infinite, as in the documents' readers
	return scalar{kind: kindNumber, number: f, raw: raw}
}

// appendJSON appends the value, unless it is undefined.
func (v scalar) appendJSON(dst []byte) []byte {
	switch v.kind {
	case kindUndefined:
		return dst
	case kindNull:
		return append(dst, "null"...)
	case kindBool:
		return strconv.AppendBool(dst, v.truth)
	case kindNumber:
		if v.raw != nil {
			return append(dst, v.raw...) // as it was written
		}
		return appendNumber(dst, v.number)
	case kindString:
		return appendQuoted(dst, v.text)
	default:
		return append(dst, v.raw...)
	}
}

// compare orders values of one type. Arrays and objects are equal if they are written alike.
func (v scalar) compare(o scalar) int {
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

// order is compare over all types.
func (v scalar) order(o scalar) int {
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

func (v scalar) isTrue() bool { return v.kind == kindBool && v.truth }

func boolean(b bool) scalar { return scalar{kind: kindBool, truth: b} }

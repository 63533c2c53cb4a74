package pipeline

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"math/big"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// JSON returns the value as JSON: times in UTC as RFC 3339, bytes that are no text as base64, NULL
// and a missing value as null.
func (v *TriedValue) JSON() json.RawMessage {
	switch value := v.Value.(type) {
	case nil:
		return json.RawMessage("null")
	case string:
		switch {
		case v.Type == string(typeJSON) && json.Valid([]byte(value)), v.Type == string(typeNumeric) && isNumber(value):
			return json.RawMessage(value)
		}
		return jsonText(value)
	case []byte:
		if utf8.Valid(value) {
			return jsonText(string(value))
		}
		return jsonText(base64.StdEncoding.EncodeToString(value))
	case time.Time:
		return jsonText(value.UTC().Format(time.RFC3339Nano))
	case float64:
		return strconv.AppendFloat(nil, value, 'g', -1, 64)
	case int64:
		return strconv.AppendInt(nil, value, 10)
	case bool:
		return strconv.AppendBool(nil, value)
	}
	return json.RawMessage("null")
}

// String returns the value for people: texts in double quotes.
func (v *TriedValue) String() string {
	switch {
	case v.Err != nil:
		return "an error: " + v.Err.Error()
	case v.Missing:
		return "no value"
	case v.Value == nil:
		return "NULL"
	}
	if at, ok := v.Value.(time.Time); ok {
		return at.UTC().Format("2006-01-02 15:04:05.999999999Z")
	}
	return shownJSON(v.JSON())
}

// shownJSON returns the JSON of a value for people.
func shownJSON(raw json.RawMessage) string {
	var b bytes.Buffer
	switch {
	case string(raw) == "null":
		return "NULL"
	case json.Compact(&b, raw) == nil:
		return b.String()
	}
	return string(raw)
}

func jsonText(text string) json.RawMessage {
	var b strings.Builder
	lines := json.NewEncoder(&b)
	lines.SetEscapeHTML(false)
	_ = lines.Encode(text) // of a text it cannot fail
	return json.RawMessage(strings.TrimSuffix(b.String(), "\n"))
}

// is reports whether a value is what a test wants. What is wanted is read as the column's type
// reads an event's value; a time without an offset is in UTC. null is also a value that is missing.
// JSON is compared by isJSON; bytes are wanted as text or as base64.
func (v *TriedValue) is(want json.RawMessage) bool {
	if v.Err != nil {
		return false
	}
	if string(want) == "null" || v.Value == nil {
		return string(want) == "null" && v.Value == nil
	}
	if v.Type == string(typeJSON) || want[0] == '{' || want[0] == '[' {
		return v.isJSON(want)
	}
	content := textOfJSON(want)
	if b, ok := v.Value.([]byte); ok {
		return string(b) == content || base64.StdEncoding.EncodeToString(b) == content
	}
	if content == v.Value {
		return true
	}
	typ := columnType(v.Type)
	c, err := typ.convert(scalarOfJSON(want, content))
	if err != nil && typ == typeTimestamp {
		c, err = typ.convert(scalar{kind: text, text: []byte(content + "Z")})
	}
	if err != nil {
		return false
	}
	switch got := v.Value.(type) {
	case time.Time:
		at, ok := c.value().(time.Time)
		return ok && at.Equal(got)
	case string:
		wanted, _ := c.value().(string)
		return wanted == got || typ == typeNumeric && sameNumber(wanted, got)
	}
	return c.value() == v.Value
}

// isJSON compares JSON: spaces and the order of keys do not count.
func (v *TriedValue) isJSON(want json.RawMessage) bool {
	var got []byte
	switch value := v.Value.(type) {
	case string:
		got = []byte(value)
	case []byte:
		got = value
	}
	a, okay := decodedJSON(want)
	b, valid := decodedJSON(got)
	return okay && valid && sameJSON(a, b)
}

func decodedJSON(raw []byte) (v any, ok bool) {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	return v, decoder.Decode(&v) == nil
}

func sameJSON(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		other, ok := b.(map[string]any)
		if !ok || len(a) != len(other) {
			return false
		}
		for key, value := range a {
			if against, ok := other[key]; !ok || !sameJSON(value, against) {
				return false
			}
		}
		return true
	case []any:
		other, ok := b.([]any)
		if !ok || len(a) != len(other) {
			return false
		}
		for i := range a {
			if !sameJSON(a[i], other[i]) {
				return false
			}
		}
		return true
	case json.Number:
		other, ok := b.(json.Number)
		return ok && sameNumber(a.String(), other.String())
	}
	return reflect.DeepEqual(a, b)
}

// maxExponent bounds the exponents of numbers that are compared as numbers.
const maxExponent = 1000

// sameNumber compares two numbers by value.
func sameNumber(a, b string) bool {
	if a == b {
		return true
	}
	for _, text := range []string{a, b} {
		if i := strings.IndexAny(text, "eE"); i >= 0 {
			if n, err := strconv.Atoi(text[i+1:]); err != nil || n > maxExponent || n < -maxExponent {
				return false
			}
		}
	}
	x, ok := new(big.Rat).SetString(a)
	y, valid := new(big.Rat).SetString(b)
	return ok && valid && x.Cmp(y) == 0
}

// isNumber reports whether a text is a number of JSON.
func isNumber(text string) bool {
	return text != "" && (text[0] == '-' || text[0] >= '0' && text[0] <= '9') && json.Valid([]byte(text))
}

// textOfJSON returns a string of JSON without its quotes, and any other scalar as it is.
func textOfJSON(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	return string(raw)
}

// scalarOfJSON returns a value that a test wants as one of an event.
func scalarOfJSON(raw json.RawMessage, content string) scalar {
	s := scalar{kind: number, text: []byte(content)}
	switch raw[0] {
	case '"':
		s.kind = text
	case 't', 'f':
		s.kind = boolean
	}
	return s
}

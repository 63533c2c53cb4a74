package pipeline

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/jsonscan"
	"github.com/sluice-go/sluice/pipeline/internal/jsonpick"
)

// columnType is the type of a column in a mapping. An event's value becomes this
// type in Go:
//
//	text       string
//	smallint   int64, of 16 bits
//	integer    int64, of 32 bits
//	bigint     int64
//	real       float64, which the column may round to 32 bits
//	double     float64
//	numeric    string, plain decimal
//	boolean    bool
//	timestamp  time.Time
//	date       string, as in 2006-01-02
//	bytes      []byte
//	json       string
type columnType string

const (
	typeText      columnType = "text"
	typeSmallint  columnType = "smallint"
	typeInteger   columnType = "integer"
	typeBigint    columnType = "bigint"
	typeReal      columnType = "real"
	typeDouble    columnType = "double"
	typeNumeric   columnType = "numeric"
	typeBoolean   columnType = "boolean"
	typeTimestamp columnType = "timestamp"
	typeDate      columnType = "date"
	typeBytes     columnType = "bytes"
	typeJSON      columnType = "json"
)

var typeNames = []string{"text", "smallint", "integer", "bigint", "real", "double", "numeric", "boolean", "timestamp", "date", "bytes", "json"}

// scalar is a value of an event, before it is converted to a column type.
type scalar struct {
	kind  scalarKind
	text  []byte // the string, the number's digits, the JSON; nil for missing and null
	plain bool   // text is known to be UTF-8 without NUL
	sent  bool   // it is the key or a property as it is, which Kafka has as bytes
}

type scalarKind uint8

const (
	missing scalarKind = iota
	null
	text
	number   // as JSON writes numbers
	boolean  // true or false
	binary   // bytes that need not be text
	compound // a JSON array or object
)

var kindNames = [...]string{"missing", "null", "text", "a number", "a boolean", "bytes", "an array or object"}

// ofJSON returns a picked JSON value as a scalar.
func ofJSON(v jsonpick.Value) (scalar, error) {
	switch v.Kind {
	case jsonpick.Missing:
		return scalar{}, nil
	case jsonpick.Null:
		return scalar{kind: null}, nil
	case jsonpick.True, jsonpick.False:
		return scalar{kind: boolean, text: v.Raw}, nil
	case jsonpick.Number:
		return scalar{kind: number, text: v.Raw}, nil
	case jsonpick.String:
		t, err := v.Text()
		// The picker has checked the document. Only an escape, which is longer than what it stands
		// for, can bring a NUL.
		return scalar{kind: text, text: t, plain: len(t) == len(v.Raw)-len(`""`)}, err
	}
	return scalar{kind: compound, text: v.Raw}, nil
}

// ofProperty returns an application property's value as a scalar.
func ofProperty(v any) (scalar, error) {
	switch v := v.(type) {
	case nil:
		return scalar{kind: null}, nil
	case string:
		return scalar{kind: text, text: []byte(v)}, nil
	case []byte:
		return scalar{kind: binary, text: v}, nil
	case bool:
		return scalar{kind: boolean, text: strconv.AppendBool(nil, v)}, nil
	case time.Time:
		return scalar{kind: text, text: v.AppendFormat(nil, time.RFC3339Nano)}, nil
	case driver.DateTimeOffset:
		return scalar{kind: text, text: v.Time().AppendFormat(nil, time.RFC3339Nano)}, nil
	case driver.TimeSpan:
		return scalar{kind: text, text: []byte(v.String())}, nil
	case driver.URI:
		return scalar{kind: text, text: []byte(v)}, nil
	case int, int8, int16, int32, int64, uint, uint8, uint16, uint32, uint64:
		return scalar{kind: number, text: fmt.Append(nil, v)}, nil
	case float32:
		return ofFloat(float64(v), 32)
	case float64:
		return ofFloat(v, 64)
	}
	return scalar{}, fmt.Errorf("has the type %T, which no column can store", v)
}

func ofFloat(f float64, bits int) (scalar, error) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return scalar{}, fmt.Errorf("is %v, which is not a number", f)
	}
	return scalar{kind: number, text: strconv.AppendFloat(nil, f, 'g', -1, bits)}, nil
}

// convert converts a scalar that is neither missing nor null to exactly the same
// value of a column type, or fails. An error's text continues the value's name.
func (t columnType) convert(v scalar) (cell, error) {
	switch t {
	case typeText:
		if v.kind == compound {
			break
		}
		return toText(v)
	case typeSmallint:
		return toInteger(v, math.MinInt16, math.MaxInt16)
	case typeInteger:
		return toInteger(v, math.MinInt32, math.MaxInt32)
	case typeBigint:
		return toInteger(v, math.MinInt64, math.MaxInt64)
	case typeReal, typeDouble:
		if !v.numeric() {
			break
		}
		f, err := strconv.ParseFloat(string(v.text), 64)
		if err != nil || t == typeReal && math.IsInf(float64(float32(f)), 0) {
			return cell{}, v.is("out of a " + string(t) + "'s range")
		}
		return cell{other: f}, nil
	case typeNumeric:
		if !v.numeric() {
			break
		}
		return toDecimal(v)
	case typeBoolean:
		yes := bytes.EqualFold(v.text, []byte("true"))
		if (v.kind == boolean || v.kind == text) && (yes || bytes.EqualFold(v.text, []byte("false"))) {
			return cell{other: yes}, nil
		}
	case typeTimestamp:
		return toTime(v)
	case typeDate:
		return toDate(v)
	case typeBytes:
		switch v.kind {
		case binary:
			return cell{other: v.text}, nil
		case text:
			if b, err := base64.StdEncoding.Strict().DecodeString(string(v.text)); err == nil {
				return cell{other: b}, nil
			}
			return cell{}, v.is("not base64")
		}
	case typeJSON: // a default; a picked value keeps its quotes, see column.value
		return sharedText(v.text), nil
	}
	return cell{}, fmt.Errorf("%s where %s should be", v, t.wants())
}

func (t columnType) wants() string {
	switch t {
	case typeText:
		return "a string (the type json takes every value)"
	case typeSmallint, typeInteger, typeBigint:
		return "a whole number"
	case typeReal, typeDouble, typeNumeric:
		return "a number"
	case typeBoolean:
		return "true or false (format: 1/0, or other words)"
	case typeTimestamp:
		return "a time such as 2006-01-02T15:04:05Z"
	case typeDate:
		return "a date such as 2006-01-02"
	}
	return "base64"
}

// numeric reports whether the value is written like a JSON number, as a number or
// as a string.
func (v scalar) numeric() bool {
	if v.kind == number {
		return true
	}
	return v.kind == text && jsonscan.IsNumber(v.text)
}

func toText(v scalar) (cell, error) {
	if v.plain {
		return sharedText(v.text), nil
	}
	if !utf8.Valid(v.text) {
		return cell{}, errors.New("is not UTF-8 (the type bytes takes every value)")
	}
	if bytes.IndexByte(v.text, 0) >= 0 {
		return cell{}, errors.New("contains a NUL character, which a text column cannot store")
	}
	return sharedText(v.text), nil
}

// toInteger converts whole numbers, however they are written: 12, 12.0, 1.2e1,
// "12".
func toInteger(v scalar, least, most int64) (cell, error) {
	if !v.numeric() {
		return cell{}, fmt.Errorf("%s where a whole number should be", v)
	}
	i, err := strconv.ParseInt(string(v.text), 10, 64)
	if err != nil && bytes.ContainsAny(v.text, ".eE") { // the exponent may make it small enough
		d, exact := splitDecimal(v.text)
		if !exact || strings.Trim(d.fraction, "0") != "" {
			return cell{}, v.is("not a whole number")
		}
		i, err = strconv.ParseInt(d.sign+d.whole, 10, 64)
	}
	if err != nil || i < least || i > most {
		return cell{}, v.is(fmt.Sprintf("not from %d to %d", least, most))
	}
	return cell{kind: cellInteger, integer: i}, nil
}

// toDecimal formats a number without an exponent.
func toDecimal(v scalar) (cell, error) {
	d, exact := splitDecimal(v.text)
	if !exact {
		return cell{}, v.is(fmt.Sprintf("a number of more than %d digits", maxDigits))
	}
	if d.fraction == "" {
		return ownText(d.sign + d.whole), nil
	}
	return ownText(d.sign + d.whole + "." + d.fraction), nil
}

// maxDigits bounds the length of a number that a short exponent can produce.
const maxDigits = 1000

type decimal struct{ sign, whole, fraction string }

// splitDecimal applies the exponent of a JSON number. It returns false if the
// result has too many digits.
func splitDecimal(literal []byte) (decimal, bool) {
	s := string(literal)
	var d decimal
	if rest, negative := strings.CutPrefix(s, "-"); negative {
		d.sign, s = "-", rest
	}
	exponent := 0
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		var err error
		if exponent, err = strconv.Atoi(s[i+1:]); err != nil || exponent > maxDigits || exponent < -maxDigits {
			return d, false
		}
		s = s[:i]
	}
	d.whole, d.fraction, _ = strings.Cut(s, ".")
	if exponent > 0 {
		d.fraction += strings.Repeat("0", max(0, exponent-len(d.fraction)))
		d.whole, d.fraction = d.whole+d.fraction[:exponent], d.fraction[exponent:]
	} else if exponent < 0 {
		d.whole = strings.Repeat("0", max(0, 1-exponent-len(d.whole))) + d.whole
		at := len(d.whole) + exponent
		d.whole, d.fraction = d.whole[:at], d.whole[at:]+d.fraction
	}
	if d.whole = strings.TrimLeft(d.whole, "0"); d.whole == "" {
		d.whole = "0"
	}
	return d, len(d.whole)+len(d.fraction) <= maxDigits
}

// is returns the error that a value is what.
func (v scalar) is(what string) error { return fmt.Errorf("%s is %s", v, what) }

// be returns an error whose text continues the value.
func (v scalar) be(what error) error { return fmt.Errorf("%s %w", v, what) }

// String shortens the value for messages.
func (v scalar) String() string {
	switch v.kind {
	case missing, null, binary, compound:
		return kindNames[v.kind]
	case text:
		return strconv.Quote(truncated(v.text))
	}
	return truncated(v.text)
}

func truncated(text []byte) string {
	const most = 40
	if len(text) <= most {
		return string(text)
	}
	n := most
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return string(text[:n]) + "…"
}

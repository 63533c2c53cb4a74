package formats

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"strconv"
	"time"

	"github.com/twmb/avro"
)

// A wholeFormat appends the JSON of a logical type whose underlying type is int or long.
type wholeFormat func(out []byte, n int64) ([]byte, error)

// A bytesFormat appends the JSON of a logical type whose underlying type is bytes or fixed.
type bytesFormat func(out, b []byte, scale int) ([]byte, error)

// Times and dates are as ISO 8601 has them.
var wholeFormats = map[string]wholeFormat{
	"date": func(out []byte, n int64) ([]byte, error) {
		return appendTime(out, time.Unix(24*60*60*n, 0), time.DateOnly)
	},
	"time-millis":            clock(time.Millisecond),
	"time-micros":            clock(time.Microsecond),
	"timestamp-millis":       timestamp(time.UnixMilli, time.RFC3339Nano),
	"timestamp-micros":       timestamp(time.UnixMicro, time.RFC3339Nano),
	"timestamp-nanos":        timestamp(unixNano, time.RFC3339Nano),
	"local-timestamp-millis": timestamp(time.UnixMilli, localTime),
	"local-timestamp-micros": timestamp(time.UnixMicro, localTime),
	"local-timestamp-nanos":  timestamp(unixNano, localTime),
}

var bytesFormats = map[string]bytesFormat{
	"decimal":     appendDecimal,
	"uuid":        appendUUID,
	"duration":    appendDuration,
	"big-decimal": appendBigDecimal,
}

// logicalTypes are the same formats for the library, which decodes default values.
var logicalTypes = func() []avro.SchemaOpt {
	var types []avro.SchemaOpt
	for name, format := range wholeFormats {
		types = append(types, avro.CustomType{LogicalType: name, Decode: func(v any, _ *avro.SchemaNode) (any, error) {
			out, err := format(nil, whole(v))
			return number(out), err
		}})
	}
	for name, format := range bytesFormats {
		if name == "big-decimal" { // which the library has itself
			continue
		}
		custom := avro.CustomType{LogicalType: name, Decode: func(v any, node *avro.SchemaNode) (any, error) {
			b, ok := v.([]byte)
			if !ok {
				return nil, fmt.Errorf("a %s is a %T", name, v)
			}
			out, err := format(nil, b, node.Scale)
			return number(out), err
		}}
		if name == "uuid" { // which may also be a text, and stays that
			custom.AvroType = "fixed"
		}
		types = append(types, custom)
	}
	return types
}()

// whole returns the value of an int or long.
func whole(v any) int64 {
	switch v := v.(type) {
	case int32:
		return int64(v)
	case int64:
		return v
	}
	return 0
}

// localTime is the layout of a time without a time zone.
const localTime = "2006-01-02T15:04:05.999999999"

func timestamp(at func(int64) time.Time, layout string) wholeFormat {
	return func(out []byte, n int64) ([]byte, error) { return appendTime(out, at(n), layout) }
}

func unixNano(n int64) time.Time { return time.Unix(0, n) }

func appendTime(out []byte, at time.Time, layout string) ([]byte, error) {
	if at = at.UTC(); at.Year() < 0 || at.Year() > 9999 {
		return out, errors.New("a time is not in the years 0 to 9999")
	}
	return append(at.AppendFormat(append(out, '"'), layout), '"'), nil
}

// clock returns the format of a time of day.
func clock(unit time.Duration) wholeFormat {
	return func(out []byte, n int64) ([]byte, error) {
		if n < 0 || n >= int64(24*time.Hour/unit) {
			return out, errors.New("a time of day is not from 00:00 to 23:59:59.999999")
		}
		return appendTime(out, time.Unix(0, 0).Add(time.Duration(n)*unit), "15:04:05.999999")
	}
}

// maxDecimal bounds the bytes of a decimal: more than the digits that a numeric column may have.
const maxDecimal = 512

// appendDecimal appends a decimal with all digits of its scale.
func appendDecimal(out, b []byte, scale int) ([]byte, error) {
	switch {
	case len(b) > maxDecimal:
		return out, fmt.Errorf("a decimal has %d bytes: at most %d", len(b), maxDecimal)
	case scale > 8*maxDecimal:
		return out, fmt.Errorf("a decimal has the scale %d: at most %d", scale, 8*maxDecimal)
	}
	negative := len(b) > 0 && b[0] >= 0x80 // two's complement
	var room [24]byte
	digits := room[:0]
	if len(b) <= 8 {
		n := uint64(0)
		if negative {
			n = ^n
		}
		for _, c := range b {
			n = n<<8 | uint64(c)
		}
		if negative {
			n = -n
		}
		digits = strconv.AppendUint(digits, n, 10)
	} else {
		unscaled := new(big.Int).SetBytes(b)
		if negative {
			unscaled.Sub(unscaled, new(big.Int).Lsh(big.NewInt(1), uint(8*len(b))))
		}
		digits = unscaled.Abs(unscaled).Append(digits, 10)
	}
	if negative {
		out = append(out, '-')
	}
	if scale <= 0 {
		return append(out, digits...), nil
	}
	point := len(digits) - scale // how many digits are before the point
	if point <= 0 {
		out = append(out, '0', '.')
		for range -point {
			out = append(out, '0')
		}
		return append(out, digits...), nil
	}
	return append(append(append(out, digits[:point]...), '.'), digits[point:]...), nil
}

func appendUUID(out, b []byte, _ int) ([]byte, error) {
	if len(b) != 16 {
		return out, fmt.Errorf("a uuid has %d bytes, not 16", len(b))
	}
	out = append(out, '"')
	for i, part := range [][]byte{b[:4], b[4:6], b[6:8], b[8:10], b[10:]} {
		if i > 0 {
			out = append(out, '-')
		}
		out = hex.AppendEncode(out, part)
	}
	return append(out, '"'), nil
}

func appendDuration(out, b []byte, _ int) ([]byte, error) {
	if len(b) != 12 {
		return out, fmt.Errorf("a duration has %d bytes, not 12", len(b))
	}
	months, days, millis := binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:]), binary.LittleEndian.Uint32(b[8:])
	return fmt.Appendf(out, `"P%dM%dDT%d.%03dS"`, months, days, millis/1000, millis%1000), nil
}

// bigDecimal is the schema of a decimal that has its scale in the body.
var bigDecimal = avro.MustParse(`{"type":"bytes","logicalType":"big-decimal"}`)

func appendBigDecimal(out, b []byte, _ int) ([]byte, error) {
	var value any
	if _, err := bigDecimal.Decode(append(binary.AppendVarint(nil, int64(len(b))), b...), &value); err != nil {
		return out, misfit(err)
	}
	w := jsonWriter{out: out, limit: len(out) + 1<<20} // of bounded digits
	err := w.value(value)
	return w.out, err
}

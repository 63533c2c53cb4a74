package formats

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/twmb/avro"
)

// librarySchema is a schema as the library decodes it, into values that become JSON afterwards:
// what the decoder of this package is compared with.
type librarySchema struct{ schema *avro.Schema }

func libraryAvro(text string) (*librarySchema, error) {
	schema, err := avro.Parse(withoutInvalid(text), libraryLogicalTypes...)
	return &librarySchema{schema}, err
}

// resolve returns the schema that reads as s what writer has written.
func (s *librarySchema) resolve(writer *librarySchema) (*librarySchema, error) {
	schema, err := avro.Resolve(writer.schema, s.schema)
	return &librarySchema{schema}, err
}

func (s *librarySchema) decode(body []byte) ([]byte, error) {
	var value any
	rest, err := s.schema.Decode(body, &value)
	if err != nil {
		return nil, err
	}
	if len(rest) > 0 {
		return nil, fmt.Errorf("%d bytes follow the value", len(rest))
	}
	return libraryJSON(nil, value)
}

// libraryJSON appends a value that the library has decoded.
func libraryJSON(out []byte, v any) ([]byte, error) {
	switch v := v.(type) {
	case nil:
		return append(out, "null"...), nil
	case bool:
		return strconv.AppendBool(out, v), nil
	case int32:
		return strconv.AppendInt(out, int64(v), 10), nil
	case int64:
		return strconv.AppendInt(out, v, 10), nil
	case float32:
		return libraryFloat(out, float64(v), 32), nil
	case float64:
		return libraryFloat(out, v, 64), nil
	case number:
		return append(out, v...), nil
	case *big.Rat:
		digits, exact := v.FloatPrec()
		if !exact {
			return nil, fmt.Errorf("%.40q is not a decimal number", v.String())
		}
		return append(out, v.FloatString(digits)...), nil
	case string:
		if !utf8.ValidString(v) {
			return nil, errors.New("a text is not UTF-8")
		}
		return append(out, libraryText(v)...), nil
	case []byte:
		return append(base64.StdEncoding.AppendEncode(append(out, '"'), v), '"'), nil
	case []any:
		return libraryArray(out, v)
	case map[string]any:
		return libraryObject(out, v)
	}
	return nil, fmt.Errorf("a value is a %T, which JSON does not have", v)
}

func libraryFloat(out []byte, f float64, bits int) []byte {
	switch {
	case math.IsNaN(f):
		return append(out, `"NaN"`...)
	case math.IsInf(f, 1):
		return append(out, `"Infinity"`...)
	case math.IsInf(f, -1):
		return append(out, `"-Infinity"`...)
	}
	return strconv.AppendFloat(out, f, 'g', -1, bits)
}

// libraryText returns a text as JSON: as encoding/json has it if anything in it is escaped.
func libraryText(s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= utf8.RuneSelf || c == '"' || c == '\\' {
			quoted, _ := json.Marshal(s)
			return quoted
		}
	}
	return []byte(`"` + s + `"`)
}

func libraryArray(out []byte, list []any) ([]byte, error) {
	var err error
	out = append(out, '[')
	for i, v := range list {
		if i > 0 {
			out = append(out, ',')
		}
		if out, err = libraryJSON(out, v); err != nil {
			return nil, err
		}
	}
	return append(out, ']'), nil
}

func libraryObject(out []byte, members map[string]any) ([]byte, error) {
	var err error
	out = append(out, '{')
	for i, name := range slices.Sorted(maps.Keys(members)) {
		if i > 0 {
			out = append(out, ',')
		}
		if !utf8.ValidString(name) {
			return nil, errors.New("a text is not UTF-8")
		}
		out = append(append(out, libraryText(name)...), ':')
		if out, err = libraryJSON(out, members[name]); err != nil {
			return nil, err
		}
	}
	return append(out, '}'), nil
}

// libraryLogicalTypes make JSON's values of logical types: times and dates as ISO 8601 has them,
// decimals with all digits of their scale.
var libraryLogicalTypes = []avro.SchemaOpt{
	libraryLogical("date", func(v any, _ *avro.SchemaNode) (any, error) {
		return libraryFormatTime(time.Unix(24*60*60*libraryWhole(v), 0), time.DateOnly)
	}),
	libraryLogical("time-millis", func(v any, _ *avro.SchemaNode) (any, error) {
		return libraryFormatClock(libraryWhole(v), time.Millisecond)
	}),
	libraryLogical("time-micros", func(v any, _ *avro.SchemaNode) (any, error) {
		return libraryFormatClock(libraryWhole(v), time.Microsecond)
	}),
	libraryTimestamp("timestamp-millis", time.UnixMilli, time.RFC3339Nano),
	libraryTimestamp("timestamp-micros", time.UnixMicro, time.RFC3339Nano),
	libraryTimestamp("timestamp-nanos", libraryUnixNano, time.RFC3339Nano),
	libraryTimestamp("local-timestamp-millis", time.UnixMilli, libraryLocalTime),
	libraryTimestamp("local-timestamp-micros", time.UnixMicro, libraryLocalTime),
	libraryTimestamp("local-timestamp-nanos", libraryUnixNano, libraryLocalTime),
	libraryLogical("decimal", func(v any, node *avro.SchemaNode) (any, error) { return libraryFormatDecimal(v, node.Scale) }),
	avro.CustomType{LogicalType: "uuid", AvroType: "fixed", Decode: func(v any, _ *avro.SchemaNode) (any, error) {
		b, ok := v.([]byte)
		if !ok || len(b) != 16 {
			return nil, fmt.Errorf("a uuid is a %T", v)
		}
		text := hex.EncodeToString(b)
		return strings.Join([]string{text[:8], text[8:12], text[12:16], text[16:20], text[20:]}, "-"), nil
	}},
	libraryLogical("duration", func(v any, _ *avro.SchemaNode) (any, error) {
		b, ok := v.([]byte)
		if !ok || len(b) != 12 {
			return nil, fmt.Errorf("a duration is a %T", v)
		}
		d := avro.DurationFromBytes(b)
		return fmt.Sprintf("P%dM%dDT%d.%03dS", d.Months, d.Days, d.Milliseconds/1000, d.Milliseconds%1000), nil
	}),
}

// libraryLocalTime is the layout of a time without a time zone.
const libraryLocalTime = "2006-01-02T15:04:05.999999999"

func libraryLogical(name string, decode func(any, *avro.SchemaNode) (any, error)) avro.CustomType {
	return avro.CustomType{LogicalType: name, Decode: decode}
}

func libraryTimestamp(name string, at func(int64) time.Time, layout string) avro.CustomType {
	return libraryLogical(name, func(v any, _ *avro.SchemaNode) (any, error) { return libraryFormatTime(at(libraryWhole(v)), layout) })
}

func libraryUnixNano(n int64) time.Time { return time.Unix(0, n) }

// libraryWhole returns the value of an int or long.
func libraryWhole(v any) int64 {
	switch v := v.(type) {
	case int32:
		return int64(v)
	case int64:
		return v
	}
	return 0
}

func libraryFormatTime(at time.Time, layout string) (any, error) {
	if at = at.UTC(); at.Year() < 0 || at.Year() > 9999 {
		return nil, errors.New("a time is not in the years 0 to 9999")
	}
	return at.Format(layout), nil
}

// libraryFormatClock formats a time of day.
func libraryFormatClock(n int64, unit time.Duration) (any, error) {
	if n < 0 || n >= int64(24*time.Hour/unit) {
		return nil, errors.New("a time of day is not from 00:00 to 23:59:59.999999")
	}
	return time.Unix(0, 0).UTC().Add(time.Duration(n) * unit).Format("15:04:05.999999"), nil
}

func libraryFormatDecimal(v any, scale int) (any, error) {
	b, ok := v.([]byte)
	switch {
	case !ok:
		return nil, fmt.Errorf("a decimal is a %T", v)
	case len(b) > maxDecimal:
		return nil, fmt.Errorf("a decimal has %d bytes: at most %d", len(b), maxDecimal)
	case scale > 8*maxDecimal:
		return nil, fmt.Errorf("a decimal has the scale %d: at most %d", scale, 8*maxDecimal)
	}
	unscaled := new(big.Int).SetBytes(b)
	if len(b) > 0 && b[0] >= 0x80 { // two's complement
		unscaled.Sub(unscaled, new(big.Int).Lsh(big.NewInt(1), uint(8*len(b))))
	}
	digits := new(big.Int).Abs(unscaled).String()
	if scale > 0 {
		digits = strings.Repeat("0", max(0, scale+1-len(digits))) + digits
		digits = digits[:len(digits)-scale] + "." + digits[len(digits)-scale:]
	}
	if unscaled.Sign() < 0 {
		digits = "-" + digits
	}
	return number(digits), nil
}

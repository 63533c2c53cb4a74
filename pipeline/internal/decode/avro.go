package decode

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"time"

	"github.com/twmb/avro"
)

// AvroSchema is a schema of Avro, with which the values of logical types are read as JSON has them.
type AvroSchema struct{ schema *avro.Schema }

// ParseAvro parses the text of a schema file (.avsc).
func ParseAvro(text string) (*AvroSchema, error) {
	schema, err := avro.Parse(withoutInvalid(text), logicalTypes...)
	if err != nil {
		return nil, oneLine(err, "avro: ")
	}
	return &AvroSchema{schema}, nil
}

// Avro returns the encoding of bodies that are a record of the schema, in Avro's binary encoding
// without a header.
func Avro(schema *AvroSchema) Encoding { return avroEncoding{schema} }

type avroEncoding struct{ *AvroSchema }

func (avroEncoding) check(context.Context) error { return nil }

func (e avroEncoding) json(_ context.Context, body []byte, _ string, limit int) ([]byte, error) {
	return e.decode(body, limit)
}

// decode returns the value in body as JSON.
func (s *AvroSchema) decode(body []byte, limit int) ([]byte, error) {
	var value any
	rest, err := s.schema.Decode(body, &value)
	if err != nil {
		return nil, fmt.Errorf("it does not fit the schema: %w", misfit(err))
	}
	if len(rest) > 0 {
		return nil, fmt.Errorf("it does not fit the schema: %d bytes follow the value", len(rest))
	}
	w := jsonWriter{limit: limit}
	if err := w.value(value); err != nil {
		return nil, err
	}
	return w.out, nil
}

// misfit returns the library's error as the field and what is wrong with it.
func misfit(err error) error {
	var field string
	if of, ok := errors.AsType[*avro.SemanticError](err); ok && of.Err != nil {
		field, err = of.Field, of.Err
	}
	if short, ok := errors.AsType[*avro.ShortBufferError](err); ok {
		err = fmt.Errorf("it ends within a value (%s)", short.Type)
	}
	if err = oneLine(err, "avro: "); field != "" {
		err = oneLine(fmt.Errorf("field %s: %w", field, err), "")
	}
	return err
}

// resolve returns a schema that reads what was written with writer. nil stands for writer itself.
func (s *AvroSchema) resolve(writer *AvroSchema) (*AvroSchema, error) {
	if s == nil {
		return writer, nil
	}
	schema, err := avro.Resolve(writer.schema, s.schema)
	if err != nil {
		return nil, fmt.Errorf("the schema that it was written with does not resolve to the schema of the file: %w", oneLine(err, "avro: "))
	}
	return &AvroSchema{schema}, nil
}

// logicalTypes make JSON's values of logical types: times and dates as ISO 8601 has them, decimals with
// all digits of their scale.
var logicalTypes = []avro.SchemaOpt{
	logical("date", func(v any, _ *avro.SchemaNode) (any, error) {
		return formatTime(time.Unix(24*60*60*whole(v), 0), time.DateOnly)
	}),
	logical("time-millis", func(v any, _ *avro.SchemaNode) (any, error) { return formatClock(whole(v), time.Millisecond) }),
	logical("time-micros", func(v any, _ *avro.SchemaNode) (any, error) { return formatClock(whole(v), time.Microsecond) }),
	timestamp("timestamp-millis", time.UnixMilli, time.RFC3339Nano),
	timestamp("timestamp-micros", time.UnixMicro, time.RFC3339Nano),
	timestamp("timestamp-nanos", unixNano, time.RFC3339Nano),
	timestamp("local-timestamp-millis", time.UnixMilli, localTime),
	timestamp("local-timestamp-micros", time.UnixMicro, localTime),
	timestamp("local-timestamp-nanos", unixNano, localTime),
	logical("decimal", func(v any, node *avro.SchemaNode) (any, error) { return formatDecimal(v, node.Scale) }),
	avro.CustomType{LogicalType: "uuid", AvroType: "fixed", Decode: func(v any, _ *avro.SchemaNode) (any, error) {
		b, ok := v.([]byte)
		if !ok || len(b) != 16 {
			return nil, fmt.Errorf("a uuid is a %T", v)
		}
		text := hex.EncodeToString(b)
		return strings.Join([]string{text[:8], text[8:12], text[12:16], text[16:20], text[20:]}, "-"), nil
	}},
	logical("duration", func(v any, _ *avro.SchemaNode) (any, error) {
		b, ok := v.([]byte)
		if !ok || len(b) != 12 {
			return nil, fmt.Errorf("a duration is a %T", v)
		}
		d := avro.DurationFromBytes(b)
		return fmt.Sprintf("P%dM%dDT%d.%03dS", d.Months, d.Days, d.Milliseconds/1000, d.Milliseconds%1000), nil
	}),
}

// localTime is the layout of a time without a time zone.
const localTime = "2006-01-02T15:04:05.999999999"

func logical(name string, decode func(any, *avro.SchemaNode) (any, error)) avro.CustomType {
	return avro.CustomType{LogicalType: name, Decode: decode}
}

func timestamp(name string, at func(int64) time.Time, layout string) avro.CustomType {
	return logical(name, func(v any, _ *avro.SchemaNode) (any, error) { return formatTime(at(whole(v)), layout) })
}

func unixNano(n int64) time.Time { return time.Unix(0, n) }

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

func formatTime(at time.Time, layout string) (any, error) {
	if at = at.UTC(); at.Year() < 0 || at.Year() > 9999 {
		return nil, errors.New("a time is not in the years 0 to 9999")
	}
	return at.Format(layout), nil
}

// formatClock formats a time of day.
func formatClock(n int64, unit time.Duration) (any, error) {
	if n < 0 || n >= int64(24*time.Hour/unit) {
		return nil, errors.New("a time of day is not from 00:00 to 23:59:59.999999")
	}
	return time.Unix(0, 0).UTC().Add(time.Duration(n) * unit).Format("15:04:05.999999"), nil
}

// maxDecimal bounds the bytes of a decimal: more than the digits that a numeric column may have.
const maxDecimal = 512

func formatDecimal(v any, scale int) (any, error) {
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

// oneLine returns an error of a library with a text of one line of bounded length.
func oneLine(err error, prefix string) error {
	text := strings.TrimPrefix(strings.Join(strings.Fields(err.Error()), " "), prefix) // some have non-breaking spaces
	const most = 200
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return errors.New(text)
}

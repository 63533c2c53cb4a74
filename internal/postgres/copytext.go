package postgres

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

// CopyValue is a value that appends its own text in the text form of COPY, as [AppendText] and the
// other functions of this file do.
type CopyValue interface {
	AppendCopy(b []byte) ([]byte, error)
}

// AppendValue appends a value of a common type of Go. Its text does not depend on the type of the
// column.
func AppendValue(b []byte, value any) ([]byte, error) {
	switch v := value.(type) {
	case nil:
		return AppendNull(b), nil
	case string:
		return AppendText(b, v)
	case bool:
		return strconv.AppendBool(b, v), nil
	case int:
		return strconv.AppendInt(b, int64(v), 10), nil
	case int16:
		return strconv.AppendInt(b, int64(v), 10), nil
	case int32:
		return strconv.AppendInt(b, int64(v), 10), nil
	case int64:
		return strconv.AppendInt(b, v, 10), nil
	case float32:
		return appendFloat(b, float64(v), 32), nil
	case float64:
		return appendFloat(b, v, 64), nil
	case time.Time:
		return AppendTime(b, v), nil
	}
	return b, errOtherType
}

// appendFloat writes an exponent where PostgreSQL does: a column of text shows it.
func appendFloat(b []byte, f float64, bits int) []byte {
	if size := math.Abs(f); size != 0 && (size < 1e-4 || size >= 1e15) {
		return strconv.AppendFloat(b, f, 'e', -1, bits)
	}
	return strconv.AppendFloat(b, f, 'f', -1, bits)
}

var errOtherType = errors.New("the text of its type depends on the column")

// TextOf returns the text of a value of a common type of Go, or of bytes for a bytea, as an
// argument of a statement.
func TextOf(value any) (string, error) {
	switch v := value.(type) {
	case string:
		return v, nil
	case []byte:
		return `\x` + hex.EncodeToString(v), nil
	}
	b, err := AppendValue(nil, value)
	return string(b), err
}

// appendCopied appends a value for a column whose base type is oid, 0 if it is unknown.
func appendCopied(b []byte, types *pgtype.Map, oid uint32, value any) ([]byte, error) {
	if own, ok := value.(CopyValue); ok {
		return own.AppendCopy(b)
	}
	if _, is := value.(time.Time); is && (oid == pgtype.JSONOID || oid == pgtype.JSONBOID) {
		return appendOther(b, types, oid, value)
	}
	if f, is := value.(float64); is && (oid == pgtype.Int2OID || oid == pgtype.Int4OID || oid == pgtype.Int8OID) {
		return strconv.AppendFloat(b, f, 'f', -1, 64), nil // an integer has no exponent
	}
	text, err := AppendValue(b, value)
	if err == errOtherType {
		return appendOther(b, types, oid, value)
	}
	return text, err
}

// appendOther appends the text that pgx makes of a value for the type of its column: an array of a
// slice, JSON of a struct.
func appendOther(b []byte, types *pgtype.Map, oid uint32, value any) ([]byte, error) {
	if _, known := types.TypeForOID(oid); !known {
		// pgx takes bytes for a bytea then, and the column may be an enum, or citext.
		if v := reflect.ValueOf(value); v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Uint8 {
			if v.IsNil() {
				return AppendNull(b), nil
			}
			return AppendText(b, string(v.Bytes()))
		}
	}
	text, err := types.Encode(oid, pgtype.TextFormatCode, value, make([]byte, 0, 64))
	switch {
	case err != nil:
		return b, fmt.Errorf("encode %T: %w", value, err)
	case text == nil:
		return AppendNull(b), nil
	}
	return AppendText(b, string(text))
}

// AppendNull appends NULL.
func AppendNull(b []byte) []byte { return append(b, `\N`...) }

// AppendBytes appends the text of a bytea.
func AppendBytes(b, value []byte) []byte { return hex.AppendEncode(append(b, `\\x`...), value) }

// AppendTime appends a time to the microsecond, in a form that every DateStyle reads in the same
// way. A column without a time zone takes the date and the time of day of the value's own zone.
func AppendTime(b []byte, t time.Time) []byte {
	year, suffix := t.Year(), ""
	if year <= 0 {
		year, suffix = 1-year, " BC"
	}
	for at := 1000; at > year; at /= 10 {
		b = append(b, '0')
	}
	b = strconv.AppendInt(b, int64(year), 10)
	layout := "-01-02 15:04:05.999999-07:00:00"
	if _, offset := t.Zone(); offset%3600 == 0 { // as PostgreSQL writes it
		layout = layout[:len(layout)-len(":00:00")]
	}
	return append(t.AppendFormat(b, layout), suffix...)
}

// errNUL is why a text cannot be stored.
var errNUL = errors.New("contains a NUL character, which PostgreSQL cannot store")

// AppendText appends a text, with what COPY takes for something else escaped. It looks at eight
// bytes at a time, because most texts have nothing to escape.
func AppendText(b []byte, text string) ([]byte, error) {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	done, i := 0, 0
	for i < len(text) {
		if rest := text[i:]; len(rest) >= 8 {
			x := uint64(rest[0]) | uint64(rest[1])<<8 | uint64(rest[2])<<16 | uint64(rest[3])<<24 |
				uint64(rest[4])<<32 | uint64(rest[5])<<40 | uint64(rest[6])<<48 | uint64(rest[7])<<56
			backslash := x ^ ones*'\\'
			// A byte below 0x20, or a backslash, sets a high bit; now and then others do too.
			if ((x-ones*0x20)&^x|(backslash-ones)&^backslash)&highs == 0 {
				i += 8
				continue
			}
		}
		for end := min(i+8, len(text)); i < end; i++ {
			escape := text[i]
			switch escape {
			case 0:
				return b, errNUL
			case '\t':
				escape = 't'
			case '\n':
				escape = 'n'
			case '\r':
				escape = 'r'
			case '\\':
			default:
				continue
			}
			b = append(append(b, text[done:i]...), '\\', escape)
			done = i + 1
		}
	}
	return append(b, text[done:]...), nil
}

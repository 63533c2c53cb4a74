package amqp

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"
)

// The append functions add the encoding of a value to b and return the extended slice; the
// shortest encoding is chosen where there are several.

func appendNull(b []byte) []byte { return append(b, codeNull) }

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, codeTrue)
	}
	return append(b, codeFalse)
}

func appendUint(b []byte, v uint32) []byte {
	switch {
	case v == 0:
		return append(b, codeUint0)
	case v <= math.MaxUint8:
		return append(b, codeSmallUint, byte(v))
	}
	return binary.BigEndian.AppendUint32(append(b, codeUint), v)
}

func appendUlong(b []byte, v uint64) []byte {
	switch {
	case v == 0:
		return append(b, codeUlong0)
	case v <= math.MaxUint8:
		return append(b, codeSmallUlong, byte(v))
	}
	return binary.BigEndian.AppendUint64(append(b, codeUlong), v)
}

func appendUshort(b []byte, v uint16) []byte {
	return binary.BigEndian.AppendUint16(append(b, codeUshort), v)
}

// AppendLong appends a long.
func AppendLong(b []byte, v int64) []byte {
	if v >= math.MinInt8 && v <= math.MaxInt8 {
		return append(b, codeSmallLong, byte(v))
	}
	return binary.BigEndian.AppendUint64(append(b, codeLong), uint64(v))
}

// AppendTimestamp appends t with millisecond precision.
func AppendTimestamp(b []byte, t time.Time) []byte {
	return binary.BigEndian.AppendUint64(append(b, codeTimestamp), uint64(t.UnixMilli()))
}

// AppendString appends a string.
func AppendString(b []byte, v string) []byte {
	return append(appendSize(b, codeStr8, codeStr32, len(v)), v...)
}

// AppendSymbol appends a symbol.
func AppendSymbol(b []byte, v Symbol) []byte {
	return append(appendSize(b, codeSym8, codeSym32, len(v)), v...)
}

// AppendBinary appends a binary.
func AppendBinary(b []byte, v []byte) []byte {
	return append(appendSize(b, codeBin8, codeBin32, len(v)), v...)
}

// appendSize appends the constructor of a variable-width value of n bytes.
func appendSize(b []byte, short, long byte, n int) []byte {
	if n <= math.MaxUint8 {
		return append(b, short, byte(n))
	}
	return binary.BigEndian.AppendUint32(append(b, long), uint32(n))
}

// appendDescriptor starts a composite value.
func appendDescriptor(b []byte, code byte) []byte {
	return append(b, codeDescribed, codeSmallUlong, code)
}

// beginCompound starts a list, map or array with 32-bit size and count, and returns the offset of
// the size, which [endCompound] fills in.
func beginCompound(b []byte, code byte) ([]byte, int) {
	b = append(b, code, 0, 0, 0, 0, 0, 0, 0, 0)
	return b, len(b) - 8
}

func endCompound(b []byte, at, count int) []byte {
	binary.BigEndian.PutUint32(b[at:], uint32(len(b)-at-4))
	binary.BigEndian.PutUint32(b[at+4:], uint32(count))
	return b
}

func appendSymbols(b []byte, vs []Symbol) []byte {
	if len(vs) == 0 {
		return appendNull(b)
	}
	b, at := beginCompound(b, codeArray32)
	b = append(b, codeSym32)
	for _, v := range vs {
		b = append(binary.BigEndian.AppendUint32(b, uint32(len(v))), v...)
	}
	return endCompound(b, at, len(vs))
}

func appendStrings(b []byte, vs []string) []byte {
	b, at := beginCompound(b, codeArray32)
	b = append(b, codeStr32)
	for _, v := range vs {
		b = append(binary.BigEndian.AppendUint32(b, uint32(len(v))), v...)
	}
	return endCompound(b, at, len(vs))
}

func appendTimestamps(b []byte, vs []time.Time) []byte {
	b, at := beginCompound(b, codeArray32)
	b = append(b, codeTimestamp)
	for _, v := range vs {
		b = binary.BigEndian.AppendUint64(b, uint64(v.UnixMilli()))
	}
	return endCompound(b, at, len(vs))
}

func appendLongs(b []byte, vs []int64) []byte {
	b, at := beginCompound(b, codeArray32)
	b = append(b, codeLong)
	for _, v := range vs {
		b = binary.BigEndian.AppendUint64(b, uint64(v))
	}
	return endCompound(b, at, len(vs))
}

// appendMap appends a map, or null if it is empty.
func appendMap(b []byte, m Map) []byte {
	if len(m) == 0 {
		return appendNull(b)
	}
	return AppendValue(b, m)
}

// AppendValue appends a value of any of the types that decoding yields, or an int, or a []string,
// []Symbol, []int64 or []time.Time as an array. It panics for other types.
func AppendValue(b []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return appendNull(b)
	case bool:
		return appendBool(b, v)
	case uint8:
		return append(b, codeUbyte, v)
	case uint16:
		return appendUshort(b, v)
	case uint32:
		return appendUint(b, v)
	case uint64:
		return appendUlong(b, v)
	case int8:
		return append(b, codeByte, byte(v))
	case int16:
		return binary.BigEndian.AppendUint16(append(b, codeShort), uint16(v))
	case int32:
		if v >= math.MinInt8 && v <= math.MaxInt8 {
			return append(b, codeSmallInt, byte(v))
		}
		return binary.BigEndian.AppendUint32(append(b, codeInt), uint32(v))
	case int64:
		return AppendLong(b, v)
	case int:
		return AppendLong(b, int64(v))
	case float32:
		return binary.BigEndian.AppendUint32(append(b, codeFloat), math.Float32bits(v))
	case float64:
		return binary.BigEndian.AppendUint64(append(b, codeDouble), math.Float64bits(v))
	case Char:
		return binary.BigEndian.AppendUint32(append(b, codeChar), uint32(v))
	case Decimal:
		return appendDecimal(b, v)
	case time.Time:
		return AppendTimestamp(b, v)
	case UUID:
		return append(append(b, codeUUID), v[:]...)
	case []byte:
		return AppendBinary(b, v)
	case string:
		return AppendString(b, v)
	case Symbol:
		return AppendSymbol(b, v)
	case []string:
		return appendStrings(b, v)
	case []Symbol:
		return appendSymbols(b, v)
	case []int64:
		return appendLongs(b, v)
	case []time.Time:
		return appendTimestamps(b, v)
	case Array:
		return append(b, v...)
	case Described:
		return AppendValue(AppendValue(append(b, codeDescribed), v.Descriptor), v.Value)
	case List:
		b, at := beginCompound(b, codeList32)
		for _, e := range v {
			b = AppendValue(b, e)
		}
		return endCompound(b, at, len(v))
	case Map:
		b, at := beginCompound(b, codeMap32)
		for _, p := range v {
			b = AppendValue(AppendValue(b, p.Key), p.Value)
		}
		return endCompound(b, at, 2*len(v))
	}
	panic(fmt.Sprintf("amqp: no encoding for %T", v))
}

func appendDecimal(b []byte, v Decimal) []byte {
	switch len(v) {
	case 4:
		b = append(b, codeDecimal32)
	case 8:
		b = append(b, codeDecimal64)
	case 16:
		b = append(b, codeDecimal128)
	default:
		panic(fmt.Sprintf("amqp: a decimal of %d bytes", len(v)))
	}
	return append(b, v...)
}

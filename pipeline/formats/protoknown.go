package formats

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// known writes one of Protobuf's own messages.
func (w *protoWalk) known(m *protoMessage, at protoPlace) error {
	base := w.index(m, at)
	defer func() { w.marks = w.marks[:base] }()
	field := func(number protowire.Number) (f *protoField, from, to int) {
		f = m.find(number)
		return f, int(w.marks[base+f.index]), int(w.marks[base+f.index+1])
	}
	switch m.known {
	case knownWrapper, knownStruct, knownList:
		return w.field(field(1))
	case knownValue:
		return w.anyKind(m, base)
	case knownMask:
		return w.mask(field(1))
	case knownAny:
		_, from, to := field(1)
		_, fromValue, toValue := field(2)
		return w.any(from, to, fromValue, toValue)
	}
	seconds, nanos := int64(0), int64(0)
	if f, from, to := field(1); from < to {
		_, _, b := w.value(to - 1)
		seconds = f.signed(b)
	}
	if f, from, to := field(2); from < to {
		_, _, b := w.value(to - 1)
		nanos = f.signed(b)
	}
	if m.known == knownDuration {
		return w.duration(seconds, nanos)
	}
	return w.timestamp(seconds, nanos)
}

// anyKind writes a google.protobuf.Value.
func (w *protoWalk) anyKind(m *protoMessage, base int) error {
	for i, f := range m.fields {
		from, to := int(w.marks[base+i]), int(w.marks[base+i+1])
		if from == to {
			continue
		}
		if _, _, b := w.value(to - 1); f.kind == protoreflect.DoubleKind {
			if v := math.Float64frombits(f.raw(b)); math.IsNaN(v) || math.IsInf(v, 0) {
				return fmt.Errorf("a google.protobuf.Value is %v, which JSON does not have", v)
			}
		}
		return w.field(f, from, to)
	}
	return errors.New("a google.protobuf.Value has none of its fields")
}

// fraction removes zeros from nine digits after a point, three at a time.
func fraction(out []byte) []byte {
	for _, zeros := range []string{"000", "000", ".000"} {
		out = bytes.TrimSuffix(out, []byte(zeros))
	}
	return out
}

func (w *protoWalk) timestamp(seconds, nanos int64) error {
	at := time.Unix(seconds, nanos).UTC()
	const least, most = -62135596800, 253402300799 // the years 1 to 9999
	if seconds < least || seconds > most || nanos < 0 || nanos > 999999999 {
		return fmt.Errorf("a google.protobuf.Timestamp of %d seconds and %d nanoseconds is out of range", seconds, nanos)
	}
	w.out = fraction(at.AppendFormat(append(w.out, '"'), "2006-01-02T15:04:05.000000000"))
	w.out = append(w.out, `Z"`...)
	return w.room()
}

func (w *protoWalk) duration(seconds, nanos int64) error {
	const most = 315576000000
	if seconds < -most || seconds > most || nanos < -999999999 || nanos > 999999999 || seconds > 0 && nanos < 0 || seconds < 0 && nanos > 0 {
		return fmt.Errorf("a google.protobuf.Duration of %d seconds and %d nanoseconds is out of range", seconds, nanos)
	}
	w.out = append(w.out, '"')
	if seconds < 0 || nanos < 0 {
		w.out, seconds, nanos = append(w.out, '-'), -seconds, -nanos
	}
	w.out = fraction(fmt.Appendf(strconv.AppendInt(w.out, seconds, 10), ".%09d", nanos))
	w.out = append(w.out, `s"`...)
	return w.room()
}

// mask writes a google.protobuf.FieldMask: its paths, in camel case.
func (w *protoWalk) mask(_ *protoField, from, to int) error {
	w.out = append(w.out, '"')
	for mark := from; mark < to; mark++ {
		path := content(w.value(mark))
		if len(path) > w.limit-len(w.out) {
			return errTooLarge
		}
		if !protoreflect.FullName(path).IsValid() {
			return fmt.Errorf("a google.protobuf.FieldMask has the invalid path %.40q", path)
		}
		for i := 0; i < len(path); i++ {
			switch c := path[i]; {
			case c >= 'A' && c <= 'Z', c == '_' && (i+1 == len(path) || path[i+1] < 'a' || path[i+1] > 'z'): // which is another path in camel case
				return fmt.Errorf("a google.protobuf.FieldMask has the irreversible path %.40q", path)
			case c == '_':
				i++
				w.out = append(w.out, path[i]-'a'+'A')
			default:
				w.out = append(w.out, c)
			}
		}
		if mark+1 < to {
			w.out = append(w.out, ',')
		}
	}
	w.out = append(w.out, '"')
	return w.room()
}

// any writes a google.protobuf.Any: the message in it, with its type.
func (w *protoWalk) any(from, to, fromValue, toValue int) error {
	var url, value []byte
	if from < to {
		url = content(w.value(to - 1))
	}
	if fromValue < toValue {
		value = content(w.value(toValue - 1))
	}
	if len(url) == 0 {
		if len(value) > 0 {
			return errors.New("a google.protobuf.Any has a value without a type")
		}
		w.out = append(w.out, "{}"...)
		return w.room()
	}
	found, err := w.schema.types.FindMessageByURL(string(url[:min(len(url), 1000)]))
	if err != nil {
		return fmt.Errorf("a google.protobuf.Any is a %.60q, which its schema does not have", url)
	}
	m := w.schema.plan(found.Descriptor())
	if w.anys++; w.anys > maxMessageDepth {
		return errMessages
	}
	defer func() { w.anys-- }()
	if err := m.check(value, 1); err != nil {
		return fmt.Errorf("a google.protobuf.Any is no %.60q: %w", url, err)
	}
	whole := w.whole
	w.whole = false // as in Protobuf's own implementation
	defer func() { w.whole = whole }()
	w.out = append(w.out, `{"@type":`...)
	if err := w.text(url); err != nil {
		return err
	}
	w.out = append(w.out, ',')
	at := protoPlace{max(fromValue, toValue-1), toValue} // the last value
	if m.known == knownNone {
		if err := w.members(m, at); err != nil {
			return err
		}
	} else {
		w.out = append(w.out, `"value":`...)
		if err := w.known(m, at); err != nil {
			return err
		}
	}
	w.close('}')
	return w.room()
}

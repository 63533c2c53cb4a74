package formats

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// protoWalk makes JSON of a body that has been checked, while it reads it: it takes memory for what
// it has written, and four bytes for each field that the body has.
type protoWalk struct {
	jsonWriter
	schema *ProtoSchema
	in     []byte
	marks  []uint32 // where the fields are of the messages around the value that is read
	whole  bool     // required fields must be there
	anys   int      // how many google.protobuf.Any are around the value
}

// protoPlace says where a message is in the body: in the fields that the marks from the first one
// to before the last one are of, which are merged.
type protoPlace struct{ from, to int }

// wholeBody is where the message is that is not in another one.
var wholeBody = protoPlace{-1, -1}

var protoWalks = sync.Pool{New: func() any { return new(protoWalk) }}

// message writes the message at a place.
func (w *protoWalk) message(m *protoMessage, at protoPlace) error {
	if m.known != knownNone {
		return w.known(m, at)
	}
	w.out = append(w.out, '{')
	if err := w.members(m, at); err != nil {
		return err
	}
	w.close('}')
	return w.room()
}

// close ends an object or array: in place of the comma after the last entry, if there is one.
func (w *protoWalk) close(with byte) {
	if last := len(w.out) - 1; w.out[last] == ',' {
		w.out[last] = with
	} else {
		w.out = append(w.out, with)
	}
}

// members writes the fields of a message, each with a comma.
func (w *protoWalk) members(m *protoMessage, at protoPlace) error {
	base := w.index(m, at)
	for i, f := range m.fields {
		from, to := int(w.marks[base+i]), int(w.marks[base+i+1])
		if from == to {
			if f.required && w.whole {
				return fmt.Errorf("required field %s not set", f.text)
			}
			if f.presence {
				continue
			}
		}
		if len(f.key) > w.limit-len(w.out) {
			return errTooLarge
		}
		w.out = append(w.out, f.key...)
		before := len(w.out)
		if err := w.field(f, from, to); err != nil {
			return err
		}
		if f.presence && f.list && len(w.out) == before+len("[]") { // an extension without values
			w.out = w.out[:before-len(f.key)]
			continue
		}
		w.out = append(w.out, ',')
	}
	w.marks = w.marks[:base]
	return nil
}

// index finds the fields of a message, and returns the index in marks from which on it has for each
// field of the message where its marks begin, and where the last ones end.
func (w *protoWalk) index(m *protoMessage, place protoPlace) int {
	base := len(w.marks)
	count := len(m.fields) + 1
	// Of a oneof: which field it has, and since where; others do not count.
	w.marks = append(w.marks, make([]uint32, count+2*m.oneofs)...)
	starts, oneofs := w.marks[base:base+count], w.marks[base+count:]
	w.scan(m, place, func(f *protoField, at uint32) {
		if f.oneof >= 0 {
			if has := oneofs[2*f.oneof:]; has[0] != uint32(f.index)+1 {
				if has[0] > 0 {
					starts[has[0]] = 0
				}
				has[0], has[1] = uint32(f.index)+1, at
			}
		}
		starts[f.index+1]++
	})
	next := uint32(len(w.marks))
	starts[0] = next
	for i := 1; i < count; i++ {
		next += starts[i]
		starts[i] = next
	}
	w.marks = slices.Grow(w.marks, int(next)-len(w.marks))[:next]
	starts, oneofs = w.marks[base:base+count], w.marks[base+count:]
	w.scan(m, place, func(f *protoField, at uint32) {
		if f.oneof >= 0 {
			if has := oneofs[2*f.oneof:]; has[0] != uint32(f.index)+1 || at < has[1] {
				return
			}
		}
		w.marks[starts[f.index]] = at
		starts[f.index]++
	})
	copy(starts[1:], starts[:count-1]) // each has become the start of the next one
	starts[0] = uint32(base + count + 2*m.oneofs)
	return base
}

// scan calls yield with each field of a message that is in the body, and where its tag is.
func (w *protoWalk) scan(m *protoMessage, place protoPlace, yield func(f *protoField, at uint32)) {
	if place == wholeBody {
		w.scanBytes(m, w.in, yield)
		return
	}
	for mark := place.from; mark < place.to; mark++ {
		w.scanBytes(m, content(w.value(mark)), yield)
	}
}

// scanBytes is scan of a part of the body.
func (w *protoWalk) scanBytes(m *protoMessage, b []byte, yield func(f *protoField, at uint32)) {
	for len(b) > 0 {
		number, wire, n := protowire.ConsumeTag(b)
		if f := m.find(number); f != nil && f.takes(wire) {
			yield(f, w.place(b))
		}
		b = b[n:]
		b = b[protowire.ConsumeFieldValue(number, wire, b):]
	}
}

// place returns where a part of the body begins.
func (w *protoWalk) place(b []byte) uint32 { return uint32(cap(w.in) - cap(b)) }

// value returns the wire type of the field at a mark, and its value.
func (w *protoWalk) value(mark int) (protowire.Number, protowire.Type, []byte) {
	b := w.in[w.marks[mark]:]
	number, wire, n := protowire.ConsumeTag(b)
	return number, wire, b[n:]
}

// field writes the value of a field that has marks, or the value of none.
func (w *protoWalk) field(f *protoField, from, to int) error {
	switch {
	case f.entry != nil:
		return w.object(f, from, to)
	case f.list:
		return w.array(f, from, to)
	case f.message != nil:
		return w.message(f.message, protoPlace{from, to})
	case from == to:
		return w.scalar(f, nil)
	}
	_, _, b := w.value(to - 1)
	return w.scalar(f, b)
}

func (w *protoWalk) array(f *protoField, from, to int) error {
	w.out = append(w.out, '[')
	for mark := from; mark < to; mark++ {
		number, wire, b := w.value(mark)
		switch {
		case f.message != nil:
			if err := w.message(f.message, protoPlace{mark, mark + 1}); err != nil {
				return err
			}
			w.out = append(w.out, ',')
		case f.packable && wire == protowire.BytesType:
			for b = content(number, wire, b); len(b) > 0; b = b[protowire.ConsumeFieldValue(number, f.wire, b):] {
				if err := w.scalar(f, b); err != nil {
					return err
				}
				w.out = append(w.out, ',')
			}
		default:
			if err := w.scalar(f, b); err != nil {
				return err
			}
			w.out = append(w.out, ',')
		}
	}
	w.close(']')
	return w.room()
}

// object writes a map: sorted by key. Of entries with the same key the last one counts.
func (w *protoWalk) object(f *protoField, from, to int) error {
	w.out = append(w.out, '{')
	key, value := f.entry[0], f.entry[1]
	marks := w.marks[from:to]
	slices.SortFunc(marks, func(a, b uint32) int { return cmp.Or(w.compare(key, a, b), cmp.Compare(a, b)) })
	for mark := from; mark < to; mark++ {
		at := w.marks[mark]
		if mark+1 < to && w.compare(key, at, w.marks[mark+1]) == 0 {
			continue
		}
		if err := w.name(key, w.last(key, at)); err != nil {
			return err
		}
		if err := w.entry(value, at); err != nil {
			return err
		}
		w.out = append(w.out, ',')
	}
	w.close('}')
	return w.room()
}

// entry writes the value of an entry of a map.
func (w *protoWalk) entry(value *protoField, at uint32) error {
	if value.message == nil {
		return w.scalar(value, w.last(value, at))
	}
	first := len(w.marks)
	w.parts(at, func(number protowire.Number, wire protowire.Type, tag, _ []byte) {
		if number == 2 && wire == value.wire {
			w.marks = append(w.marks, w.place(tag))
		}
	})
	err := w.message(value.message, protoPlace{first, len(w.marks)})
	w.marks = w.marks[:first]
	return err
}

// parts calls yield with the fields of the entry of a map whose tag is at a place.
func (w *protoWalk) parts(at uint32, yield func(number protowire.Number, wire protowire.Type, tag, b []byte)) {
	number, wire, n := protowire.ConsumeTag(w.in[at:])
	for b := content(number, wire, w.in[int(at)+n:]); len(b) > 0; {
		number, wire, n := protowire.ConsumeTag(b)
		tag := b
		b = b[n:]
		yield(number, wire, tag, b)
		b = b[protowire.ConsumeFieldValue(number, wire, b):]
	}
}

// last returns the last key or value in an entry of a map; nil: it has none.
func (w *protoWalk) last(f *protoField, at uint32) (found []byte) {
	w.parts(at, func(number protowire.Number, wire protowire.Type, _, b []byte) {
		if number == f.Number() && wire == f.wire {
			found = b
		}
	})
	return found
}

// compare compares the keys of two entries of a map.
func (w *protoWalk) compare(key *protoField, a, b uint32) int {
	x, y := w.last(key, a), w.last(key, b)
	switch key.kind {
	case protoreflect.StringKind:
		x, _ = protowire.ConsumeBytes(x)
		y, _ = protowire.ConsumeBytes(y)
		return bytes.Compare(x, y)
	case protoreflect.Uint32Kind, protoreflect.Uint64Kind, protoreflect.Fixed32Kind, protoreflect.Fixed64Kind:
		return cmp.Compare(key.unsigned(x), key.unsigned(y))
	}
	return cmp.Compare(key.signed(x), key.signed(y))
}

// name writes the key of a map.
func (w *protoWalk) name(key *protoField, b []byte) error {
	quoted := key.kind == protoreflect.StringKind || key.is64()
	if !quoted {
		w.out = append(w.out, '"')
	}
	if err := w.scalar(key, b); err != nil {
		return err
	}
	if !quoted {
		w.out = append(w.out, '"')
	}
	w.out = append(w.out, ':')
	return nil
}

// raw returns the bits of a number; 0 if there is none.
func (f *protoField) raw(b []byte) uint64 {
	var v uint64
	switch f.wire {
	case protowire.VarintType:
		v, _ = protowire.ConsumeVarint(b)
	case protowire.Fixed32Type:
		n, _ := protowire.ConsumeFixed32(b)
		v = uint64(n)
	case protowire.Fixed64Type:
		v, _ = protowire.ConsumeFixed64(b)
	}
	return v
}

// signed returns the value of a signed number or a boolean.
func (f *protoField) signed(b []byte) int64 {
	switch v := f.raw(b); f.kind {
	case protoreflect.Sint32Kind:
		return int64(int32(protowire.DecodeZigZag(v & math.MaxUint32)))
	case protoreflect.Sint64Kind:
		return protowire.DecodeZigZag(v)
	case protoreflect.Int64Kind, protoreflect.Sfixed64Kind:
		return int64(v)
	case protoreflect.BoolKind:
		return int64(min(v, 1))
	default:
		return int64(int32(v))
	}
}

// unsigned returns the value of an unsigned number.
func (f *protoField) unsigned(b []byte) uint64 {
	if f.kind == protoreflect.Uint32Kind || f.kind == protoreflect.Fixed32Kind {
		return uint64(uint32(f.raw(b)))
	}
	return f.raw(b)
}

// is64 reports whether a field is a whole number of 64 bits, which is a text in JSON.
func (f *protoField) is64() bool {
	switch f.kind {
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind, protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return true
	}
	return false
}

// scalar writes a value that is no message, or the default value if there is none.
func (w *protoWalk) scalar(f *protoField, b []byte) error {
	switch f.kind {
	case protoreflect.BoolKind:
		w.out = strconv.AppendBool(w.out, f.raw(b) != 0)
	case protoreflect.EnumKind:
		return w.enum(f, b)
	case protoreflect.FloatKind:
		w.real(float64(math.Float32frombits(uint32(f.raw(b)))), 32)
	case protoreflect.DoubleKind:
		w.real(math.Float64frombits(f.raw(b)), 64)
	case protoreflect.StringKind:
		b, _ = protowire.ConsumeBytes(b)
		return w.string(f, b)
	case protoreflect.BytesKind:
		b, _ = protowire.ConsumeBytes(b)
		return w.base64(b)
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		w.out = append(strconv.AppendUint(append(w.out, '"'), f.unsigned(b), 10), '"')
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		w.out = strconv.AppendUint(w.out, f.unsigned(b), 10)
	default:
		if f.is64() {
			w.out = append(strconv.AppendInt(append(w.out, '"'), f.signed(b), 10), '"')
		} else {
			w.out = strconv.AppendInt(w.out, f.signed(b), 10)
		}
	}
	return w.room()
}

// enum writes the name of a value, or its number if it has no name.
func (w *protoWalk) enum(f *protoField, b []byte) error {
	if f.null {
		w.out = append(w.out, "null"...)
		return w.room()
	}
	number := protoreflect.EnumNumber(f.raw(b))
	if b == nil {
		number = f.Default().Enum()
	}
	value := f.Enum().Values().ByNumber(number)
	if value == nil {
		w.out = strconv.AppendInt(w.out, int64(number), 10)
		return w.room()
	}
	w.out = append(append(append(w.out, '"'), value.Name()...), '"')
	return w.room()
}

// string writes a text.
func (w *protoWalk) string(f *protoField, b []byte) error {
	if err := w.text(b); err != nil {
		return err
	}
	if w.hasNoText {
		return fmt.Errorf("field %s contains invalid UTF-8", f.text)
	}
	return nil
}

// real writes a number as encoding/json does.
func (w *protoWalk) real(f float64, bits int) {
	abs := math.Abs(f)
	if abs == 0 || math.IsNaN(f) || math.IsInf(f, 0) || bits == 64 && abs >= 1e-6 && abs < 1e21 || bits == 32 && float32(abs) >= 1e-6 && float32(abs) < 1e21 {
		if math.IsNaN(f) || math.IsInf(f, 0) {
			w.float(f, bits)
			return
		}
		w.out = strconv.AppendFloat(w.out, f, 'f', -1, bits)
		return
	}
	w.out = strconv.AppendFloat(w.out, f, 'e', -1, bits)
	if n := len(w.out); n >= 4 && string(w.out[n-4:n-1]) == "e-0" { // e-09 becomes e-9
		w.out[n-2] = w.out[n-1]
		w.out = w.out[:n-1]
	}
}

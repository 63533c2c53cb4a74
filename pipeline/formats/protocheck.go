package formats

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

var (
	errWire     = errors.New("cannot parse invalid wire-format data")
	errMessages = fmt.Errorf("messages nest deeper than %d levels", maxMessageDepth)
)

// check reports whether bytes are a message, whatever becomes of its fields. A field that the
// message does not have, or whose value is of another wire type, is skipped.
func (m *protoMessage) check(b []byte, depth int) error {
	switch {
	case depth > maxMessageDepth:
		return errMessages
	case m.refused:
		return fmt.Errorf("a message %s has no JSON", m.name)
	}
	for len(b) > 0 {
		number, wire, n := protowire.ConsumeTag(b)
		if n < 0 || number > protowire.MaxValidNumber {
			return errWire
		}
		b = b[n:]
		size := protowire.ConsumeFieldValue(number, wire, b)
		if size < 0 {
			return errWire
		}
		if f := m.find(number); f != nil && f.takes(wire) {
			if err := f.check(number, wire, b[:size], depth); err != nil {
				return err
			}
		}
		b = b[size:]
	}
	return nil
}

// takes reports whether a value of a wire type is one of the field.
func (f *protoField) takes(wire protowire.Type) bool {
	return wire == f.wire || f.packable && wire == protowire.BytesType
}

// content returns the bytes of a value after their length, or those of a group.
func content(number protowire.Number, wire protowire.Type, b []byte) []byte {
	if wire == protowire.StartGroupType {
		b, _ = protowire.ConsumeGroup(number, b)
		return b
	}
	b, _ = protowire.ConsumeBytes(b)
	return b
}

// check checks a value of the field.
func (f *protoField) check(number protowire.Number, wire protowire.Type, b []byte, depth int) error {
	switch {
	case f.entry != nil:
		return f.checkEntry(content(number, wire, b), depth+1)
	case f.message != nil:
		return f.message.check(content(number, wire, b), depth+1)
	case f.utf8 && wire == protowire.BytesType && !f.packable:
		return f.checkText(content(number, wire, b))
	case f.packable && wire == protowire.BytesType:
		for b = content(number, wire, b); len(b) > 0; {
			n := protowire.ConsumeFieldValue(number, f.wire, b)
			if n < 0 {
				return errWire
			}
			b = b[n:]
		}
	}
	return nil
}

func (f *protoField) checkText(b []byte) error {
	if f.kind == protoreflect.StringKind && !utf8.Valid(b) {
		return fmt.Errorf("field %s contains invalid UTF-8", f.text)
	}
	return nil
}

// checkEntry checks an entry of a map.
func (f *protoField) checkEntry(b []byte, depth int) error {
	if depth > maxMessageDepth {
		return errMessages
	}
	for len(b) > 0 {
		number, wire, n := protowire.ConsumeTag(b)
		if n < 0 || number > protowire.MaxValidNumber {
			return errWire
		}
		b = b[n:]
		size := protowire.ConsumeFieldValue(number, wire, b)
		if size < 0 {
			return errWire
		}
		if number <= 2 && f.entry[number-1].wire == wire {
			if err := f.entry[number-1].check(number, wire, b[:size], depth); err != nil {
				return err
			}
		}
		b = b[size:]
	}
	return nil
}

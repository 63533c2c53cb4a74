package jsonpick

import (
	"bytes"
	"encoding/binary"
	"errors"
	"unicode/utf16"
	"unicode/utf8"
)

// UTF8 returns a JSON document in UTF-8 without a byte order mark. A document in UTF-16 or UTF-32
// is recognized by its mark or its NUL bytes, which JSON in UTF-8 does not have (RFC 4627,
// section 3), and copied. Another document is returned as it is, also if it is no JSON.
func UTF8(doc []byte) ([]byte, error) {
	if len(doc) < 2 || doc[0] != 0 && doc[1] != 0 && doc[0] < 0xef {
		return doc, nil
	}
	switch {
	case bytes.HasPrefix(doc, []byte("\xef\xbb\xbf")):
		return doc[3:], nil
	case bytes.HasPrefix(doc, []byte("\xff\xfe\x00\x00")):
		return fromUTF32(doc[4:], binary.LittleEndian)
	case bytes.HasPrefix(doc, []byte("\x00\x00\xfe\xff")):
		return fromUTF32(doc[4:], binary.BigEndian)
	case bytes.HasPrefix(doc, []byte("\xff\xfe")):
		return fromUTF16(doc[2:], binary.LittleEndian)
	case bytes.HasPrefix(doc, []byte("\xfe\xff")):
		return fromUTF16(doc[2:], binary.BigEndian)
	}
	switch four := append([]byte(nil), doc[:min(len(doc), 4)]...); {
	case len(four) == 4 && four[0] != 0 && four[1]|four[2]|four[3] == 0:
		return fromUTF32(doc, binary.LittleEndian)
	case len(four) == 4 && four[0]|four[1]|four[2] == 0 && four[3] != 0:
		return fromUTF32(doc, binary.BigEndian)
	case four[0] != 0 && four[1] == 0:
		return fromUTF16(doc, binary.LittleEndian)
	case four[0] == 0 && four[1] != 0:
		return fromUTF16(doc, binary.BigEndian)
	}
	return doc, nil
}

var (
	errUTF16 = errors.New("is not JSON: it begins as UTF-16 and is none")
	errUTF32 = errors.New("is not JSON: it begins as UTF-32 and is none")
)

func fromUTF16(doc []byte, order binary.ByteOrder) ([]byte, error) {
	if len(doc)%2 != 0 {
		return nil, errUTF16
	}
	out := make([]byte, 0, len(doc)/2)
	for i := 0; i < len(doc); i += 2 {
		r := rune(order.Uint16(doc[i:]))
		if utf16.IsSurrogate(r) {
			if i += 2; i == len(doc) {
				return nil, errUTF16
			}
			if r = utf16.DecodeRune(r, rune(order.Uint16(doc[i:]))); r == utf8.RuneError {
				return nil, errUTF16
			}
		}
		out = utf8.AppendRune(out, r)
	}
	return out, nil
}

func fromUTF32(doc []byte, order binary.ByteOrder) ([]byte, error) {
	if len(doc)%4 != 0 {
		return nil, errUTF32
	}
	out := make([]byte, 0, len(doc)/4)
	for i := 0; i < len(doc); i += 4 {
		u := order.Uint32(doc[i:])
		if u > utf8.MaxRune || !utf8.ValidRune(rune(u)) {
			return nil, errUTF32
		}
		out = utf8.AppendRune(out, rune(u))
	}
	return out, nil
}

package jsonpick

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/bits"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// text reads a string.
func (s *scanner) text() bool {
	s.at++
	for {
		s.plain()
		if s.at == len(s.doc) {
			return s.unexpected(`a closing "`)
		}
		switch c := s.doc[s.at]; {
		case c == '"':
			s.at++
			return true
		case c == '\\':
			if !s.escape() {
				return false
			}
		default:
			return s.fail("a control character in a string")
		}
	}
}

// plain skips to the next byte of a string that means something: a quote, a
// backslash or a control character. It looks at eight bytes at a time: for
// each of the three questions, a byte's top bit in the sum below is the answer,
// exact up to the first one that is found.
func (s *scanner) plain() {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	i := s.at
	for ; i+8 <= len(s.doc); i += 8 {
		w := binary.LittleEndian.Uint64(s.doc[i:])
		quote := w ^ ones*'"'
		slash := w ^ ones*'\\'
		found := ((quote - ones) &^ quote) | ((slash - ones) &^ slash) | ((w - ones*0x20) &^ w)
		if found &= tops; found != 0 {
			s.at = i + bits.TrailingZeros64(found)/8
			return
		}
	}
	for ; i < len(s.doc); i++ {
		if c := s.doc[i]; c == '"' || c == '\\' || c < 0x20 {
			break
		}
	}
	s.at = i
}

func (s *scanner) escape() bool {
	s.at++
	if s.at == len(s.doc) {
		return s.unexpected("an escape")
	}
	switch s.doc[s.at] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.at++
		return true
	case 'u':
		s.at++
		for range 4 {
			if s.at == len(s.doc) || !isHex(s.doc[s.at]) {
				return s.unexpected("a hexadecimal digit")
			}
			s.at++
		}
		return true
	}
	return s.unexpected("an escape")
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

// errHalf: JSON can spell what no text can hold.
var errHalf = errors.New("has an escape for half of a character")

// Text returns the text of a string value, a slice of the document unless it
// is written with escapes. It fails if an escape names half of a surrogate pair.
func (v Value) Text() ([]byte, error) {
	raw := v.Raw[1 : len(v.Raw)-1]
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw, nil
	}
	text, whole := appendText(make([]byte, 0, len(raw)), raw)
	if !whole {
		return nil, errHalf
	}
	return text, nil
}

// appendText appends the text of a checked string's inside. A half of a
// surrogate pair becomes the replacement character, and whole is false.
func appendText(to, raw []byte) (text []byte, whole bool) {
	text, whole = to, true
	for {
		i := bytes.IndexByte(raw, '\\')
		if i < 0 {
			return append(text, raw...), whole
		}
		text = append(text, raw[:i]...)
		c := raw[i+1]
		raw = raw[i+2:]
		switch c {
		case 'b':
			text = append(text, '\b')
		case 'f':
			text = append(text, '\f')
		case 'n':
			text = append(text, '\n')
		case 'r':
			text = append(text, '\r')
		case 't':
			text = append(text, '\t')
		case 'u':
			r := hex4(raw)
			raw = raw[4:]
			if utf16.IsSurrogate(r) {
				pair := rune(utf8.RuneError)
				if len(raw) >= 6 && raw[0] == '\\' && raw[1] == 'u' {
					pair = utf16.DecodeRune(r, hex4(raw[2:]))
				}
				if r = pair; r == utf8.RuneError {
					whole = false
				} else {
					raw = raw[6:]
				}
			}
			text = utf8.AppendRune(text, r)
		default:
			text = append(text, c)
		}
	}
}

func hex4(raw []byte) rune {
	n, _ := strconv.ParseUint(string(raw[:4]), 16, 16)
	return rune(n)
}

// Package jsonscan checks JSON and finds what is in it, without building
// values: what it returns are slices of the text that it reads.
//
// It accepts what encoding/json accepts, provided that strings are valid UTF-8
// and that arrays and objects nest no deeper than the caller allows.
package jsonscan

import (
	"bytes"
	"fmt"
	"math"
	"unicode/utf8"
)

// Scanner reads a JSON text once, from its beginning to its end. After an error
// it must not be used any more.
type Scanner struct {
	data     []byte
	offset   int // everything before it has been read
	depth    int // arrays and objects that are open
	maxDepth int
	scalars  int
}

// New returns a scanner of data, in which arrays and objects nest at most
// maxDepth deep.
func New(data []byte, maxDepth int) *Scanner { return &Scanner{data: data, maxDepth: maxDepth} }

// SyntaxError says where a text stops being JSON. All errors of a [Scanner] are
// of this type, except those that a caller's function returned.
type SyntaxError struct {
	Offset int // in bytes
	Reason string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("not JSON at byte %d: %s", e.Offset, e.Reason)
}

// Offset returns how many bytes have been read.
func (s *Scanner) Offset() int { return s.offset }

// TextFrom returns the text that was read since the scanner was at offset.
func (s *Scanner) TextFrom(offset int) []byte { return s.data[offset:s.offset] }

// Scalars returns how many strings, numbers, booleans and nulls have been read,
// keys of objects not counted.
func (s *Scanner) Scalars() int { return s.scalars }

// Peek skips white space and returns the byte after it, which it doesn't read;
// 0 at the end.
func (s *Scanner) Peek() byte {
	if s.offset < len(s.data) && s.data[s.offset] > ' ' { // mostly; it is inlined
		return s.data[s.offset]
	}
	return s.space()
}

func (s *Scanner) space() byte {
	for s.offset < len(s.data) {
		switch c := s.data[s.offset]; c {
		case ' ', '\t', '\n', '\r':
			s.offset++
		default:
			return c
		}
	}
	return 0
}

// End checks that nothing but white space is left.
func (s *Scanner) End() error {
	if s.Peek(); s.offset < len(s.data) {
		return s.fail(s.here() + " after the value")
	}
	return nil
}

// Value reads any value and returns its text, without white space around it.
func (s *Scanner) Value() ([]byte, error) {
	first := s.Peek()
	from := s.offset
	err := s.value(first)
	return s.data[from:s.offset], err
}

// value reads the value that begins with c, the next byte.
func (s *Scanner) value(c byte) error {
	switch c {
	case '{':
		return s.Object(nil)
	case '[':
		return s.Array(nil)
	}
	s.scalars++
	switch c {
	case '"':
		_, err := s.text()
		return err
	case 't':
		return s.word("true")
	case 'f':
		return s.word("false")
	case 'n':
		return s.word("null")
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		return s.number()
	}
	return s.unexpected("a value")
}

// Object reads an object. It calls member at each value, with the key as it is
// written, in its quotes; member must read the value. If member is nil, the
// values are skipped.
func (s *Scanner) Object(member func(key []byte) error) error {
	if err := s.open('{'); err != nil {
		return err
	}
	if s.take('}') {
		s.depth--
		return nil
	}
	for {
		if s.Peek() != '"' {
			return s.unexpected("a key in double quotes")
		}
		key, err := s.text()
		if err != nil {
			return err
		}
		if !s.take(':') {
			return s.unexpected("a colon")
		}
		if member != nil {
			err = member(key)
		} else {
			err = s.value(s.Peek())
		}
		if err != nil {
			return err
		}
		if s.take('}') {
			s.depth--
			return nil
		}
		if !s.take(',') {
			return s.unexpected("a comma or }")
		}
	}
}

// Array reads an array. It calls element at each value, which element must
// read. If element is nil, the values are skipped.
func (s *Scanner) Array(element func() error) error {
	if err := s.open('['); err != nil {
		return err
	}
	if s.take(']') {
		s.depth--
		return nil
	}
	for {
		var err error
		if element != nil {
			err = element()
		} else {
			err = s.value(s.Peek())
		}
		if err != nil {
			return err
		}
		if s.take(']') {
			s.depth--
			return nil
		}
		if !s.take(',') {
			return s.unexpected("a comma or ]")
		}
	}
}

// open reads the bracket that begins an array or object.
func (s *Scanner) open(bracket byte) error {
	switch {
	case s.Peek() != bracket:
		return s.unexpected(string(bracket))
	case s.depth == s.maxDepth:
		return s.fail("nested too deep")
	}
	s.depth++
	s.offset++
	return nil
}

// take skips white space, and reads c if it is next.
func (s *Scanner) take(c byte) bool {
	if s.Peek() != c {
		return false
	}
	s.offset++
	return true
}

// next reads c if it is the next byte.
func (s *Scanner) next(c byte) bool {
	if s.offset < len(s.data) && s.data[s.offset] == c {
		s.offset++
		return true
	}
	return false
}

func (s *Scanner) word(w string) error {
	if bytes.HasPrefix(s.data[s.offset:], []byte(w)) {
		s.offset += len(w)
		return nil
	}
	for i := 0; s.next(w[i]); i++ {
	}
	return s.unexpected("the rest of " + w)
}

// IsNumber reports whether text is a JSON number.
func IsNumber(text []byte) bool {
	s := Scanner{data: text}
	return s.number() == nil && s.offset == len(text)
}

func (s *Scanner) number() error {
	s.next('-')
	if !s.next('0') && !s.digits() {
		return s.unexpected("a digit")
	}
	if s.next('.') && !s.digits() {
		return s.unexpected("a digit")
	}
	if s.next('e') || s.next('E') {
		if !s.next('+') {
			s.next('-')
		}
		if !s.digits() {
			return s.unexpected("a digit")
		}
	}
	return nil
}

// digits reads at least one digit.
func (s *Scanner) digits() bool {
	start := s.offset
	for s.offset < len(s.data) && s.data[s.offset] >= '0' && s.data[s.offset] <= '9' {
		s.offset++
	}
	return s.offset > start
}

func (s *Scanner) fail(reason string) error { return &SyntaxError{s.offset, reason} }

// unexpected fails at the current byte.
func (s *Scanner) unexpected(want string) error {
	if r, n := utf8.DecodeRune(s.data[s.offset:]); r == utf8.RuneError && n == 1 {
		return s.fail(notUTF8)
	}
	return s.fail(s.here() + " where " + want + " should be")
}

const notUTF8 = "not UTF-8"

// here describes the current byte.
func (s *Scanner) here() string {
	if s.offset >= len(s.data) {
		return "the end"
	}
	r, _ := utf8.DecodeRune(s.data[s.offset:])
	return fmt.Sprintf("%q", r)
}

// Lookup returns the value at a path of keys in valid JSON, and whether there is
// one. If an object has a key twice, the last one counts.
func Lookup(value []byte, path []string) (found []byte, ok bool) {
	for _, key := range path {
		s := New(value, math.MaxInt)
		if s.Peek() != '{' {
			return nil, false
		}
		ok = false
		err := s.Object(func(name []byte) error {
			v, err := s.Value()
			if err == nil && Equal(name, key) {
				found, ok = v, true
			}
			return err
		})
		if err != nil || !ok {
			return nil, false
		}
		value = found
	}
	return value, true
}

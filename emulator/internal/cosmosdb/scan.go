package cosmosdb

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"
)

// scanner walks over JSON and checks it, without copying and without building values.
type scanner struct {
	data  []byte
	at    int
	depth int
	// values counts the strings, numbers, booleans and nulls that were passed.
	values int
}

const maxDepth = 128 // of Cosmos' documents

var errJSON = errors.New("the request body is not valid JSON")

func (s *scanner) space() {
	for s.at < len(s.data) {
		switch s.data[s.at] {
		case ' ', '\t', '\n', '\r':
			s.at++
		default:
			return
		}
	}
}

// peek is the next byte that isn't white space, 0 at the end.
func (s *scanner) peek() byte {
	s.space()
	if s.at == len(s.data) {
		return 0
	}
	return s.data[s.at]
}

func (s *scanner) take(c byte) bool {
	if s.peek() != c {
		return false
	}
	s.at++
	return true
}

// end checks that nothing is left.
func (s *scanner) end() error {
	if s.peek() != 0 || s.at != len(s.data) {
		return errJSON
	}
	return nil
}

// value passes a value, and returns its text.
func (s *scanner) value() ([]byte, error) {
	first := s.peek()
	from := s.at
	var err error
	switch first {
	case '"':
		s.values++
		_, err = s.text()
	case '{':
		err = s.object(nil)
	case '[':
		err = s.array(nil)
	case 't':
		err = s.word("true")
	case 'f':
		err = s.word("false")
	case 'n':
		err = s.word("null")
	default:
		s.values++
		err = s.number()
	}
	return s.data[from:s.at], err
}

func (s *scanner) word(w string) error {
	if len(s.data)-s.at < len(w) || string(s.data[s.at:s.at+len(w)]) != w {
		return errJSON
	}
	s.at += len(w)
	s.values++
	return nil
}

// object passes an object. With a member function that is called at each value, with the name in its quotes, and passes the value.
func (s *scanner) object(member func(name []byte) error) error {
	if !s.take('{') {
		return errJSON
	}
	if s.depth++; s.depth > maxDepth {
		return errJSON
	}
	defer func() { s.depth-- }()
	if s.take('}') {
		return nil
	}
	for {
		if s.peek() != '"' {
			return errJSON
		}
		name, err := s.text()
		if err != nil {
			return err
		}
		if !s.take(':') {
			return errJSON
		}
		if member != nil {
			err = member(name)
		} else {
			_, err = s.value()
		}
		if err != nil {
			return err
		}
		switch {
		case s.take(','):
		case s.take('}'):
			return nil
		default:
			return errJSON
		}
	}
}

// array passes an array. With an item function that is called at each value, and passes it.
func (s *scanner) array(item func() error) error {
	if !s.take('[') {
		return errJSON
	}
	if s.depth++; s.depth > maxDepth {
		return errJSON
	}
	defer func() { s.depth-- }()
	if s.take(']') {
		return nil
	}
	for {
		var err error
		if item != nil {
			err = item()
		} else {
			_, err = s.value()
		}
		if err != nil {
			return err
		}
		switch {
		case s.take(','):
		case s.take(']'):
			return nil
		default:
			return errJSON
		}
	}
}

// text passes a string, and returns it with its quotes.
func (s *scanner) text() ([]byte, error) {
	from := s.at
	ascii := true
	i := s.at + 1
	for {
		// Eight bytes at a time: none is a quote, a backslash, a control character, or beyond ASCII.
		for len(s.data)-i >= 8 {
			if odd := special(binary.LittleEndian.Uint64(s.data[i:])); odd != 0 {
				i += bits.TrailingZeros64(odd) / 8
				break
			}
			i += 8
		}
		if i >= len(s.data) {
			return nil, errJSON
		}
		switch c := s.data[i]; {
		case c == '"':
			s.at = i + 1
			text := s.data[from:s.at]
			if !ascii && !utf8.Valid(text) {
				return nil, errJSON
			}
			return text, nil
		case c == '\\':
			n := escape(s.data[i:])
			if n == 0 {
				return nil, errJSON
			}
			i += n
		case c < ' ':
			return nil, errJSON
		default:
			ascii = ascii && c < utf8.RuneSelf
			i++
		}
	}
}

// special has the high bit set of the first byte that isn't plain text, and perhaps of such after it.
func special(w uint64) uint64 {
	const low, high = 0x0101010101010101, 0x8080808080808080
	quote := w ^ low*'"'
	slash := w ^ low*'\\'
	return ((quote-low)&^quote | (slash-low)&^slash | (w-low*' ')&^w | w) & high
}

// escape is the length of an escape sequence, 0 if it is none.
func escape(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	switch b[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		if len(b) < 6 {
			return 0
		}
		for _, c := range b[2:6] {
			if !(c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'f') {
				return 0
			}
		}
		return 6
	}
	return 0
}

func (s *scanner) number() error {
	digits := func() bool {
		from := s.at
		for s.at < len(s.data) && s.data[s.at] >= '0' && s.data[s.at] <= '9' {
			s.at++
		}
		return s.at > from
	}
	next := func(set string) bool {
		if s.at < len(s.data) && bytes.IndexByte([]byte(set), s.data[s.at]) >= 0 {
			s.at++
			return true
		}
		return false
	}
	next("-")
	if !next("0") && !digits() {
		return errJSON
	}
	if next(".") && !digits() {
		return errJSON
	}
	if next("eE") {
		next("+-")
		if !digits() {
			return errJSON
		}
	}
	return nil
}

// unquote is what a string that was passed says.
func unquote(text []byte) []byte {
	inner := text[1 : len(text)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return inner
	}
	return appendUnquoted(make([]byte, 0, len(inner)), text)
}

// appendUnquoted appends what a string that was passed says. A lone half of a surrogate pair becomes the replacement character.
func appendUnquoted(dst, text []byte) []byte {
	inner := text[1 : len(text)-1]
	for len(inner) > 0 {
		i := bytes.IndexByte(inner, '\\')
		if i < 0 {
			return append(dst, inner...)
		}
		dst = append(dst, inner[:i]...)
		c := inner[i+1]
		inner = inner[i+2:]
		switch c {
		case 'b':
			dst = append(dst, '\b')
		case 'f':
			dst = append(dst, '\f')
		case 'n':
			dst = append(dst, '\n')
		case 'r':
			dst = append(dst, '\r')
		case 't':
			dst = append(dst, '\t')
		case 'u':
			r := unit(inner)
			inner = inner[4:]
			if utf16.IsSurrogate(r) {
				low := rune(utf8.RuneError)
				if len(inner) >= 6 && inner[0] == '\\' && inner[1] == 'u' {
					low = unit(inner[2:])
				}
				if r = utf16.DecodeRune(r, low); r != utf8.RuneError {
					inner = inner[6:]
				}
			}
			dst = utf8.AppendRune(dst, r)
		default:
			dst = append(dst, c)
		}
	}
	return dst
}

// unit is the number in four hex digits.
func unit(b []byte) (r rune) {
	for _, c := range b[:4] {
		d := rune(c - '0')
		if c > '9' {
			d = rune(c|0x20-'a') + 10
		}
		r = r<<4 | d
	}
	return r
}

// is tells whether a name that was passed says want.
func is(name []byte, want string) bool {
	inner := name[1 : len(name)-1]
	return string(inner) == want || len(inner) > len(want) && bytes.IndexByte(inner, '\\') >= 0 && string(unquote(name)) == want
}

// lookup finds the value at a path in a valid document, of several of one name the last.
func lookup(value []byte, path []string) (found []byte, ok bool) {
	for _, p := range path {
		s := scanner{data: value}
		if s.peek() != '{' {
			return nil, false
		}
		ok = false
		err := s.object(func(name []byte) error {
			v, err := s.value()
			if err == nil && is(name, p) {
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

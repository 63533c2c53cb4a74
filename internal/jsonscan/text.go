package jsonscan

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"
)

// Text reads a string and returns it as it is written, in its quotes.
func (s *Scanner) Text() ([]byte, error) {
	if s.Peek() != '"' {
		return nil, s.unexpected("a string")
	}
	s.scalars++
	return s.text()
}

// text is [Scanner.Text] at the opening quote.
func (s *Scanner) text() ([]byte, error) {
	from := s.offset
	s.offset++
	ascii := true
	for {
		ascii = s.plain() && ascii
		if s.offset == len(s.data) {
			return nil, s.unexpected(`a closing "`)
		}
		switch s.data[s.offset] {
		case '"':
			s.offset++
			text := s.data[from:s.offset]
			if !ascii && !utf8.Valid(text) {
				s.offset = from + validUTF8(text)
				return nil, s.fail(notUTF8)
			}
			return text, nil
		case '\\':
			if err := s.escape(); err != nil {
				return nil, err
			}
		default:
			return nil, s.fail("a control character in a string")
		}
	}
}

// plain skips to the next quote, backslash or control character of a string,
// and reports whether all before it is ASCII. It looks at eight bytes at a time:
// for each of the three, a byte's top bit in the sum below is the answer, exact
// up to the first one that is found.
func (s *Scanner) plain() (ascii bool) {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	i := s.offset
	var seen uint64
	for ; i+8 <= len(s.data); i += 8 {
		w := binary.LittleEndian.Uint64(s.data[i:])
		quote := w ^ ones*'"'
		slash := w ^ ones*'\\'
		found := ((quote - ones) &^ quote) | ((slash - ones) &^ slash) | ((w - ones*0x20) &^ w)
		if found &= tops; found != 0 {
			n := bits.TrailingZeros64(found) / 8
			s.offset = i + n
			return (seen|w&(1<<(8*n)-1))&tops == 0
		}
		seen |= w
	}
	for ; i < len(s.data); i++ {
		c := s.data[i]
		if c == '"' || c == '\\' || c < 0x20 {
			break
		}
		seen |= uint64(c)
	}
	s.offset = i
	return seen&tops == 0
}

func (s *Scanner) escape() error {
	s.offset++
	if s.offset == len(s.data) {
		return s.unexpected("an escape")
	}
	switch s.data[s.offset] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.offset++
		return nil
	case 'u':
		s.offset++
		for range 4 {
			if s.offset == len(s.data) || !isHex(s.data[s.offset]) {
				return s.unexpected("a hexadecimal digit")
			}
			s.offset++
		}
		return nil
	}
	return s.unexpected("an escape")
}

func isHex(c byte) bool { return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'f' }

// validUTF8 is the length of the valid UTF-8 that text begins with.
func validUTF8(text []byte) int {
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRune(text[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return len(text)
}

// Unquote returns the text of a string that a [Scanner] read, in its quotes: a
// slice of it, unless it has escapes. An escape that is half of a surrogate pair
// becomes U+FFFD.
func Unquote(quoted []byte) []byte {
	inner := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return inner
	}
	text, _ := AppendUnquoted(make([]byte, 0, len(inner)), quoted)
	return text
}

// AppendUnquoted appends what [Unquote] returns to dst. If an escape is half of
// a surrogate pair, whole is false.
func AppendUnquoted(dst, quoted []byte) (text []byte, whole bool) {
	inner := quoted[1 : len(quoted)-1]
	whole = true
	for {
		i := bytes.IndexByte(inner, '\\')
		if i < 0 {
			return append(dst, inner...), whole
		}
		dst = append(dst, inner[:i]...)
		c := inner[i+1]
		inner = inner[i+2:]
		switch c {
		case 'b':
			c = '\b'
		case 'f':
			c = '\f'
		case 'n':
			c = '\n'
		case 'r':
			c = '\r'
		case 't':
			c = '\t'
		case 'u':
			r := codeUnit(inner)
			inner = inner[4:]
			if utf16.IsSurrogate(r) {
				pair := rune(utf8.RuneError)
				if len(inner) >= 6 && inner[0] == '\\' && inner[1] == 'u' {
					pair = utf16.DecodeRune(r, codeUnit(inner[2:]))
				}
				if r = pair; r == utf8.RuneError {
					whole = false
				} else {
					inner = inner[6:]
				}
			}
			dst = utf8.AppendRune(dst, r)
			continue
		}
		dst = append(dst, c)
	}
}

// codeUnit is the number in four hexadecimal digits.
func codeUnit(digits []byte) (r rune) {
	for _, c := range digits[:4] {
		d := rune(c - '0')
		if c > '9' {
			d = rune(c|0x20-'a') + 10
		}
		r = r<<4 | d
	}
	return r
}

// Equal reports whether the text of a string that a [Scanner] read is want.
func Equal(quoted []byte, want string) bool {
	inner := quoted[1 : len(quoted)-1]
	return string(inner) == want || len(inner) > len(want) && bytes.IndexByte(inner, '\\') >= 0 && string(Unquote(quoted)) == want
}

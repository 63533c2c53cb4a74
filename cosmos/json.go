package cosmos

import (
	"unicode/utf8"

	"github.com/sluice-go/sluice/internal/jsonscan"
)

// maxDepth is how deep a document may nest: the account's own limit.
const maxDepth = 128

// members calls fn with the name, as it is written between its quotes, and the
// value of each member of the JSON object that data is. It reports whether data
// is one JSON object in UTF-8, no deeper than [maxDepth], and nothing else. Such a
// document can be copied into a request: it cannot add an operation of its own.
func members(data []byte, fn func(name, value []byte)) bool {
	s := jsonscan.New(data, maxDepth)
	err := s.Object(func(name []byte) error {
		value, err := s.Value()
		if err == nil && fn != nil {
			fn(name[1:len(name)-1], value)
		}
		return err
	})
	return err == nil && s.End() == nil
}

// elements calls fn with each element of the JSON array that data is, and
// reports whether it is one.
func elements(data []byte, fn func(value []byte)) bool {
	s := jsonscan.New(data, maxDepth)
	err := s.Array(func() error {
		value, err := s.Value()
		if err == nil && fn != nil {
			fn(value)
		}
		return err
	})
	return err == nil && s.End() == nil
}

// appendText appends s as a JSON string. Bytes that are not UTF-8 become
// U+FFFD.
func appendText(dst []byte, s string) []byte {
	dst = append(dst, '"')
	clean := 0 // how much of s is in dst
	for i := 0; i < len(s); {
		c := s[i]
		if c >= ' ' && c < utf8.RuneSelf && c != '"' && c != '\\' {
			i++
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		if c >= utf8.RuneSelf && (r != utf8.RuneError || size > 1) {
			i += size
			continue
		}
		dst = append(dst, s[clean:i]...)
		switch {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c < ' ':
			const digits = "0123456789abcdef"
			dst = append(dst, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
		default:
			dst = append(dst, "\uFFFD"...)
		}
		i += size
		clean = i
	}
	return append(append(dst, s[clean:]...), '"')
}

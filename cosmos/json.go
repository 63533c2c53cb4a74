package cosmos

import "unicode/utf8"

// maxDepth is how deep a document may nest: the account's own limit.
const maxDepth = 128

// members calls fn with the name, as it is written between its quotes, and the
// value of each member of the JSON object that data is, and tells whether it
// is one, and nothing else. That makes it safe to be copied into a request: no
// document can smuggle in an operation of its own.
//
// It is many times faster than encoding/json, and accepts the same texts, as
// long as they are UTF-8 and nest no deeper than [maxDepth].
func members(data []byte, fn func(name, value []byte)) bool {
	i := space(data, 0)
	if i = object(data, i, maxDepth, fn); i < 0 {
		return false
	}
	return space(data, i) == len(data) && utf8.Valid(data)
}

// elements calls fn with each element of the JSON array that data is, and
// tells whether it is one.
func elements(data []byte, fn func(value []byte)) bool {
	i := space(data, 0)
	if i = array(data, i, maxDepth, fn); i < 0 {
		return false
	}
	return space(data, i) == len(data)
}

// The functions below take the index at which something begins, and return the
// one behind it, or -1.

func space(data []byte, i int) int {
	for i < len(data) && (data[i] == ' ' || data[i] == '\n' || data[i] == '\r' || data[i] == '\t') {
		i++
	}
	return i
}

func object(data []byte, i, depth int, fn func(name, value []byte)) int {
	if i >= len(data) || data[i] != '{' || depth == 0 {
		return -1
	}
	if i = space(data, i+1); i < len(data) && data[i] == '}' {
		return i + 1
	}
	for {
		start := i
		if i = text(data, i); i < 0 {
			return -1
		}
		name := data[start+1 : i-1]
		if i = space(data, i); i >= len(data) || data[i] != ':' {
			return -1
		}
		i = space(data, i+1)
		start = i
		if i = value(data, i, depth-1); i < 0 {
			return -1
		}
		if fn != nil {
			fn(name, data[start:i])
		}
		if i = space(data, i); i >= len(data) {
			return -1
		}
		switch data[i] {
		case '}':
			return i + 1
		case ',':
			i = space(data, i+1)
		default:
			return -1
		}
	}
}

func array(data []byte, i, depth int, fn func(value []byte)) int {
	if i >= len(data) || data[i] != '[' || depth == 0 {
		return -1
	}
	if i = space(data, i+1); i < len(data) && data[i] == ']' {
		return i + 1
	}
	for {
		start := i
		if i = value(data, i, depth-1); i < 0 {
			return -1
		}
		if fn != nil {
			fn(data[start:i])
		}
		if i = space(data, i); i >= len(data) {
			return -1
		}
		switch data[i] {
		case ']':
			return i + 1
		case ',':
			i = space(data, i+1)
		default:
			return -1
		}
	}
}

func value(data []byte, i, depth int) int {
	if i >= len(data) {
		return -1
	}
	switch data[i] {
	case '"':
		return text(data, i)
	case '{':
		return object(data, i, depth, nil)
	case '[':
		return array(data, i, depth, nil)
	case 't':
		return word(data, i, "true")
	case 'f':
		return word(data, i, "false")
	case 'n':
		return word(data, i, "null")
	default:
		return number(data, i)
	}
}

func word(data []byte, i int, w string) int {
	if len(data)-i < len(w) || string(data[i:i+len(w)]) != w {
		return -1
	}
	return i + len(w)
}

// plain are the bytes that stand for themselves in a string.
var plain = func() (t [256]bool) {
	for c := range t {
		t[c] = c >= ' ' && c != '"' && c != '\\'
	}
	return t
}()

func text(data []byte, i int) int {
	if i >= len(data) || data[i] != '"' {
		return -1
	}
	for i++; i < len(data); i++ {
		c := data[i]
		if plain[c] {
			continue
		}
		if c == '"' {
			return i + 1
		}
		if c != '\\' || i+1 >= len(data) {
			return -1
		}
		i++
		switch data[i] {
		case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		case 'u':
			for range 4 {
				if i++; i >= len(data) || !hex(data[i]) {
					return -1
				}
			}
		default:
			return -1
		}
	}
	return -1
}

func hex(c byte) bool {
	return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'f'
}

func number(data []byte, i int) int {
	if i < len(data) && data[i] == '-' {
		i++
	}
	start := i
	if i = digits(data, i); i < 0 || data[start] == '0' && i > start+1 {
		return -1
	}
	if i < len(data) && data[i] == '.' {
		if i = digits(data, i+1); i < 0 {
			return -1
		}
	}
	if i < len(data) && data[i]|0x20 == 'e' {
		i++
		if i < len(data) && (data[i] == '+' || data[i] == '-') {
			i++
		}
		i = digits(data, i)
	}
	return i
}

// digits needs one at least.
func digits(data []byte, i int) int {
	start := i
	for i < len(data) && data[i] >= '0' && data[i] <= '9' {
		i++
	}
	if i == start {
		return -1
	}
	return i
}

// appendText appends s as a JSON string. Bytes that are not UTF-8 become
// U+FFFD.
func appendText(dst []byte, s string) []byte {
	dst = append(dst, '"')
	clean := 0 // how much of s is in dst
	for i := 0; i < len(s); {
		c := s[i]
		if plain[c] && c < utf8.RuneSelf {
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

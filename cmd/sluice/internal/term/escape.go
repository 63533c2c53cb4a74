package term

import (
	"fmt"
	"unicode"
	"unicode/utf8"
)

// Escape appends text to b in a form that can't act on a terminal: control characters other
// than line breaks and tabs, and characters that change the direction of text, are written
// as in JSON, such as \u001b. So JSON keeps its meaning. Bytes that are no UTF-8 become
// U+FFFD.
func Escape(b, text []byte) []byte {
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		switch {
		case r == '\n' || r == '\t':
			b = append(b, byte(r))
		case unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029':
			b = fmt.Appendf(b, `\u%04x`, r)
		default:
			b = utf8.AppendRune(b, r)
		}
		text = text[n:]
	}
	return b
}

// Unfinished returns how many bytes at the end of a text begin a character that the next
// text may finish.
func Unfinished(text []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(text); n++ {
		if rest := text[len(text)-n:]; utf8.RuneStart(rest[0]) {
			if utf8.FullRune(rest) {
				return 0
			}
			return n
		}
	}
	return 0
}

package records

import (
	"encoding/json"
	"fmt"
	"unicode"
	"unicode/utf8"
)

// Delimiter is the character between the columns of CSV; 0: not known.
type Delimiter rune

// ParseDelimiter returns the delimiter that a flag names: a character, or the word tab.
func ParseDelimiter(text string) (Delimiter, error) {
	if text == "tab" || text == `\t` {
		return '\t', nil
	}
	r, size := utf8.DecodeRuneInString(text)
	if size == 0 || size != len(text) || r == utf8.RuneError || r == '"' || r != '\t' && (unicode.IsControl(r) || unicode.IsLetter(r) || unicode.IsDigit(r)) {
		return 0, fmt.Errorf("%q: write one character that is neither a letter, a digit nor a quote, or tab", text)
	}
	return Delimiter(r), nil
}

// Flag is the delimiter as it is written on a command line.
func (d Delimiter) Flag() string {
	switch d {
	case 0:
		return ""
	case '\t':
		return "tab"
	case ';', '|', ' ':
		return "'" + string(d) + "'"
	}
	return string(d)
}

func (d Delimiter) plural() string {
	switch d {
	case ';':
		return "semicolons"
	case '\t':
		return "tabs"
	}
	return "vertical bars"
}

// MarshalJSON implements [json.Marshaler].
func (d Delimiter) MarshalJSON() ([]byte, error) { return json.Marshal(string(d)) }

// UnmarshalJSON implements [json.Unmarshaler].
func (d *Delimiter) UnmarshalJSON(text []byte) (err error) {
	var s string
	if err := json.Unmarshal(text, &s); err != nil {
		return err
	}
	*d, err = ParseDelimiter(s)
	return err
}

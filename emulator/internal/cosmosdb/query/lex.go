package query

import (
	"errors"
	"fmt"
	"strings"

	"github.com/sluice-go/sluice/internal/jsonscan"
)

// token is a token of a query.
type token struct {
	kind   tokenKind
	text   string // of a string: its text, unquoted
	offset int    // where it begins in the query
	end    int
}

type tokenKind byte

const (
	tokenEnd tokenKind = iota
	tokenName
	tokenParameter
	tokenNumber
	tokenString
	tokenMark
)

// lex splits a query into tokens.
func lex(text string) ([]token, error) {
	if len(text) > MaxLength {
		return nil, fmt.Errorf("the query is longer than %d bytes", MaxLength)
	}
	var list []token
	for at := 0; at < len(text); {
		c := text[at]
		switch {
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			at++
			continue
		case strings.HasPrefix(text[at:], "--"):
			if end := strings.IndexByte(text[at:], '\n'); end >= 0 {
				at += end
			} else {
				at = len(text)
			}
			continue
		case c == '"' || c == '\'':
			t, n, err := lexString(text[at:])
			if err != nil {
				return nil, fmt.Errorf("%w at %d", err, at)
			}
			list = append(list, token{tokenString, t, at, at + n})
			at += n
			continue
		}
		kind, n := tokenMark, 1
		switch {
		case isLetter(c):
			kind, n = tokenName, span(text[at:], func(c byte) bool { return isLetter(c) || isDigit(c) })
		case c == '@':
			kind, n = tokenParameter, 1+span(text[at+1:], func(c byte) bool { return isLetter(c) || isDigit(c) })
		case isDigit(c) || c == '.' && at+1 < len(text) && isDigit(text[at+1]):
			kind, n = tokenNumber, numberSpan(text[at:])
		case len(text)-at >= 2 && strings.Contains("!= <> <= >= ||", text[at:at+2]) && text[at+1] != ' ' && c != ' ' && c != '=':
			n = 2
		case !strings.ContainsRune("()[]{},.:=<>*+-/%?", rune(c)):
			return nil, fmt.Errorf("syntax error near %.20q at %d", text[at:], at)
		}
		list = append(list, token{kind, text[at : at+n], at, at + n})
		at += n
	}
	return append(list, token{tokenEnd, "", len(text), len(text)}), nil
}

func isLetter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' || c == '_' || c >= 0x80 }
func isDigit(c byte) bool  { return c >= '0' && c <= '9' }

func span(s string, f func(byte) bool) int {
	n := 0
	for n < len(s) && f(s[n]) {
		n++
	}
	return n
}

func numberSpan(s string) int {
	n := span(s, isDigit)
	if n < len(s) && s[n] == '.' {
		n += 1 + span(s[n+1:], isDigit)
	}
	if n < len(s) && s[n]|0x20 == 'e' {
		e := n + 1
		if e < len(s) && (s[e] == '+' || s[e] == '-') {
			e++
		}
		if d := span(s[e:], isDigit); d > 0 {
			n = e + d
		}
	}
	return n
}

var errString = errors.New("unterminated or invalid string")

// lexString reads a string in single or double quotes, with the escapes of JSON.
func lexString(s string) (text string, n int, err error) {
	quote := s[0]
	var b strings.Builder
	b.WriteByte('"')
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case c == quote:
			b.WriteByte('"')
			t, err := jsonscan.New([]byte(b.String()), 0).Text()
			if err != nil {
				return "", 0, errString
			}
			return string(jsonscan.Unquote(t)), i + 1, nil
		case c == '\\' && i+1 < len(s):
			i++
			if s[i] != '\'' {
				b.WriteByte('\\')
			}
			b.WriteByte(s[i])
		case c == '"':
			b.WriteString(`\"`)
		default:
			b.WriteByte(c)
		}
	}
	return "", 0, errString
}

// Package sqlshape remembers which SQL statements a handler ran in a transaction, so that another
// event's run can be compared: a statement that one event's values made fail succeeds for others,
// and a statement that cannot succeed fails for all.
package sqlshape

import (
	"slices"
	"strings"
)

// most is how many different texts a [Log] keeps. A handler that writes its values into the text
// has a new one for each event.
const most = 256

// Unseen stands for what a handler ran on the connection itself, past the store.
const Unseen = "(on the connection)"

// Log has the statements of one transaction. Its zero value is ready to use. It is not safe for
// concurrent use.
type Log struct {
	texts map[string]bool
	last  string // a text that was noted last, as most handlers repeat one
}

// Note notes that a statement succeeded.
func (l *Log) Note(text string) {
	if text == l.last {
		return
	}
	l.last = text
	if l.texts == nil {
		l.texts = map[string]bool{}
	}
	if len(l.texts) < most {
		l.texts[text] = true
	}
}

// Shapes returns the shapes of the statements, sorted, each once.
func (l *Log) Shapes() []string {
	shapes := make([]string, 0, len(l.texts))
	for text := range l.texts {
		shapes = append(shapes, Words(text))
	}
	slices.Sort(shapes)
	return slices.Compact(shapes)
}

// Has reports whether statements of all these shapes succeeded.
func (l *Log) Has(shapes []string) bool {
	ran := l.Shapes()
	return !slices.ContainsFunc(shapes, func(shape string) bool {
		_, found := slices.BinarySearch(ran, shape)
		return !found
	})
}

// Words returns the words of a statement in the order in which each appears first: keywords and
// names, without values, parameters, comments and punctuation. So statements that differ in their
// values or in their number of rows have one shape, and statements about different tables have two.
// A text that is not understood has some shape too: two such texts may differ although their
// statements do not.
func Words(text string) string {
	s := scanner{rest: text}
	seen := map[string]bool{}
	var words []string
	for {
		word, more := s.next()
		if !more {
			return strings.Join(words, " ")
		}
		if word != "" && !seen[word] {
			seen[word] = true
			words = append(words, word)
		}
	}
}

type scanner struct{ rest string }

// next returns the next word, empty for something that is none; false at the end.
func (s *scanner) next() (word string, more bool) {
	if s.rest == "" {
		return "", false
	}
	switch c := s.rest[0]; {
	case strings.HasPrefix(s.rest, "--"):
		s.skipPast(2, "\n")
	case strings.HasPrefix(s.rest, "/*"):
		s.skipPast(2, "*/")
	case c == '\'':
		s.skipPast(1, "'")
	case c == '"', c == '`':
		return s.take(1 + len(s.upTo(1, s.rest[:1])) + 1), true
	case c == '[': // T-SQL's quotes, or an array's index, which is a value
		if name := s.take(1 + len(s.upTo(1, "]")) + 1); len(name) > 1 && isLetter(name[1]) {
			return name, true
		}
	case c == '$':
		s.skipDollar()
	case c == '@', c == ':', c == '?':
		s.take(1 + wordLen(s.rest[1:]))
	case c >= '0' && c <= '9':
		s.take(wordLen(s.rest))
	case isLetter(c):
		word := s.take(wordLen(s.rest))
		if len(word) == 1 && strings.HasPrefix(s.rest, "'") { // E'', N'', X'': a value
			s.skipString(word)
			return "", true
		}
		return lower(word), true
	default:
		s.take(1)
	}
	return "", true
}

// skipString skips a string with a prefix. In one of E a backslash escapes the next character.
func (s *scanner) skipString(prefix string) {
	if !strings.EqualFold(prefix, "e") {
		s.skipPast(1, "'")
		return
	}
	for i := 1; i < len(s.rest); i++ {
		switch s.rest[i] {
		case '\\':
			i++
		case '\'':
			s.take(i + 1)
			return
		}
	}
	s.rest = ""
}

// skipDollar skips a parameter or a string in dollar quotes.
func (s *scanner) skipDollar() {
	n := 1 + wordLen(s.rest[1:])
	if n < len(s.rest) && s.rest[n] == '$' && (n == 1 || isLetter(s.rest[1])) {
		s.skipPast(n+1, s.rest[:n+1])
		return
	}
	s.take(n)
}

// take removes n bytes and returns them.
func (s *scanner) take(n int) string {
	n = min(n, len(s.rest))
	taken := s.rest[:n]
	s.rest = s.rest[n:]
	return taken
}

// upTo returns what lies between a place and an end, or the rest.
func (s *scanner) upTo(from int, end string) string {
	text, _, _ := strings.Cut(s.rest[from:], end)
	return text
}

// skipPast removes everything to an end, and the end.
func (s *scanner) skipPast(from int, end string) { s.take(from + len(s.upTo(from, end)) + len(end)) }

// lower returns a word with its letters of ASCII in lower case. The others are left alone, as they are
// not understood: the word may be in another encoding.
func lower(word string) string {
	out := []byte(word)
	for i, c := range out {
		if c >= 'A' && c <= 'Z' {
			out[i] = c | 0x20
		}
	}
	return string(out)
}

func wordLen(text string) int {
	n := 0
	for n < len(text) && (isLetter(text[n]) || text[n] >= '0' && text[n] <= '9') {
		n++
	}
	return n
}

func isLetter(c byte) bool {
	return c == '_' || c >= 0x80 || c|0x20 >= 'a' && c|0x20 <= 'z'
}

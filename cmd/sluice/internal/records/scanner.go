package records

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
)

// scanner finds the ends of JSON values by brackets and quotes alone. Who uses it checks each value
// once that is whole.
type scanner struct {
	in   *bufio.Reader
	file string
	line int // of the next character
}

// skipSpace returns the next character that is not white space, without reading it.
func (s *scanner) skipSpace() (byte, error) {
	for {
		c, err := s.in.ReadByte()
		switch {
		case err != nil:
			return 0, err
		case c == '\n':
			s.line++
		case !space(c):
			return c, s.in.UnreadByte()
		}
	}
}

// readTo reads up to one of these characters outside of brackets and quotes, and returns that too
// as end. Without characters it reads one object or array. Of a value above the limit only the size
// is returned.
func (s *scanner) readTo(stops string) (body []byte, size int, end byte, err error) {
	var depth int
	var quoted, escaped bool
	for {
		c, err := s.in.ReadByte()
		if err != nil {
			return nil, size, 0, err
		}
		if c == '\n' {
			s.line++
		}
		last := false
		switch {
		case escaped:
			escaped = false
		case quoted:
			escaped = c == '\\'
			quoted = c != '"'
		case c == '"':
			quoted = true
		case depth == 0 && stops != "" && strings.IndexByte(stops, c) >= 0:
			return bytes.TrimSpace(body), size, c, nil
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			depth--
			last = stops == "" && depth <= 0
		case size == 0 && space(c):
			continue
		}
		size++
		if size <= MaxSize {
			body = append(body, c)
		} else {
			body = nil
		}
		if last {
			return body, size, c, nil
		}
	}
}

// fail is the error of a value that does not end.
func (s *scanner) fail(what string, err error) error {
	if errors.Is(err, io.EOF) {
		err = errors.New("it has no end: the file is cut off, or a bracket or a quote is missing")
	}
	return fmt.Errorf("%s: %s: %w", s.file, what, err)
}

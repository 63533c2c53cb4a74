package records

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/sluice-go/sluice/cmd/sluice/internal/textfile"
)

// lines reads newline-delimited JSON: each line is one value, as the first one was.
type lines struct {
	in       *bufio.Reader
	file     string
	encoding textfile.Encoding
	line     int
	first    []byte // the first line that is not blank, until it is returned
}

// readFirst reads the first line that is not blank, and reports whether that is one value. It reads
// no more of it than a record may have.
func (l *lines) readFirst() (whole bool, err error) {
	for {
		part, err := l.in.ReadSlice('\n')
		l.first = append(l.first, part...)
		switch {
		case errors.Is(err, bufio.ErrBufferFull) && len(l.first) <= MaxSize:
			continue
		case errors.Is(err, bufio.ErrBufferFull):
			return false, nil
		case err != nil && !errors.Is(err, io.EOF):
			return false, err
		}
		if err != nil || !blank(l.first) {
			return json.Valid(l.first), nil
		}
		l.first = l.first[:0]
		l.line++
	}
}

func (l *lines) next() (Record, error) {
	for {
		l.line++
		at := Place{File: l.file, Unit: "line", Number: l.line}
		text, size, err := l.read()
		if err != nil && (!errors.Is(err, io.EOF) || size == 0) {
			if !errors.Is(err, io.EOF) {
				err = fmt.Errorf("%s: %w", at, err)
			}
			return Record{}, err
		}
		if size > MaxSize {
			return Record{}, tooLarge(at, size)
		}
		if blank(text) {
			continue
		}
		if err := checkText(at, text, l.encoding); err != nil {
			return Record{}, err
		}
		if err := checkJSON(bytes.TrimSpace(text)); err != nil {
			return Record{}, l.malformed(at, text, err)
		}
		return Record{Place: at, Body: bytes.TrimSpace(text)}, nil
	}
}

func (l *lines) read() (text []byte, size int, err error) {
	if text = l.first; text != nil {
		l.first = nil
		return text, len(text), nil
	}
	return readLine(l.in)
}

// malformed is the error of a line that is not JSON. The lines after it can be read if it is not a
// part of a longer value: other parts of that could be taken for records.
func (l *lines) malformed(at Place, line []byte, cause error) error {
	if bytes.ContainsAny(line[:1], " \t\"}],:") || l.continues(line) {
		return fmt.Errorf("%s: %w: it looks like a part of a longer value, and the first line has a whole one: write each value into one line", at, cause)
	}
	return &RejectedError{Place: at, Reason: cause.Error()}
}

// continues reports whether a line that is not one value may be one with those after it, or the end
// of one. It leaves them unread.
func (l *lines) continues(line []byte) bool {
	d := json.NewDecoder(io.MultiReader(bytes.NewReader(line), &ahead{in: l.in}))
	var value json.RawMessage
	err := d.Decode(&value)
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &syntax), errors.Is(err, io.ErrUnexpectedEOF):
		return false
	case err != nil: // it goes on beyond the buffer
		return true
	}
	rest := bytes.TrimSpace(line)
	return len(value) > len(rest) || bytes.HasPrefix(bytes.TrimSpace(rest[len(value):]), []byte(","))
}

// ahead reads on, line by line, and leaves what it reads unread.
type ahead struct {
	in *bufio.Reader
	n  int
}

func (a *ahead) Read(b []byte) (int, error) {
	if _, err := a.in.Peek(a.n + 1); err != nil {
		return 0, err
	}
	next, err := a.in.Peek(a.in.Buffered())
	if err != nil {
		return 0, err
	}
	next = next[a.n:]
	if end := bytes.IndexByte(next, '\n'); end >= 0 {
		next = next[:end+1]
	}
	n := copy(b, next)
	a.n += n
	return n, nil
}

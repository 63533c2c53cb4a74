package records

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// array reads the elements of one JSON array. It finds their ends by brackets
// and quotes alone, and checks each element once it is whole.
type array struct {
	in     *bufio.Reader
	file   string
	number int
	begun  bool
	ended  bool
}

func (a *array) next() (Record, error) {
	if a.ended {
		return Record{}, io.EOF
	}
	if !a.begun {
		if err := a.skipTo('['); err != nil {
			return Record{}, a.fail(err)
		}
		a.begun = true
	}
	a.number++
	at := Place{File: a.file, Unit: "record", Number: a.number}
	body, size, end, err := element(a.in)
	if err != nil {
		return Record{}, a.fail(err)
	}
	if end == ']' {
		a.ended = true
		if err := a.nothingFollows(); err != nil {
			return Record{}, err
		}
		if size == 0 && a.number == 1 {
			return Record{}, io.EOF
		}
	}
	if size > MaxSize {
		return Record{}, &TooLargeError{Place: at, Size: size}
	}
	if err := check(at, body); err != nil {
		return Record{}, err
	}
	return Record{Place: at, Body: body}, nil
}

func (a *array) skipTo(want byte) error {
	for {
		c, err := a.in.ReadByte()
		if err != nil || c == want {
			return err
		}
	}
}

func (a *array) fail(err error) error {
	if errors.Is(err, io.EOF) {
		err = errors.New("the array has no end")
	}
	return fmt.Errorf("%s: after record %d: %w", a.file, max(a.number-1, 0), err)
}

func (a *array) nothingFollows() error {
	for {
		c, err := a.in.ReadByte()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("%s: %w", a.file, err)
		case !space(c):
			return fmt.Errorf("%s: %q follows the end of the array", a.file, c)
		}
	}
}

// element reads up to the comma or bracket that ends the element, and returns
// that character. Of an element above the limit only the size is returned.
func element(in *bufio.Reader) (body []byte, size int, end byte, err error) {
	var depth int
	var quoted, escaped bool
	for {
		c, err := in.ReadByte()
		if err != nil {
			return nil, size, 0, err
		}
		switch {
		case escaped:
			escaped = false
		case quoted:
			escaped = c == '\\'
			quoted = c != '"'
		case c == '"':
			quoted = true
		case c == '{' || c == '[':
			depth++
		case depth == 0 && (c == ',' || c == ']'):
			return bytes.TrimSpace(body), size, c, nil
		case c == '}' || c == ']':
			depth--
		case size == 0 && space(c):
			continue
		}
		size++
		if size <= MaxSize {
			body = append(body, c)
		} else {
			body = nil
		}
	}
}

// Package records reads files of records, and returns each record as a JSON value. A file is
// newline-delimited JSON, a JSON array, or CSV with a header.
package records

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// MaxSize is the largest record that a [Reader] returns, in bytes. It is larger than what any event
// hub accepts, so that the hub decides.
const MaxSize = 4 << 20

// Record is one record of a file.
type Record struct {
	Place
	Body []byte // JSON; the caller's to keep
}

// Place says where a record stands.
type Place struct {
	File   string
	Unit   string // what Number counts: line or record
	Number int    // from 1
}

// String returns, for example, "flights.csv: line 7".
func (p Place) String() string { return fmt.Sprintf("%s: %s %d", p.File, p.Unit, p.Number) }

// TooLargeError is returned for a record above the limit. The records after it can still be read.
type TooLargeError struct {
	Place
	Size int // in bytes; at least this many
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("%s: too large (%d bytes)", e.Place, e.Size)
}

// Reader reads the records of one file.
type Reader struct {
	in   *bufio.Reader
	file string
	next func() (Record, error) // nil until the format is known
}

// NewReader reads from in; file is the name for messages. The format shows in
// the first character: a bracket begins a JSON array, a brace JSON objects one
// to a line, anything else the header of a CSV file.
func NewReader(in io.Reader, file string) *Reader {
	return &Reader{in: bufio.NewReaderSize(in, 64<<10), file: file}
}

// Next returns the next record, and [io.EOF] after the last one. It can be called again after a
// [*TooLargeError], but after no other error.
func (r *Reader) Next() (Record, error) {
	if r.next == nil {
		if err := r.detect(); err != nil {
			return Record{}, err
		}
	}
	return r.next()
}

var byteOrderMark = []byte("\xef\xbb\xbf")

// detect leaves blank lines before the first record to the format's reader, so
// that lines are counted right.
func (r *Reader) detect() error {
	if start, err := r.in.Peek(len(byteOrderMark)); err == nil && bytes.Equal(start, byteOrderMark) {
		r.in.Discard(len(byteOrderMark))
	}
	first, err := firstByte(r.in)
	switch {
	case errors.Is(err, io.EOF):
		r.next = func() (Record, error) { return Record{}, io.EOF }
	case err != nil:
		return fmt.Errorf("%s: %w", r.file, err)
	case first == '[':
		a := &array{in: r.in, file: r.file}
		r.next = a.next
	case first == '{':
		l := &lines{in: r.in, file: r.file}
		r.next = l.next
	default:
		c, err := newTable(r.in, r.file)
		if err != nil {
			return err
		}
		r.next = c.next
	}
	return nil
}

// firstByte looks for the first character that is not white space. It looks
// no further than the buffer.
func firstByte(in *bufio.Reader) (byte, error) {
	for n := 1; ; n++ {
		start, err := in.Peek(n)
		if len(start) < n {
			return 0, err
		}
		if c := start[n-1]; !space(c) {
			return c, nil
		}
	}
}

func space(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

// lines reads newline-delimited JSON.
type lines struct {
	in   *bufio.Reader
	file string
	line int
}

func (l *lines) next() (Record, error) {
	for {
		l.line++
		at := Place{File: l.file, Unit: "line", Number: l.line}
		text, size, err := readLine(l.in)
		if err != nil && (!errors.Is(err, io.EOF) || size == 0) {
			if !errors.Is(err, io.EOF) {
				err = fmt.Errorf("%s: %w", at, err)
			}
			return Record{}, err
		}
		if size > MaxSize {
			return Record{}, &TooLargeError{Place: at, Size: size}
		}
		text = bytes.TrimSpace(text)
		if len(text) == 0 {
			continue
		}
		if err := check(at, text); err != nil {
			return Record{}, err
		}
		return Record{Place: at, Body: text}, nil
	}
}

// readLine reads up to the end of the line and returns its text, or of a line
// above the limit only its size.
func readLine(in *bufio.Reader) (text []byte, size int, err error) {
	for {
		part, err := in.ReadSlice('\n')
		size += len(part)
		if size <= MaxSize {
			text = append(text, part...)
		} else {
			text = nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return text, size, err
		}
	}
}

func check(at Place, text []byte) error {
	if json.Valid(text) {
		return nil
	}
	var v any
	return fmt.Errorf("%s: not JSON: %w", at, json.Unmarshal(text, &v))
}

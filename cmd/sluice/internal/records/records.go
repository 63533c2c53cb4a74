// Package records reads files of records, and returns each record as a JSON value. A file is JSON,
// one value to a line, one after the other or in an array; the features of GeoJSON; CSV with a
// header; or the events of Event Hubs Capture, whose bodies can be anything. Files can be
// compressed. What is none of this is refused before the first record.
package records

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/sluice-go/sluice/cmd/sluice/internal/textfile"
	"github.com/sluice-go/sluice/driver"
)

// MaxSize is the largest record that a [Reader] returns, in bytes. It is larger than what any event
// hub accepts, so that the hub decides.
const MaxSize = 4 << 20

// Config says what the input does not show. The zero value is ready to use.
type Config struct {
	// Encoding is how the text is encoded. Default: UTF-8.
	Encoding textfile.Encoding `json:"encoding,omitempty"`
	// Delimiter separates the columns of CSV. With it the input is CSV, whatever its header looks
	// like. Default: a comma, and a header that shows no other delimiter.
	Delimiter Delimiter `json:"delimiter,omitempty"`
}

// Record is one record of a file.
type Record struct {
	Place
	Body  []byte        // JSON; the caller's to keep
	Event *driver.Event // of Event Hubs Capture; nil: of another file
}

// Place says where a record stands.
type Place struct {
	File   string
	Unit   string // what Number counts: line, record, feature, or value of a line
	Number int    // from 1
}

// String returns, for example, "flights.csv: line 7".
func (p Place) String() string { return fmt.Sprintf("%s: %s %d", p.File, p.Unit, p.Number) }

// RejectedError is returned for a record that cannot be sent as it stands. The records after it can
// still be read.
type RejectedError struct {
	Place
	Reason   string
	TooLarge bool
}

func (e *RejectedError) Error() string { return fmt.Sprintf("%s: %s", e.Place, e.Reason) }

func tooLarge(at Place, size int) error {
	return &RejectedError{Place: at, Reason: fmt.Sprintf("too large (%d bytes)", size), TooLarge: true}
}

// Reader reads the records of one file.
type Reader struct {
	source io.Reader
	in     *bufio.Reader
	file   string
	cfg    Config
	next   func() (Record, error) // nil until the format is known
}

// NewReader reads from in; file is the name for messages. A nil cfg takes every default.
func NewReader(in io.Reader, file string, cfg *Config) *Reader {
	r := &Reader{source: in, file: file}
	if cfg != nil {
		r.cfg = *cfg
	}
	return r
}

// Next returns the next record, and [io.EOF] after the last one. It can be called again after a
// [*RejectedError], but after no other error.
func (r *Reader) Next() (Record, error) {
	if r.next == nil {
		if err := r.open(); err != nil {
			return Record{}, err
		}
	}
	return r.next()
}

// Check returns why a file is refused before its first record. It reads that record.
func Check(in io.Reader, file string, cfg *Config) error {
	_, err := NewReader(in, file, cfg).Next()
	var rejected *RejectedError
	if errors.Is(err, io.EOF) || errors.As(err, &rejected) {
		return nil
	}
	return err
}

func (r *Reader) open() (err error) {
	in := bufio.NewReader(r.source)
	if isAvro(in) {
		return r.capture(in)
	}
	r.in, err = textfile.Open(in, r.cfg.Encoding)
	var refused *textfile.Error
	switch {
	case errors.As(err, &refused):
		return refuse(r.file, refused)
	case err != nil:
		return fmt.Errorf("%s: %w", r.file, err)
	}
	return r.detect()
}

// refuse names the flag of send that reads the input, if there is one.
func refuse(file string, e *textfile.Error) error {
	next := e.Next
	if e.Encoding != "" {
		next = fmt.Sprintf("pass --encoding %s if it is that", e.Encoding)
	}
	return fmt.Errorf("%s: %s: %s", file, e.Cause, next)
}

// checkText returns why the text of a record cannot be sent, if so.
func checkText(at Place, text []byte, encoding textfile.Encoding) error {
	problem := textProblem(text, encoding)
	if problem == "" {
		return nil
	}
	return &RejectedError{Place: at, Reason: problem}
}

// textProblem returns what in a text is not text; empty: nothing.
func textProblem(text []byte, encoding textfile.Encoding) string {
	if i := bytes.IndexByte(text, 0); i >= 0 {
		return fmt.Sprintf("a NUL byte (byte %d)", i+1)
	}
	if utf8.Valid(text) {
		return ""
	}
	at := 0
	for size := 0; at < len(text); at += size {
		var r rune
		if r, size = utf8.DecodeRune(text[at:]); r == utf8.RuneError && size == 1 {
			break
		}
	}
	return fmt.Sprintf("not %s (byte %d)", cmp.Or(encoding, textfile.UTF8), at+1)
}

// checkJSON returns why text is not JSON, if so.
func checkJSON(text []byte) error {
	if json.Valid(text) {
		return nil
	}
	var v any
	return fmt.Errorf("not JSON: %w", json.Unmarshal(text, &v))
}

func space(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

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

// blank reports whether there is nothing but white space.
func blank(text []byte) bool { return len(bytes.TrimSpace(text)) == 0 }

// Package textfile opens files that must be text. It decompresses gzip and zstd, decodes the text
// into UTF-8, and refuses what is something else by its name: a guess that is wrong would turn
// bytes into records without a word.
package textfile

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// bufferSize is how much of the beginning is looked at before anything is returned, in bytes.
const bufferSize = 64 << 10

// Invalid stands in the decoded text for what is not text in the file's encoding: a byte that UTF-8
// never has. The reader of a record finds it there, and knows the record's place.
const Invalid = 0xff

// Error says why an input is refused.
type Error struct {
	Cause string // what the input is, as the end of a sentence with its name
	Next  string // what to do
	// Encoding is one that the input may have; empty: none. Then a caller with a flag for it names
	// the flag in place of Next.
	Encoding Encoding
}

func (e *Error) Error() string { return e.Cause + ": " + e.Next }

// Open returns the text of an input as UTF-8, without a byte order mark. It looks at what the first
// read returns, up to 64 KiB. The error of an input that is not text is an [*Error]. An empty
// encoding is UTF-8.
func Open(r io.Reader, encoding Encoding) (*bufio.Reader, error) {
	in := bufio.NewReaderSize(r, bufferSize)
	in, err := decompress(in)
	if err != nil {
		return nil, err
	}
	head, err := beginning(in)
	if err != nil {
		return nil, err
	}
	if err := foreign(head); err != nil {
		return nil, err
	}
	if in, err = decode(in, head, encoding); err != nil {
		return nil, err
	}
	if head, err = beginning(in); err != nil {
		return nil, err
	}
	return in, checkText(head, cmp.Or(encoding, UTF8))
}

// beginning returns what can be looked at without reading further: at least what tells the formats
// apart that have a name.
func beginning(in *bufio.Reader) ([]byte, error) {
	for n := 1; ; n = in.Buffered() + 1 {
		head, err := in.Peek(n)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		if err == nil {
			head, _ = in.Peek(in.Buffered())
		}
		if err != nil || !beginsSignature(head) {
			return head, nil
		}
	}
}

// checkText returns why the beginning of a decoded input is not text.
func checkText(head []byte, encoding Encoding) error {
	if at := bytes.IndexByte(head, 0); at >= 0 {
		return &Error{Cause: fmt.Sprintf("not text (a NUL byte in line %d)", lineOf(head, at)), Next: passText}
	}
	at := 0
	for at < len(head) {
		r, size := utf8.DecodeRune(head[at:])
		if r == utf8.RuneError && size == 1 {
			break
		}
		at += size
	}
	switch {
	case at == len(head), !utf8.FullRune(head[at:]): // of the last character there may be more to read
		return nil
	case encoding == UTF8:
		return &Error{
			Cause:    fmt.Sprintf("not UTF-8 (byte 0x%02X in line %d)", head[at], lineOf(head, at)),
			Next:     "convert it to UTF-8",
			Encoding: Windows1252,
		}
	}
	return &Error{Cause: fmt.Sprintf("not %s (line %d)", encoding, lineOf(head, at)), Next: "name the encoding that it has"}
}

func lineOf(head []byte, at int) int { return 1 + bytes.Count(head[:at], []byte("\n")) }

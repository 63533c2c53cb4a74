package textfile

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Encoding is how text is written as bytes.
type Encoding string

// The encodings.
const (
	UTF8        Encoding = "utf-8"
	UTF16       Encoding = "utf-16" // its byte order mark says which
	UTF16LE     Encoding = "utf-16le"
	UTF16BE     Encoding = "utf-16be"
	Latin1      Encoding = "latin-1"
	Windows1252 Encoding = "windows-1252"
)

// Encodings are all encodings.
var Encodings = []Encoding{UTF8, UTF16, UTF16LE, UTF16BE, Latin1, Windows1252}

var otherNames = map[string]Encoding{
	"utf8": UTF8, "utf16": UTF16, "utf16le": UTF16LE, "utf16be": UTF16BE,
	"latin1": Latin1, "iso-8859-1": Latin1, "iso8859-1": Latin1, "cp1252": Windows1252, "windows1252": Windows1252,
}

// ParseEncoding returns the encoding with a name; upper and lower case are the same.
func ParseEncoding(name string) (Encoding, error) {
	lower := strings.ToLower(name)
	if e, ok := otherNames[lower]; ok {
		return e, nil
	}
	var known []string
	for _, e := range Encodings {
		if lower == string(e) {
			return e, nil
		}
		known = append(known, string(e))
	}
	return "", fmt.Errorf("%s: not known: write one of %s", name, strings.Join(known, ", "))
}

// The byte order marks.
const (
	markUTF8    = "\xef\xbb\xbf"
	markUTF16LE = "\xff\xfe"
	markUTF16BE = "\xfe\xff"
	markUTF32LE = "\xff\xfe\x00\x00"
	markUTF32BE = "\x00\x00\xfe\xff"
)

// marks are the byte order marks; those that begin with another come first.
var marks = []struct {
	bytes    string
	encoding Encoding
}{
	{markUTF32LE, utf32}, {markUTF32BE, utf32}, {markUTF8, UTF8}, {markUTF16LE, UTF16LE}, {markUTF16BE, UTF16BE},
}

// utf32 is recognised, and cannot be read.
const utf32 Encoding = "utf-32"

// decode returns the text of an input as UTF-8, by the wanted encoding. The beginning must not
// show another one.
func decode(in *bufio.Reader, head []byte, wanted Encoding) (*bufio.Reader, error) {
	wanted = cmp.Or(wanted, UTF8)
	if wide := wanted == UTF16LE || wanted == UTF16BE; wide && len(head) < 4 {
		head, _ = in.Peek(4) // two characters tell it from UTF-8
	}
	marked, length := mark(head)
	shown := cmp.Or(marked, pattern(head))
	switch {
	case shown == utf32:
		return nil, &Error{Cause: "UTF-32, which cannot be read", Next: "convert it to UTF-8"}
	case marked != "" && (marked == wanted || wanted == UTF16 && (marked == UTF16LE || marked == UTF16BE)):
		if _, err := in.Discard(length); err != nil {
			return nil, err
		}
		wanted = marked
	case marked == UTF16LE || marked == UTF16BE:
		return nil, &Error{Cause: "UTF-16 (by its byte order mark), not " + string(wanted), Next: "convert it to UTF-8", Encoding: UTF16}
	case marked != "":
		return nil, &Error{Cause: "UTF-8 (by its byte order mark), not " + string(wanted), Next: "read it as UTF-8", Encoding: UTF8}
	case len(head) == 0: // nothing to decode
	case wanted == UTF16:
		return nil, &Error{Cause: "UTF-16 without a byte order mark", Next: "name the byte order", Encoding: cmp.Or(shown, UTF16LE)}
	case shown != "" && shown != wanted:
		return nil, &Error{Cause: "UTF-16 (by its NUL bytes), not " + string(wanted), Next: "convert it to UTF-8", Encoding: shown}
	case wanted == UTF16LE || wanted == UTF16BE:
		if checkText(head, UTF8) == nil {
			return nil, &Error{Cause: "UTF-8, not " + string(wanted), Next: "read it as UTF-8", Encoding: UTF8}
		}
	}
	if wanted == UTF8 {
		return in, nil
	}
	return bufio.NewReaderSize(&decoder{in: in, encoding: wanted}, bufferSize), nil
}

// mark returns the encoding that a byte order mark shows, and the mark's length.
func mark(head []byte) (Encoding, int) {
	for _, m := range marks {
		if bytes.HasPrefix(head, []byte(m.bytes)) {
			return m.encoding, len(m.bytes)
		}
	}
	return "", 0
}

// pattern returns the encoding that NUL bytes show: half of ASCII's bytes in UTF-16, and three of
// four in UTF-32. Empty: none.
func pattern(head []byte) Encoding {
	head = head[:min(len(head), 1024)&^3]
	var zeros [4]int
	for i, c := range head {
		if c == 0 {
			zeros[i%4]++
		}
	}
	units := len(head) / 4
	even, odd := zeros[0]+zeros[2], zeros[1]+zeros[3]
	switch {
	case units == 0:
	case zeros[1] == units && zeros[2] == units && (zeros[0] == units) != (zeros[3] == units):
		return utf32
	case odd > units/2 && odd > 8*even:
		return UTF16LE
	case even > units/2 && even > 8*odd:
		return UTF16BE
	}
	return ""
}

// decoder reads text in an encoding other than UTF-8 as UTF-8. What is not text becomes [Invalid].
type decoder struct {
	in       *bufio.Reader
	encoding Encoding
	out      []byte // decoded, and not returned yet
	err      error  // of in, once out is empty
}

func (d *decoder) Read(b []byte) (int, error) {
	for len(d.out) == 0 && d.err == nil {
		d.fill()
	}
	if len(d.out) == 0 {
		return 0, d.err
	}
	n := copy(b, d.out)
	d.out = d.out[n:]
	return n, nil
}

// fill decodes what can be read without waiting for more.
func (d *decoder) fill() {
	width := 1
	if d.encoding == UTF16LE || d.encoding == UTF16BE {
		width = 2
	}
	if _, err := d.in.Peek(width); err != nil {
		if d.in.Buffered() > 0 && errors.Is(err, io.EOF) { // half a character
			d.out = []byte{Invalid}
		}
		d.err = err
		return
	}
	text, _ := d.in.Peek(min(d.in.Buffered(), 4096) / width * width)
	d.out = d.out[:0]
	used := len(text)
	if width == 2 {
		used = d.units(text)
	} else {
		for _, c := range text {
			d.out = appendSingle(d.out, c, d.encoding)
		}
	}
	if _, err := d.in.Discard(used); err != nil {
		d.err = err
	}
}

// units decodes UTF-16, and returns how many bytes. For the second half of a pair it reads on.
func (d *decoder) units(text []byte) (used int) {
	unit := func(i int) rune {
		if d.encoding == UTF16BE {
			return rune(text[i])<<8 | rune(text[i+1])
		}
		return rune(text[i+1])<<8 | rune(text[i])
	}
	for i := 0; i < len(text); i += 2 {
		r := unit(i)
		if !utf16.IsSurrogate(r) {
			d.out = utf8.AppendRune(d.out, r)
			continue
		}
		more, err := d.in.Peek(i + 4) // which moves the buffer
		text = more[:max(len(text), min(len(more), i+4)&^1)]
		if err == nil {
			if whole := utf16.DecodeRune(r, unit(i+2)); whole != utf8.RuneError {
				d.out = utf8.AppendRune(d.out, whole)
				i += 2
				continue
			}
		}
		d.out = append(d.out, Invalid)
	}
	return len(text)
}

// c1 are the characters of Windows-1252 from 0x80 to 0x9F, where Latin-1 has control characters
// that no text has; 0: none.
var c1 = [32]rune{
	'€', 0, '‚', 'ƒ', '„', '…', '†', '‡', 'ˆ', '‰', 'Š', '‹', 'Œ', 0, 'Ž', 0,
	0, '‘', '’', '“', '”', '•', '–', '—', '˜', '™', 'š', '›', 'œ', 0, 'ž', 'Ÿ',
}

func appendSingle(out []byte, c byte, encoding Encoding) []byte {
	r := rune(c)
	if c >= 0x80 && c < 0xa0 {
		if r = c1[c-0x80]; r == 0 || encoding == Latin1 {
			return append(out, Invalid)
		}
	}
	return utf8.AppendRune(out, r)
}

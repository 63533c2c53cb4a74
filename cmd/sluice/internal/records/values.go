package records

import (
	"errors"
	"fmt"
	"io"

	"github.com/sluice-go/sluice/cmd/sluice/internal/textfile"
)

// values reads JSON objects and arrays that follow each other, with or without line breaks between
// and within them.
type values struct {
	scanner
	encoding textfile.Encoding
	begun    int // the line in which the last value begins
	number   int // its number in that line
}

func (v *values) next() (Record, error) {
	c, err := v.skipSpace()
	switch {
	case errors.Is(err, io.EOF):
		return Record{}, io.EOF
	case err != nil:
		return Record{}, fmt.Errorf("%s: line %d: %w", v.file, v.line, err)
	case c != '{' && c != '[':
		return Record{}, fmt.Errorf("%s: line %d: %q stands where a JSON object or array must begin", v.file, v.line, c)
	}
	if v.line != v.begun {
		v.begun, v.number = v.line, 0
	}
	v.number++
	at := Place{File: v.file, Unit: "line", Number: v.begun}
	if v.number > 1 {
		at.Unit, at.Number = fmt.Sprintf("line %d, value", v.begun), v.number
	}
	body, size, _, err := v.readTo("")
	if err != nil {
		return Record{}, v.fail(fmt.Sprintf("line %d: the value that begins there", v.begun), err)
	}
	return whole(at, body, size, v.encoding)
}

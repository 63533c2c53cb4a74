package records

import (
	"errors"
	"fmt"
	"io"

	"github.com/sluice-go/sluice/cmd/sluice/internal/textfile"
)

// array reads the elements of one JSON array.
type array struct {
	scanner
	encoding textfile.Encoding
	number   int
	begun    bool
	ended    bool
}

func (a *array) next() (Record, error) {
	if a.ended {
		return Record{}, io.EOF
	}
	if !a.begun {
		if _, _, _, err := a.readTo("["); err != nil {
			return Record{}, fmt.Errorf("%s: %w", a.file, err)
		}
		a.begun = true
	}
	a.number++
	at := Place{File: a.file, Unit: "record", Number: a.number}
	body, size, end, err := a.readTo(",]")
	if errors.Is(err, io.EOF) {
		err = errors.New("the array has no end")
	}
	if err != nil {
		return Record{}, fmt.Errorf("%s: after record %d: %w", a.file, a.number-1, err)
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
	return whole(at, body, size, a.encoding)
}

// whole returns a value as a record. That it is not JSON ends the input, since then the ends of the
// values are not certain.
func whole(at Place, body []byte, size int, encoding textfile.Encoding) (Record, error) {
	if size > MaxSize {
		return Record{}, tooLarge(at, size)
	}
	if err := checkText(at, body, encoding); err != nil {
		return Record{}, err
	}
	if err := checkJSON(body); err != nil {
		return Record{}, fmt.Errorf("%s: %w", at, err)
	}
	return Record{Place: at, Body: body}, nil
}

func (a *array) nothingFollows() error {
	c, err := a.skipSpace()
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return fmt.Errorf("%s: %w", a.file, err)
	}
	return fmt.Errorf("%s: %q follows the end of the array", a.file, c)
}

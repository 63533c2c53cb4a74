package records

import (
	"bufio"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// table reads CSV with a header; each row becomes a JSON object. A cell that
// is a number as JSON writes numbers stays one, digit for digit; an empty cell
// is null; everything else is a string.
type table struct {
	csv   *csv.Reader
	limit *rowLimit
	file  string
	keys  [][]byte // the columns' names in JSON, colons included
}

func newTable(in *bufio.Reader, file string) (*table, error) {
	l := &rowLimit{in: in, left: 2 * MaxSize}
	t := &table{csv: csv.NewReader(l), limit: l, file: file}
	t.csv.ReuseRecord = true
	header, err := t.csv.Read()
	if err != nil {
		return nil, t.fail(err)
	}
	seen := make(map[string]bool, len(header))
	for i, name := range header {
		name = strings.TrimSpace(name)
		if name == "" {
			return nil, fmt.Errorf("%s: line 1: column %d has no name", file, i+1)
		}
		if seen[name] {
			return nil, fmt.Errorf("%s: line 1: two columns are named %s", file, name)
		}
		seen[name] = true
		key, err := json.Marshal(name)
		if err != nil {
			return nil, fmt.Errorf("%s: line 1: %w", file, err)
		}
		t.keys = append(t.keys, append(key, ':'))
	}
	return t, nil
}

func (t *table) next() (Record, error) {
	t.limit.left = 2 * MaxSize
	row, err := t.csv.Read()
	if err != nil {
		return Record{}, t.fail(err)
	}
	line, _ := t.csv.FieldPos(0)
	at := Place{File: t.file, Unit: "line", Number: line}
	body := []byte{'{'}
	for i, cell := range row {
		if i > 0 {
			body = append(body, ',')
		}
		body = append(body, t.keys[i]...)
		switch {
		case cell == "":
			body = append(body, "null"...)
		case number(cell):
			body = append(body, cell...)
		default:
			text, err := json.Marshal(cell)
			if err != nil {
				return Record{}, fmt.Errorf("%s: column %d: %w", at, i+1, err)
			}
			body = append(body, text...)
		}
	}
	body = append(body, '}')
	if len(body) > MaxSize {
		return Record{}, &TooLargeError{Place: at, Size: len(body)}
	}
	return Record{Place: at, Body: body}, nil
}

func (t *table) fail(err error) error {
	if errors.Is(err, io.EOF) {
		return io.EOF
	}
	var parse *csv.ParseError
	if errors.As(err, &parse) {
		if errors.Is(err, csv.ErrFieldCount) {
			return fmt.Errorf("%s: line %d: the header has %d columns, but this line has another number", t.file, parse.StartLine, len(t.keys))
		}
		return fmt.Errorf("%s: line %d: %w", t.file, parse.StartLine, parse.Err)
	}
	return fmt.Errorf("%s: %w", t.file, err)
}

// number reports whether a cell is written as a JSON number.
func number(cell string) bool {
	if c := cell[0]; c != '-' && (c < '0' || c > '9') {
		return false
	}
	return json.Valid([]byte(cell))
}

// rowLimit limits how much is read for one row: a quote that is never closed would read the rest of
// the file.
type rowLimit struct {
	in   io.Reader
	left int
}

var errUnclosed = fmt.Errorf("a row is longer than %d bytes: a closing quote may be missing", 2*MaxSize)

func (l *rowLimit) Read(b []byte) (int, error) {
	if l.left <= 0 {
		return 0, errUnclosed
	}
	n, err := l.in.Read(b[:min(len(b), l.left)])
	l.left -= n
	return n, err
}

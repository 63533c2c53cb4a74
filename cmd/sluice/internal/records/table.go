package records

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/sluice-go/sluice/cmd/sluice/internal/textfile"
)

// table reads CSV with a header; each row becomes a JSON object. A cell that
// is a number as JSON writes numbers stays one, digit for digit; an empty cell
// is null; everything else is a string.
type table struct {
	csv      *csv.Reader
	limit    *rowLimit
	file     string
	encoding textfile.Encoding
	keys     [][]byte // the columns' names in JSON, colons included
	begun    bool     // a row was read
}

// table opens a table, if the first line is a header.
func (r *Reader) table() error {
	header, err := r.header()
	if err != nil {
		return err
	}
	if err := checkHeader(header, r.cfg.Delimiter); err != nil {
		return fmt.Errorf("%s: %w", r.file, err)
	}
	t, err := newTable(r.in, r.file, &r.cfg)
	if err != nil {
		return err
	}
	r.next = t.next
	return nil
}

// header returns the first line that is not blank, with its line breaks within quotes. It reads
// nothing.
func (r *Reader) header() (string, error) {
	for n := 1; ; n = r.in.Buffered() + 1 {
		_, err := r.in.Peek(n)
		head, _ := r.in.Peek(r.in.Buffered())
		head = bytes.TrimLeft(head, "\r\n")
		length, ended := headerLength(head)
		if ended || errors.Is(err, io.EOF) {
			return string(bytes.TrimSuffix(head[:length], []byte("\r"))), nil
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			return "", fmt.Errorf("%s: neither JSON nor CSV: the first line is longer than %d KiB", r.file, r.in.Size()>>10)
		case err != nil:
			return "", fmt.Errorf("%s: %w", r.file, err)
		}
	}
}

func headerLength(head []byte) (length int, ended bool) {
	quoted := false
	for i, c := range head {
		switch {
		case c == '"':
			quoted = !quoted
		case c == '\n' && !quoted:
			return i, true
		}
	}
	return len(head), false
}

func newTable(in *bufio.Reader, file string, cfg *Config) (*table, error) {
	l := &rowLimit{in: in, left: 2 * MaxSize}
	t := &table{csv: csv.NewReader(l), limit: l, file: file, encoding: cfg.Encoding}
	t.csv.ReuseRecord = true
	if cfg.Delimiter != 0 {
		t.csv.Comma = rune(cfg.Delimiter)
	}
	header, err := t.csv.Read()
	if err != nil {
		return nil, t.fail(err)
	}
	if strings.TrimSpace(header[0]) != "" && !slices.ContainsFunc(header, func(name string) bool { return !number(strings.TrimSpace(name)) }) {
		return nil, fmt.Errorf("%s: line 1: all columns' names are numbers: the header is missing", file)
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
		if problem := cellProblem(name, t.encoding); problem != "" {
			return nil, fmt.Errorf("%s: line 1: column %d: %s", file, i+1, problem)
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
		return Record{}, t.failRow(row, err)
	}
	t.begun = true
	line, _ := t.csv.FieldPos(0)
	at := Place{File: t.file, Unit: "line", Number: line}
	body := []byte{'{'}
	for i, cell := range row {
		if i > 0 {
			body = append(body, ',')
		}
		body = append(body, t.keys[i]...)
		if problem := cellProblem(cell, t.encoding); problem != "" {
			return Record{}, &RejectedError{Place: at, Reason: fmt.Sprintf("column %d: %s", i+1, problem)}
		}
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
		return Record{}, tooLarge(at, len(body))
	}
	return Record{Place: at, Body: body}, nil
}

// failRow is the error of a row. The rows after it can be read if it has its line for itself; the
// first row must fit the header.
func (t *table) failRow(row []string, err error) error {
	var parse *csv.ParseError
	alone := errors.As(err, &parse) && parse.StartLine == parse.Line &&
		!slices.ContainsFunc(row, func(cell string) bool { return strings.Contains(cell, "\n") })
	if !alone || !t.begun {
		return t.fail(err)
	}
	return &RejectedError{Place: Place{File: t.file, Unit: "line", Number: parse.StartLine}, Reason: t.reason(parse)}
}

func (t *table) fail(err error) error {
	if errors.Is(err, io.EOF) {
		return io.EOF
	}
	var parse *csv.ParseError
	if errors.As(err, &parse) {
		return fmt.Errorf("%s: line %d: %s", t.file, parse.StartLine, t.reason(parse))
	}
	return fmt.Errorf("%s: %w", t.file, err)
}

func (t *table) reason(err *csv.ParseError) string {
	switch {
	case errors.Is(err, csv.ErrFieldCount):
		return fmt.Sprintf("the header has %d columns, but this line has another number", len(t.keys))
	case err.StartLine != err.Line:
		return fmt.Sprintf("a quote is not closed before line %d: %v", err.Line, err.Err)
	}
	return err.Err.Error()
}

func cellProblem(cell string, encoding textfile.Encoding) string {
	if utf8.ValidString(cell) && strings.IndexByte(cell, 0) < 0 {
		return ""
	}
	return textProblem([]byte(cell), encoding)
}

// number reports whether a cell is written as a JSON number.
func number(cell string) bool {
	if cell == "" {
		return false
	}
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

// checkHeader returns why a line is not the header of CSV, or not with this delimiter. Where none
// is wanted, anything could be CSV with one column.
func checkHeader(line string, wanted Delimiter) error {
	line = strings.ReplaceAll(line, "\r\n", "\n")
	if strings.Contains(line, "\r") {
		return errors.New("line 1: its lines end with carriage returns alone: convert it, for example with tr '\\r' '\\n'")
	}
	if i := strings.IndexFunc(line, func(r rune) bool { return unicode.IsControl(r) && r != '\t' && r != '\n' }); i >= 0 {
		return fmt.Errorf("line 1: neither JSON nor CSV: it has the control character 0x%02X", line[i])
	}
	if len(line) == len("sep=;") && strings.HasPrefix(strings.ToLower(line), "sep=") {
		return fmt.Errorf("line 1: %s is for spreadsheets only: remove this line, and pass --delimiter %s", line, Delimiter(line[4]).Flag())
	}
	if wanted != 0 {
		return nil
	}
	commas, other, most := countOutside(line, ','), Delimiter(0), 0
	for _, d := range []Delimiter{';', '\t', '|'} {
		if n := countOutside(line, byte(d)); n > most {
			other, most = d, n
		}
	}
	switch {
	case most > 0 && most >= commas:
		return fmt.Errorf("line 1: the header has %s between its columns: pass --delimiter %s, or --delimiter , if commas separate them", other.plural(), other.Flag())
	case commas == 0 && !columnName(strings.TrimSpace(line)):
		return fmt.Errorf("line 1: %q is neither JSON nor the header of CSV: pass JSON or CSV, or --delimiter , if it is a column's name", clip([]byte(line)))
	}
	return nil
}

// countOutside counts a character outside of quotes.
func countOutside(line string, c byte) (n int) {
	quoted := false
	for i := range len(line) {
		switch {
		case line[i] == '"':
			quoted = !quoted
		case line[i] == c && !quoted:
			n++
		}
	}
	return n
}

// columnName reports whether a text looks like the name of a column, and not like a line of a text.
func columnName(text string) bool {
	name := []rune(text)
	if len(name) == 0 || len(name) > 64 || !unicode.IsLetter(name[0]) && name[0] != '_' || strings.Count(text, " ") > 3 || strings.HasSuffix(text, ".") {
		return false
	}
	for _, r := range name {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r) && !strings.ContainsRune("_-. ", r) {
			return false
		}
	}
	return !slices.Contains([]string{"true", "false", "null"}, text)
}

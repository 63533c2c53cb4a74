package telemetry

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
)

// answerStart is how an answer of Log Analytics or Application Insights begins.
var answerStart = regexp.MustCompile(`^\s*\{\s*"(tables|error)"\s*:`)

// isAnswer looks at the beginning.
func isAnswer(r *bufio.Reader) bool {
	const enough = 256
	start, _ := r.Peek(enough) // an error is found again by reading
	return answerStart.Match(start)
}

// answer reads {"tables": [{"name": …, "columns": [{"name": …}], "rows": [[…], …]}]}, one row at a
// time.
type answer struct {
	*json.Decoder
	bounded *recordReader
	filter  Filter
	add     func(Item) error
	row     int
}

func readAnswer(r io.Reader, filter Filter, add func(Item) error) error {
	bounded := &recordReader{source: r}
	a := &answer{json.NewDecoder(bounded), bounded, filter, add, 0}
	err := a.object(func(key string) error {
		switch key {
		case "tables":
			return a.array(a.table)
		case "error":
			var refusal struct{ Code string }
			if err := a.Decode(&refusal); err != nil {
				return err
			}
			// An incomplete answer would look like a loss.
			return fmt.Errorf("an answer of Log Analytics with the error %.60q: query a shorter time, or use longer bins", refusal.Code)
		}
		return a.skip()
	})
	if err == nil {
		if _, more := a.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("something follows the answer of Log Analytics: pass one answer")
		}
	}
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		err = errors.New("the answer of Log Analytics is cut off")
	}
	return err
}

// table reads one table. Its columns come before its rows, as Azure writes them.
func (a *answer) table() error {
	var columns []string
	return a.object(func(key string) error {
		switch key {
		case "columns":
			return a.array(func() error {
				var c struct{ Name string }
				err := a.Decode(&c)
				columns = append(columns, c.Name)
				return err
			})
		case "rows":
			if columns == nil {
				return errors.New("an answer of Log Analytics whose rows come before their columns")
			}
			return a.array(func() error { return a.one(columns) })
		}
		return a.skip()
	})
}

// one reads a row.
func (a *answer) one(columns []string) error {
	a.row++
	a.bounded.n = 0
	var values []any
	if err := a.Decode(&values); err != nil {
		return &RowError{a.row, err}
	}
	if len(values) != len(columns) {
		return &RowError{a.row, fmt.Errorf("%d values in %d columns", len(values), len(columns))}
	}
	f := fields{}
	for i, value := range values {
		f.set(columns[i], value)
	}
	if err := f.yield(a.filter, a.add); err != nil {
		return &RowError{a.row, err}
	}
	return nil
}

func (a *answer) object(member func(key string) error) error {
	return a.delimited('{', func() error {
		key, err := a.Token()
		if err != nil {
			return err
		}
		name, _ := key.(string)
		return member(name)
	})
}

func (a *answer) array(element func() error) error { return a.delimited('[', element) }

// delimited reads what is between two delimiters.
func (a *answer) delimited(open json.Delim, each func() error) error {
	at, err := a.Token()
	if err != nil {
		return err
	}
	if at != open {
		return fmt.Errorf("an answer of Log Analytics with %v where %v should be", at, open)
	}
	for a.More() {
		a.bounded.n = 0
		if err := each(); err != nil {
			return err
		}
	}
	_, err = a.Token()
	return err
}

func (a *answer) skip() error {
	var raw json.RawMessage
	return a.Decode(&raw)
}

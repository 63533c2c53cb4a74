package backtest

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-go/sluice/autoscale"
)

// Limits of a recording.
const (
	maxRows    = 2_000_000
	maxColumns = 200
	maxField   = 1000
)

// InstancesColumn is the name of the column with the number of instances.
const InstancesColumn = "instances"

// Recording holds metrics over time: a table with one row per reading. As CSV, the
// first column is the time in RFC 3339. Each other column is a metric: a number,
// nothing where there was no value, or the word disabled.
type Recording struct {
	Metrics []string // the columns
	Rows    []Row    // in the order of time
}

// Row holds the values at a time, one per metric.
type Row struct {
	Time   time.Time
	Values []Cell
}

// Cell is a value, or the state if there was none.
type Cell struct {
	Value float64
	State autoscale.MetricState // Active, Disabled, or Failed if there is no value
}

// Has reports whether there is a column of that name.
func (r *Recording) Has(column string) bool { return slices.Contains(r.Metrics, column) }

// value returns a cell by row and column; a Failed one if there is no such column.
func (r *Recording) value(row int, column string) Cell {
	if i := slices.Index(r.Metrics, column); i >= 0 {
		return r.Rows[row].Values[i]
	}
	return Cell{State: autoscale.Failed}
}

// Interval returns the median time between two rows; 0 if there are fewer than two
// rows.
func (r *Recording) Interval() time.Duration {
	var gaps []time.Duration
	for i := 1; i < len(r.Rows); i++ {
		gaps = append(gaps, r.Rows[i].Time.Sub(r.Rows[i-1].Time))
	}
	if len(gaps) == 0 {
		return 0
	}
	slices.Sort(gaps)
	return gaps[len(gaps)/2]
}

// Read reads a recording as CSV. Errors have the line, and name as the file's name.
func Read(name string, from io.Reader) (*Recording, error) {
	reader := csv.NewReader(from)
	reader.ReuseRecord = true
	header, err := reader.Read()
	if errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: the file is empty: the first line must be time and the metrics' names", name)
	} else if err != nil {
		return nil, withPosition(name, err)
	}
	if len(header) < 2 || len(header) > maxColumns || strings.TrimPrefix(header[0], "\ufeff") != "time" {
		return nil, fmt.Errorf("%s:1: the first line must be time and the names of 1 to %d metrics", name, maxColumns-1)
	}
	r := &Recording{}
	for _, metric := range header[1:] {
		if metric == "" || len(metric) > maxField || slices.Contains(r.Metrics, metric) {
			return nil, fmt.Errorf("%s:1: column %q: each column needs a name that no other column has", name, clip(metric))
		}
		r.Metrics = append(r.Metrics, strings.Clone(metric))
	}
	for {
		fields, err := reader.Read()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, withPosition(name, err)
		}
		line, _ := reader.FieldPos(0)
		row, column, err := readRow(fields)
		if err != nil {
			if column > 0 {
				return nil, fmt.Errorf("%s:%d: %s: %w", name, line, r.Metrics[column-1], err)
			}
			return nil, fmt.Errorf("%s:%d: time: %w", name, line, err)
		}
		if n := len(r.Rows); n > 0 && !row.Time.After(r.Rows[n-1].Time) {
			return nil, fmt.Errorf("%s:%d: time: %s is not after the time of the line before", name, line, fields[0])
		}
		if len(r.Rows) == maxRows {
			return nil, fmt.Errorf("%s:%d: more than %d lines", name, line, maxRows)
		}
		r.Rows = append(r.Rows, row)
	}
	if len(r.Rows) == 0 {
		return nil, fmt.Errorf("%s: there is no line after the first one", name)
	}
	return r, nil
}

// withPosition adds the file and the position to an error of the CSV reader.
func withPosition(name string, err error) error {
	if at, ok := errors.AsType[*csv.ParseError](err); ok {
		return fmt.Errorf("%s:%d:%d: not CSV: %w", name, at.Line, at.Column, at.Err)
	}
	return fmt.Errorf("%s: %w", name, err)
}

// readRow reads a line; column says which field an error is about.
func readRow(fields []string) (row Row, column int, err error) {
	row.Time, err = time.Parse(time.RFC3339Nano, fields[0])
	if err != nil || row.Time.Year() < 1 || row.Time.Year() > 9999 {
		return row, 0, fmt.Errorf("%q: write RFC 3339, such as 2026-01-31T08:00:00Z", clip(fields[0]))
	}
	row.Time = row.Time.UTC()
	for i, text := range fields[1:] {
		var cell Cell
		switch text {
		case "":
			cell.State = autoscale.Failed
		case string(autoscale.Disabled):
			cell.State = autoscale.Disabled
		default:
			cell.Value, err = strconv.ParseFloat(text, 64)
			if err != nil || !(math.Abs(cell.Value) <= autoscale.MaxValue) {
				return row, i + 1, fmt.Errorf("%q: write a number, nothing, or disabled", clip(text))
			}
		}
		row.Values = append(row.Values, cell)
	}
	return row, 0, nil
}

func clip(text string) string {
	if len(text) > 40 {
		return strings.ToValidUTF8(text[:40], "") + "…"
	}
	return text
}

// Writer writes a recording as CSV, row by row. It is not safe for concurrent use.
type Writer struct {
	csv           *csv.Writer
	columns       []string
	headerWritten bool
}

// NewWriter returns a writer of these columns. With appends it does not write the
// first line, which the file already has.
func NewWriter(to io.Writer, columns []string, appends bool) *Writer {
	return &Writer{csv: csv.NewWriter(to), columns: columns, headerWritten: appends}
}

// Write writes and flushes a row: points of one time, and other columns by name.
func (w *Writer) Write(at time.Time, points []autoscale.Point, others map[string]float64) error {
	if !w.headerWritten {
		w.headerWritten = true
		if err := w.csv.Write(append([]string{"time"}, w.columns...)); err != nil {
			return fmt.Errorf("write recording: %w", err)
		}
	}
	fields := make([]string, len(w.columns)+1)
	fields[0] = at.UTC().Format(time.RFC3339Nano)
	for i, column := range w.columns {
		if f, found := others[column]; found {
			fields[i+1] = strconv.FormatFloat(f, 'f', -1, 64)
		}
		for _, p := range points {
			switch {
			case p.Metric != column:
			case p.State == autoscale.Active:
				fields[i+1] = strconv.FormatFloat(p.Value, 'f', -1, 64)
			case p.State == autoscale.Disabled:
				fields[i+1] = string(autoscale.Disabled)
			}
		}
	}
	if err := w.csv.Write(fields); err != nil {
		return fmt.Errorf("write recording: %w", err)
	}
	w.csv.Flush()
	if err := w.csv.Error(); err != nil {
		return fmt.Errorf("write recording: %w", err)
	}
	return nil
}

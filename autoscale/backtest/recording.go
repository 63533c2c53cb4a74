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

// Bounds of a recording.
const (
	maxRows    = 2_000_000
	maxColumns = 200
	maxField   = 1000
)

// InstancesColumn is the column for how many instances there were.
const InstancesColumn = "instances"

// Recording is metrics over time: a table with a row for each reading of all of
// them. As CSV its first column is the time, in RFC 3339, and each other one is
// a metric: a number, or nothing where there was no value, or the word disabled.
type Recording struct {
	Metrics []string // the columns
	Rows    []Row    // by time, rising
}

// Row is the values at a time, one per metric.
type Row struct {
	Time   time.Time
	Values []Cell
}

// Cell is a value, or the state that there was instead.
type Cell struct {
	Value float64
	State autoscale.MetricState // Active, Disabled, or Failed for one that is missing
}

// Has tells whether there is a column.
func (r *Recording) Has(column string) bool { return slices.Contains(r.Metrics, column) }

// value is a cell's, by column; missing if there is no such column.
func (r *Recording) value(row int, column string) Cell {
	if i := slices.Index(r.Metrics, column); i >= 0 {
		return r.Rows[row].Values[i]
	}
	return Cell{State: autoscale.Failed}
}

// Interval is the usual time between two rows, their median; 0 for fewer than
// two.
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

// Read reads a recording as CSV. Errors name the file and the line.
func Read(name string, from io.Reader) (*Recording, error) {
	reader := csv.NewReader(from)
	reader.ReuseRecord = true
	header, err := reader.Read()
	if errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: empty: the first line must be time and the metrics' names", name)
	} else if err != nil {
		return nil, withPosition(name, err)
	}
	if len(header) < 2 || len(header) > maxColumns || strings.TrimPrefix(header[0], "\ufeff") != "time" {
		return nil, fmt.Errorf("%s:1: the first line must be time and the names of 1 to %d metrics", name, maxColumns-1)
	}
	r := &Recording{}
	for _, metric := range header[1:] {
		if metric == "" || len(metric) > maxField || slices.Contains(r.Metrics, metric) {
			return nil, fmt.Errorf("%s:1: column %q: must have a name, and one of its own", name, clip(metric))
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
			return nil, fmt.Errorf("%s:%d: time: %s is not after that of the line before", name, line, fields[0])
		}
		if len(r.Rows) == maxRows {
			return nil, fmt.Errorf("%s:%d: more than %d lines", name, line, maxRows)
		}
		r.Rows = append(r.Rows, row)
	}
	if len(r.Rows) == 0 {
		return nil, fmt.Errorf("%s: no values behind the first line", name)
	}
	return r, nil
}

// withPosition says where in a file what is no CSV was found.
func withPosition(name string, err error) error {
	if at, ok := errors.AsType[*csv.ParseError](err); ok {
		return fmt.Errorf("%s:%d:%d: not CSV: %w", name, at.Line, at.Column, at.Err)
	}
	return fmt.Errorf("%s: %w", name, err)
}

// readRow reads a line; an error is about the column.
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

// Writer writes a recording as CSV, row by row.
type Writer struct {
	to            *csv.Writer
	columns       []string
	headerWritten bool
}

// NewWriter returns a writer of these columns; one that appends leaves the first
// line out.
func NewWriter(to io.Writer, columns []string, appends bool) *Writer {
	return &Writer{to: csv.NewWriter(to), columns: columns, headerWritten: appends}
}

// Write writes a row: points of one time, and other columns by name.
func (w *Writer) Write(at time.Time, points []autoscale.Point, others map[string]float64) error {
	if !w.headerWritten {
		w.headerWritten = true
		if err := w.to.Write(append([]string{"time"}, w.columns...)); err != nil {
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
	if err := w.to.Write(fields); err != nil {
		return fmt.Errorf("write recording: %w", err)
	}
	w.to.Flush()
	if err := w.to.Error(); err != nil {
		return fmt.Errorf("write recording: %w", err)
	}
	return nil
}

package telemetry

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sluice-go/sluice/cmd/sluice/internal/textfile"
)

// Filter says which items of an export count.
type Filter struct {
	Event       string // name of the custom event; empty: all items
	Measurement string // name of its measurement; empty: items are counted
}

// maxRecord is how long a line of JSON or a record of CSV may be, in bytes.
const maxRecord = 1 << 20

// RowError is a row of an export that can't be read.
type RowError struct {
	Row int // from 1, the header not counted
	Err error
}

func (e *RowError) Error() string { return fmt.Sprintf("row %d: %v", e.Row, e.Err) }

// Unwrap returns Err.
func (e *RowError) Unwrap() error { return e.Err }

// Read reads an export and calls add with the items that count. An export is CSV with a header,
// JSON lines, those of the classic continuous export among them, or an answer of Log Analytics,
// {"tables": …}. Its beginning shows which format it is. CSV may have semicolons or tabs instead of
// commas, and each may be compressed with gzip or zstd. Read stops at the first row that can't be
// parsed ([*RowError]) and at add's first error. It ignores columns that it doesn't know.
func Read(r io.Reader, filter Filter, add func(Item) error) error {
	in, err := textfile.Open(r, textfile.UTF8)
	if err != nil {
		return err
	}
	for {
		c, err := in.ReadByte()
		switch {
		case err == io.EOF:
			return errors.New("it is empty")
		case err != nil:
			return err
		case c == ' ' || c == '\t' || c == '\r' || c == '\n':
			continue
		}
		if err := in.UnreadByte(); err != nil {
			return err
		}
		switch c {
		case '{':
			if isAnswer(in) {
				return readAnswer(in, filter, add)
			}
			return readLines(in, filter, add)
		case '[':
			return errors.New("a JSON array: write one object to a line, for example with jq -c '.[]'")
		}
		return readCSV(in, filter, add)
	}
}

var errNotUTF8 = errors.New("not UTF-8: convert the export")

func readLines(r io.Reader, filter Filter, add func(Item) error) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxRecord)
	row := 0
	for lines.Scan() {
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		row++
		if !utf8.Valid(line) {
			return &RowError{row, errNotUTF8}
		}
		var object map[string]any
		if err := json.Unmarshal(line, &object); err != nil {
			return &RowError{row, fmt.Errorf("not a JSON object: %w", err)}
		}
		if err := yieldObject(object, filter, add); err != nil {
			return &RowError{row, err}
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return &RowError{row + 1, fmt.Errorf("longer than %d bytes", maxRecord)}
	}
	return lines.Err()
}

// yieldObject is a line of JSON: an item, or what the classic continuous export has of one.
func yieldObject(object map[string]any, filter Filter, add func(Item) error) error {
	if is, err := yieldClassic(object, filter, add); is {
		return err
	}
	f := fields{}
	for name, value := range object {
		f.set(name, value)
	}
	return f.yield(filter, add)
}

func readCSV(r *bufio.Reader, filter Filter, add func(Item) error) error {
	bounded := &recordReader{source: r}
	in := csv.NewReader(bounded)
	in.Comma, in.ReuseRecord = separator(r), true
	header, err := in.Read()
	if err != nil {
		return fmt.Errorf("header: %w", err)
	}
	columns := make([]string, len(header))
	for i, name := range header {
		columns[i] = strings.Clone(name)
	}
	for row := 1; ; row++ {
		bounded.n = 0
		record, err := in.Read()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return &RowError{row, err}
		}
		if slices.ContainsFunc(record, func(value string) bool { return !utf8.ValidString(value) }) {
			return &RowError{row, errNotUTF8}
		}
		f := fields{}
		for i, value := range record {
			f.set(columns[i], value)
		}
		if err := f.yield(filter, add); err != nil {
			return &RowError{row, err}
		}
	}
}

// separator is what separates the header's columns: a comma, unless there are
// more of another.
func separator(r *bufio.Reader) rune {
	_, _ = r.Peek(1) // fills the buffer
	header, _ := r.Peek(r.Buffered())
	header, _, _ = bytes.Cut(header, []byte("\n"))
	best := ','
	for _, c := range []rune{';', '\t'} {
		if bytes.Count(header, []byte(string(c))) > bytes.Count(header, []byte(string(best))) {
			best = c
		}
	}
	return best
}

// recordReader fails once it has been read further than a record may be long.
type recordReader struct {
	source io.Reader
	n      int
}

func (r *recordReader) Read(p []byte) (int, error) {
	if r.n > maxRecord {
		return 0, fmt.Errorf("longer than %d bytes", maxRecord)
	}
	n, err := r.source.Read(p)
	r.n += n
	return n, err
}

// fields are a row's values under the names that this package knows them by.
type fields map[string]any

// names maps the columns of both schemas, in lower case, to one.
var names = map[string]string{
	"timestamp": "time", "timegenerated": "time", "time": "time",
	"name":       "name",
	"itemcount":  "count",
	"sdkversion": "sdk", "sdk": "sdk",
	"custommeasurements": "measurements", "measurements": "measurements",
	"customdimensions": "properties", "properties": "properties",
	"value": "value", "valuesum": "value",
	"microsoft.sample_rate": "rate",
	"items":                 "items", "raw": "raw", "weight": "weight", "weighted": "weighted", "suspect": "suspect",
	"low": "low", "high": "high", "squares": "squares",
}

// set keeps a value whose column is known, if it is there; of the name also
// that it isn't. The portal's exports write the zone behind the name of a time:
// "timestamp [UTC]".
func (f fields) set(column string, value any) {
	column = strings.ToLower(strings.TrimSpace(column))
	column = strings.TrimSpace(strings.TrimSuffix(column, "[utc]"))
	if name, known := names[column]; known && (value != nil && value != "" || name == "name") {
		f[name] = value
	}
}

func (f fields) yield(filter Filter, add func(Item) error) error {
	if name, ok := f["name"]; ok && filter.Event != "" && name != filter.Event {
		return nil
	}
	at, err := f.time()
	if err != nil {
		return err
	}
	sdk, _ := f["sdk"].(string)
	if _, summed := f["weighted"]; summed {
		return f.summed(at, sdk, add)
	}
	count, err := f.number("count", 0)
	if err != nil {
		return err
	}
	value, counts, err := f.value(filter.Measurement)
	if err != nil || !counts {
		return err
	}
	rate, err := f.rate()
	switch {
	case err != nil:
		return err
	case count < 1 && !(rate > 0 && rate <= 100):
		return errors.New("it has no itemCount of 1 or more: without one, sampling looks like loss")
	}
	return add(single(at, value, count, rate, sdk))
}

// summed is a row that sums items up. Of low, high and squares there are all or none.
func (f fields) summed(at time.Time, sdk string, add func(Item) error) error {
	n := map[string]float64{}
	for _, name := range []string{"items", "raw", "weight", "weighted", "suspect", "low", "high", "squares"} {
		value, err := f.number(name, math.NaN())
		if err != nil {
			return err
		}
		n[name] = value
	}
	for _, name := range []string{"items", "raw", "weight", "weighted"} {
		if math.IsNaN(n[name]) {
			return fmt.Errorf("column %s is missing: rows that sum items up have items, raw, weight and weighted", name)
		}
	}
	it := Item{
		Time: at, Items: int64(n["items"]), Raw: n["raw"], Weight: n["weight"], Weighted: n["weighted"],
		Low: n["low"], High: n["high"], Squares: n["squares"], SDK: sdk,
	}
	if _, found := f["suspect"]; found {
		it.Suspect = int64(n["suspect"])
	}
	switch sum := it.Low + it.High + it.Squares; {
	case math.IsNaN(it.Low) && math.IsNaN(it.High) && math.IsNaN(it.Squares):
		it.roughly()
	case math.IsNaN(sum):
		return errors.New("of the columns low, high and squares there are some: return all three, or none")
	case it.Low > it.Weighted*(1+1e-9) || it.High < it.Weighted*(1-1e-9):
		return fmt.Errorf("weighted %v is not between low %v and high %v", it.Weighted, it.Low, it.High)
	}
	return add(it)
}

// value is the measurement, and whether the item has it.
func (f fields) value(measurement string) (float64, bool, error) {
	if measurement == "" {
		return 1, true, nil
	}
	list, err := f.object("measurements")
	if err != nil {
		return 0, false, err
	}
	v, ok := list[measurement]
	if !ok {
		if list == nil && f["value"] != nil {
			n, err := f.number("value", 0)
			return n, true, err
		}
		return 0, false, nil
	}
	n, err := number(v)
	if err != nil {
		return 0, false, fmt.Errorf("measurement %s: %w", measurement, err)
	}
	return n, true, nil
}

// rate is the rate that the exporter left in the properties or in a column, 0 if it didn't.
func (f fields) rate() (float64, error) {
	list, err := f.object("properties")
	if err != nil {
		return 0, err
	}
	recorded := list["microsoft.sample_rate"]
	if recorded == nil {
		recorded = f["rate"]
	}
	if recorded == nil {
		return 0, nil
	}
	rate, err := number(recorded)
	if err != nil {
		return 0, fmt.Errorf("microsoft.sample_rate: %w", err)
	}
	return rate, nil
}

// object is a column that is a JSON object, or a text that holds one.
func (f fields) object(name string) (map[string]any, error) {
	switch v := f[name].(type) {
	case map[string]any:
		return v, nil
	case string:
		var object map[string]any
		if err := json.Unmarshal([]byte(v), &object); err != nil {
			return nil, fmt.Errorf("%s: not a JSON object", name)
		}
		return object, nil
	}
	return nil, nil
}

func (f fields) number(name string, missing float64) (float64, error) {
	v, ok := f[name]
	if !ok {
		return missing, nil
	}
	n, err := number(v)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", name, err)
	}
	if n < 0 {
		return 0, fmt.Errorf("%s: %v is negative", name, n)
	}
	return n, nil
}

// maxNumber keeps sums finite.
const maxNumber = 1e15

func number(v any) (float64, error) {
	n, ok := v.(float64)
	if text, isText := v.(string); isText {
		var err error
		n, err = strconv.ParseFloat(strings.TrimSpace(text), 64)
		ok = err == nil
	}
	if !ok || math.IsNaN(n) || math.Abs(n) > maxNumber {
		return 0, fmt.Errorf("%.40v is not a number that can be summed", v)
	}
	return n, nil
}

// layouts are the forms of times in exports; the last two are those of the
// portal, in UTC.
var layouts = []string{
	time.RFC3339Nano, "2006-01-02T15:04:05.999999999", "2006-01-02 15:04:05.999999999", "2006-01-02",
	"1/2/2006, 3:04:05.999999999 PM", "1/2/2006 3:04:05.999999999 PM",
}

func (f fields) time() (time.Time, error) {
	text, ok := f["time"].(string)
	if !ok {
		return time.Time{}, errors.New("it has no time: the column is timestamp or TimeGenerated")
	}
	for _, layout := range layouts {
		if t, err := time.Parse(layout, strings.TrimSpace(text)); err == nil {
			if y := t.Year(); y < 2000 || y > 2200 {
				return time.Time{}, fmt.Errorf("the time %.40q is not of this age", text)
			}
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("the time %.40q: write it as 2026-01-31T08:00:00Z", text)
}

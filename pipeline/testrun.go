package pipeline

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/humanize"
)

// Difference is what a test expects and what comes instead.
type Difference struct {
	Event     int    // of a file of events, from 1; 0: the only one
	Row       int    // from 1; 0: the only one
	Column    string // empty: about the whole event
	Want, Got string
	Source    string // of the column: its type and where its value comes from
}

// Run runs the test. It connects to nothing but what the file's format needs. The error is why the
// test could not run.
func (t *Test) Run(ctx context.Context) ([]Difference, error) {
	if t.events == "" {
		e, err := t.event.event(t.pipeline.System)
		if err != nil {
			return nil, err
		}
		tried, err := t.try(ctx, e)
		if err != nil {
			return nil, err
		}
		rows := t.want.checkEvent(&tried)
		if t.want.form == "rows" && rows == nil {
			rows = t.want.checkRows(tried.Rows)
		}
		return rows, nil
	}
	return t.runEvents(ctx)
}

func (t *Test) try(ctx context.Context, e *sluice.Event) (Tried, error) {
	if t.decoded {
		return t.pipeline.TryDecoded(e), nil
	}
	return t.pipeline.Try(ctx, e)
}

// maxSampleLine bounds a line of a file of events.
const maxSampleLine = 64 << 20

// runEvents runs the test with a file of events. Rows are those of all events together.
func (t *Test) runEvents(ctx context.Context) (list []Difference, err error) {
	file, err := os.Open(t.events)
	if err != nil {
		return nil, fmt.Errorf("events: %w", err)
	}
	defer file.Close()
	var rows []TriedRow
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, maxSampleLine)
	number, n := 0, 0
	for lines.Scan() {
		number++
		line := bytes.Clone(bytes.TrimSpace(lines.Bytes()))
		if len(line) == 0 {
			continue
		}
		e, is, err := ParseSample(line, t.pipeline.System)
		if err != nil {
			return list, fmt.Errorf("%s: line %d: %w", t.events, number, err)
		}
		if n++; !is {
			e.Sequence = int64(n)
		}
		tried, err := t.try(ctx, e)
		if err != nil {
			return list, err
		}
		for _, d := range t.want.checkEvent(&tried) {
			d.Event = n
			list = append(list, d)
		}
		rows = append(rows, tried.Rows...)
	}
	if err := lines.Err(); err != nil {
		return list, fmt.Errorf("%s: line %d: %w", t.events, number+1, err)
	}
	if n == 0 {
		return list, fmt.Errorf("%s: %w", t.events, errors.Join(io.ErrUnexpectedEOF, errors.New("has no events")))
	}
	if t.want.form == "rows" && len(list) == 0 {
		list = t.want.checkRows(rows)
	}
	return list, nil
}

// checkEvent compares what became of one event, but for the rows of the form rows.
func (x *expectation) checkEvent(t *Tried) []Difference {
	wrong := func() []Difference { return []Difference{{Want: x.String(), Got: t.String()}} }
	failed := t.Err != nil
	switch {
	case x.form == "error":
		if !failed || !strings.Contains(t.Err.Error(), x.text) {
			return wrong()
		}
		return nil
	case x.form == "skipped":
		if failed || !t.Skipped {
			return wrong()
		}
		return nil
	case failed, t.Skipped, x.table != "" && t.Table != x.table:
		return wrong()
	case x.route != 0 && t.Route != x.route-1:
		return []Difference{{Want: x.String(), Got: fmt.Sprintf("route %d, %s", t.Route+1, t)}}
	case x.form == "row" || x.form == "deleted":
		if len(t.Rows) != 1 || t.Rows[0].Deleted != (x.form == "deleted") {
			return wrong()
		}
		return x.rows[0].compare(&t.Rows[0], 0)
	}
	return nil
}

// checkRows compares all rows.
func (x *expectation) checkRows(rows []TriedRow) (list []Difference) {
	if len(rows) != len(x.rows) {
		return []Difference{{Want: x.String(), Got: humanize.Plural(len(rows), "row", "rows")}}
	}
	for i := range rows {
		list = append(list, x.rows[i].compare(&rows[i], i+1)...)
	}
	return list
}

// String says in one line what is expected of an event.
func (x *expectation) String() string {
	text := ""
	switch x.form {
	case "row":
		text = "a row"
	case "rows":
		text = humanize.Plural(len(x.rows), "row", "rows")
	case "deleted":
		text = "deletes a row"
	case "skipped":
		return "skipped"
	case "error":
		return fmt.Sprintf("dead letter with %q", x.text)
	}
	switch {
	case x.table != "" && text != "":
		text += " of " + x.table
	case x.table != "":
		text = "a row of " + x.table
	}
	if x.route != 0 {
		text = strings.TrimPrefix(text+fmt.Sprintf(", route %d", x.route), ", ")
	}
	return text
}

// compare compares the values that a test names with a row.
func (w wantedRow) compare(r *TriedRow, number int) (list []Difference) {
	for _, want := range w {
		d := Difference{Row: number, Column: want.name, Want: shownJSON(want.json), Got: "no such value"}
		same := false
		for i := range r.Values {
			if v := &r.Values[i]; v.Name == want.name {
				same = v.is(want.json)
				d.Got = v.String()
				d.Source = strings.TrimSuffix(v.Type+" from "+v.From, " from ")
			}
		}
		if !same {
			list = append(list, d)
		}
	}
	return list
}

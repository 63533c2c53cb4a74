package trial

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/sluice-go/sluice/cmd/sluice/internal/term"
	"github.com/sluice-go/sluice/internal/humanize"
	"github.com/sluice-go/sluice/pipeline"
)

// Bounds of what is written.
const (
	noTerminal = 120 // columns
	leastWidth = 60
	shownCause = 10 // reasons
	leastValue = 8  // characters of a value
	shownBody  = 3  // lines of a body
)

// columns returns how wide lines are; 0 is no terminal.
func columns(width int) int {
	if width == 0 {
		return noTerminal
	}
	return max(width, leastWidth)
}

// Report writes the summary, in lines of at most width characters; 0 is no terminal.
func (s *Summary) Report(w io.Writer, width int) {
	width = columns(width)
	s.counts(w, width)
	s.reasons(w, width)
	for _, t := range s.Targets {
		t.report(w, len(s.Targets) > 1, width)
		s.failures(w, t, width)
	}
	s.first(w, width)
}

// counts writes what becomes of how many events.
func (s *Summary) counts(w io.Writer, width int) {
	type line struct {
		n    int
		text string
	}
	var lines []line
	for _, t := range s.Targets {
		if t.Events > 0 {
			lines = append(lines, line{t.Events, t.String(len(s.Targets) > 1)})
		}
	}
	if s.Skipped > 0 {
		lines = append(lines, line{s.Skipped, "left out by only or otherwise"})
	}
	lines = append(lines, line{s.Dead, "would become dead letters"})
	digits := 0
	for _, l := range lines {
		digits = max(digits, len(humanize.Count(l.n)))
	}
	for _, l := range lines {
		term.Wrap(w, fmt.Sprintf("  %*s  ", digits, humanize.Count(l.n)), l.text, width)
	}
}

// String says what the target gets. numbered says that the file has routes.
func (t *Target) String(numbered bool) string {
	var parts []string
	if t.Rows > 0 && t.Kind == "insert" {
		text := humanize.Plural(t.Rows, "row of ", "rows of ") + t.Table
		if t.Rows == t.Events && !t.several {
			text = "a row of " + t.Table + map[bool]string{true: " each"}[t.Events > 1]
		}
		parts = append(parts, text)
	}
	if t.Deletes > 0 {
		parts = append(parts, humanize.Plural(t.Deletes, "delete in ", "deletes in ")+t.Table)
	}
	if t.Clears > 0 {
		parts = append(parts, fmt.Sprintf("%s deleted with all rows %s", t.Table, humanize.Plural(t.Clears, "time", "times")))
	}
	text := strings.Join(parts, ", ")
	if text == "" {
		text = "to " + t.name()
	}
	if numbered {
		text = fmt.Sprintf("route %d: %s", t.Route+1, text)
	}
	return text
}

// name is the table, or the kind of target.
func (t *Target) name() string {
	if t.Table != "" {
		return "table " + t.Table
	}
	return "target " + t.Kind
}

// reasons writes why events become dead letters, the most frequent reason first.
func (s *Summary) reasons(w io.Writer, width int) {
	if len(s.Reasons) == 0 {
		return
	}
	fmt.Fprintln(w, "\nDead letters:")
	slices.SortStableFunc(s.Reasons, func(a, b *Reason) int { return cmp.Compare(b.Events, a.Events) })
	left := s.More
	for i, r := range s.Reasons {
		if i >= shownCause {
			left += r.Events
			continue
		}
		text := fmt.Sprintf("%s (%s%s)", r.Text, map[bool]string{true: "first: "}[r.Events > 1], r.Where)
		term.Wrap(w, fmt.Sprintf("  %s × ", humanize.Count(r.Events)), escaped(text), width)
	}
	if left > 0 {
		fmt.Fprintf(w, "  %s for other reasons: --failed shows all\n", humanize.Count(left))
	}
}

// report writes the columns.
func (t *Target) report(w io.Writer, numbered bool, width int) {
	if len(t.Columns) == 0 {
		return
	}
	title := t.name()
	if numbered {
		title = fmt.Sprintf("route %d, %s", t.Route+1, title)
	}
	fmt.Fprintf(w, "\n%s:\n", strings.ToUpper(title[:1])+title[1:])
	some := func(count func(*Column) int) bool {
		return slices.ContainsFunc(t.Columns, func(c *Column) bool { return count(c) > 0 })
	}
	header := []string{"COLUMN", "TYPE", "VALUES"}
	counts := []func(*Column) int{func(c *Column) int { return c.Values }}
	for _, more := range []struct {
		name  string
		count func(*Column) int
	}{{"NULL", func(c *Column) int { return c.Nulls }}, {"MISSING", func(c *Column) int { return c.Missing }}, {"FAILED", func(c *Column) int { return c.Failed }}} {
		if some(more.count) {
			header, counts = append(header, more.name), append(counts, more.count)
		}
	}
	rows := [][]string{header}
	for _, c := range t.Columns {
		row := []string{escaped(c.Name), c.Type}
		for _, count := range counts {
			row = append(row, humanize.Count(count(c)))
		}
		rows = append(rows, row)
	}
	longest := make([]int, len(header))
	for _, row := range rows {
		for i, cell := range row {
			longest[i] = max(longest[i], utf8.RuneCountInString(cell))
		}
	}
	room := width - 2 // for names and examples
	for _, n := range longest[1:] {
		room -= n + 2
	}
	name := min(longest[0], max(leastValue, room/2))
	table := term.NewTable(append(header, "EXAMPLE")...)
	for i, c := range t.Columns {
		row := rows[i+1]
		row[0] = humanize.Shorten(row[0], name)
		table.Add(append(row, humanize.Shorten(escaped(c.Example), max(leastValue, room-name)))...)
	}
	_, _ = table.WriteTo(w)
}

// failures writes why columns fail, of those that are not the reason of a dead letter above.
func (s *Summary) failures(w io.Writer, t *Target, width int) {
	above := s.Reasons[:min(len(s.Reasons), shownCause)]
	for _, c := range t.Columns {
		if c.Failed > 0 && !slices.ContainsFunc(above, func(r *Reason) bool { return strings.HasSuffix(r.Text, c.Reason) }) {
			term.Wrap(w, fmt.Sprintf("  %s × ", humanize.Count(c.Failed)), escaped(c.Reason), width)
		}
	}
}

// first writes the first rows.
func (s *Summary) first(w io.Writer, width int) {
	left := s.Keep
	for _, e := range s.First {
		for i := range e.Rows[:min(left, len(e.Rows))] {
			left--
			what := ""
			if e.Table != "" {
				what = " of " + e.Table
			}
			if e.Rows[i].Deleted {
				what += ", deleted"
			}
			fmt.Fprintf(w, "\nRow%s: %s\n", what, escaped(e.Where()))
			writeRow(w, &e.Rows[i], width)
		}
	}
}

// writeRow writes the values of a row, each on a line.
func writeRow(w io.Writer, r *pipeline.TriedRow, width int) {
	longest := 0
	for _, v := range r.Values {
		longest = max(longest, utf8.RuneCountInString(escaped(v.Name)))
	}
	longest = min(longest, width/3)
	for i := range r.Values {
		v := &r.Values[i]
		name := humanize.Shorten(escaped(v.Name), longest)
		pad := strings.Repeat(" ", longest-utf8.RuneCountInString(name))
		fmt.Fprintf(w, "  %s%s  %s\n", name, pad, humanize.Shorten(escaped(v.String()), max(leastValue, width-longest-4)))
	}
}

// WriteFailed writes an event that becomes a dead letter: why, and its body.
func WriteFailed(w io.Writer, e *Sample, width int) {
	width = columns(width)
	fmt.Fprintln(w, escaped(e.Where()))
	term.Wrap(w, "  ", escaped(e.Err.Error()), width)
	for i := range e.Rows {
		for _, v := range e.Rows[i].Values {
			if v.Err != nil && !strings.HasSuffix(e.Err.Error(), v.Err.Error()) {
				term.Wrap(w, "  ", escaped(v.Err.Error()), width)
			}
		}
	}
	body := e.Event.Body
	if e.Tried.Event != nil {
		body = e.Tried.Event.Body
	}
	text := escaped(string(body[:min(len(body), 8*width)]))
	fmt.Fprintf(w, "  body: %s\n\n", humanize.Shorten(text, shownBody*width))
}

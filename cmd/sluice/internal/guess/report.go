package guess

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/sluice-go/sluice/cmd/sluice/internal/term"
	"github.com/sluice-go/sluice/internal/humanize"
)

// fewEvents is how few values make a guess unsure.
const fewEvents = 10

// Report writes what was found, in lines of at most width characters; 0 is no terminal.
func (g *Guess) Report(w io.Writer, width int) error {
	width = columns(width)
	for i := range g.Tables {
		if err := g.Tables[i].report(w, g.Split, width); err != nil {
			return err
		}
	}
	for _, n := range g.Notes {
		term.Wrap(w, "", n, width)
	}
	return nil
}

func (t *Table) report(w io.Writer, split string, width int) error {
	title := fmt.Sprintf("Table %s", t.Name)
	if split != "" {
		title += fmt.Sprintf(", where %s is %s", split, strings.Join(t.Values, " or "))
	}
	term.Wrap(w, "", title+": "+events(t.Events, "event"), width)
	fmt.Fprintln(w)
	least := 22
	if width >= 100 {
		least = 34
	}
	table := term.NewTable("COLUMN", "FROM", "TYPE", "EVENTS", "EXAMPLE")
	widths := []int{6, 4, 4, 6}
	var rows [][]string
	for _, c := range t.Columns {
		row := []string{humanize.Shorten(c.Name, least), humanize.Shorten(c.From, least), humanize.Shorten(c.kind(), least), c.share(t.Events)}
		for i := range widths {
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
		}
		rows = append(rows, append(row, c.Example))
	}
	room := width
	for _, n := range widths {
		room -= n + 2
	}
	for _, row := range rows {
		row[4] = humanize.Shorten(row[4], max(8, min(room, maxExample)))
		table.Add(row...)
	}
	if _, err := table.WriteTo(w); err != nil {
		return err
	}
	t.doubts(w, width)
	fmt.Fprintln(w)
	return nil
}

// doubts writes what the guesses depend on.
func (t *Table) doubts(w io.Writer, width int) {
	var lines [][2]string
	longest := 0
	for _, c := range t.Columns {
		why := c.Why
		if c.Seen > 0 && c.Seen < fewEvents && t.Events >= fewEvents {
			why = joined(why, fmt.Sprintf("only %s", events(c.Seen, "value")))
		}
		if why == "" {
			continue
		}
		name := humanize.Shorten(c.Name, 24)
		longest = max(longest, utf8.RuneCountInString(name))
		lines = append(lines, [2]string{name, why})
	}
	if len(lines) == 0 {
		return
	}
	fmt.Fprintln(w, "\nLook at these, whose values leave a doubt:")
	for _, l := range lines {
		pad := strings.Repeat(" ", longest-utf8.RuneCountInString(l[0]))
		term.Wrap(w, "  "+l[0]+pad+"  ", l[1], width)
	}
}

// kind is the type with its notation.
func (c *Column) kind() string {
	switch {
	case c.Plain && c.From == "sequence":
		return "bigint"
	case c.Plain:
		return "text"
	}
	return strings.TrimSpace(strings.Join([]string{c.Type, c.Format, c.Zone}, " "))
}

// share says in how many events the value is.
func (c *Column) share(all int) string {
	switch {
	case c.From == "partition", c.From == "sequence", c.From == "body", c.Seen >= all:
		return "all"
	}
	return humanize.Count(c.Seen)
}

// Left writes what is left to do.
func (g *Guess) Left(w io.Writer, width int) {
	for _, todo := range g.Todo {
		term.Wrap(w, "To do: ", todo, columns(width))
	}
}

// columns is the width of lines: 0 is no terminal.
func columns(width int) int {
	if width == 0 {
		return 120
	}
	return max(width, 60)
}

// Report writes what became of the samples.
func (t *Tried) Report(w io.Writer, width int) {
	width = columns(width)
	switch {
	case t.Dead == 0 && t.Skipped == 0:
		term.Wrap(w, "", fmt.Sprintf("Tried: of %s none becomes a dead letter.", events(t.Events, "event")), width)
	case t.Dead == 0:
		term.Wrap(w, "", fmt.Sprintf("Tried: of %s none becomes a dead letter; %s skipped.", events(t.Events, "event"), humanize.Count(t.Skipped)), width)
	default:
		term.Wrap(w, "", fmt.Sprintf("Tried: of %s, %s would become dead letters:", events(t.Events, "event"), humanize.Count(t.Dead)), width)
		for _, r := range t.Reasons {
			term.Wrap(w, fmt.Sprintf("  %s × ", humanize.Count(r.Events)), r.Text, width)
		}
	}
}

package verify

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/sluice-go/sluice/internal/humanize"
)

// sections are the parts of the report for people, in their order.
var sections = []struct {
	title string
	of    []Verdict
}{
	{"held", []Verdict{Held}},
	{"differed, and Sluice allows for it", []Verdict{Tolerated}},
	{"DIFFERED", []Verdict{Differed}},
	{"could not be checked", []Verdict{Undecided, Skipped}},
}

// WriteText writes the report for people.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	for _, s := range r.Systems {
		fmt.Fprintf(&b, "%s\n", s.System)
		writeSystem(&b, &s)
		b.WriteByte('\n')
	}
	for _, line := range r.Left {
		fmt.Fprintf(&b, "left behind: %s\n", line)
	}
	fmt.Fprintf(&b, "%d held, %d differed, %d differed and are allowed for, %d could not be checked, %d not asked for, in %s\n",
		r.Count(Held), r.Count(Differed), r.Count(Tolerated), r.Count(Undecided), r.Count(Skipped), humanize.Span(r.Took))
	_, err := io.WriteString(w, b.String())
	return err
}

func writeSystem(b *strings.Builder, s *SystemReport) {
	if right := s.unreached(); right != nil {
		fmt.Fprintf(b, "  cannot be reached: %s\n", strings.TrimSuffix(right.Found+": "+right.Next, ": "))
		return
	}
	writeRights(b, s.Rights)
	if why := s.unchecked(); why != nil {
		fmt.Fprintf(b, "  not checked: %s\n", why.Found)
		if why.Next != "" {
			fmt.Fprintf(b, "    next: %s\n", why.Next)
		}
		return
	}
	for _, section := range sections {
		writeSection(b, s, section.title, section.of)
	}
	writeMeasures(b, s)
}

// unchecked returns the outcome of all checks if none was made, for one reason.
func (s *SystemReport) unchecked() *Outcome {
	if len(s.Checks) == 0 {
		return nil
	}
	first := &s.Checks[0].Outcome
	if first.Verdict != Undecided || slices.ContainsFunc(s.Checks, func(c Result) bool { return c.Found != first.Found || c.Next != first.Next }) {
		return nil
	}
	return first
}

func writeRights(b *strings.Builder, rights []Right) {
	for _, right := range rights {
		if !right.Granted {
			fmt.Fprintf(b, "  missing right: %s: %s\n    next: %s\n", right.Name, right.Found, right.Next)
		}
	}
}

func writeSection(b *strings.Builder, s *SystemReport, title string, of []Verdict) {
	var list []Result
	for _, verdict := range of {
		for _, c := range s.Checks {
			if c.Verdict == verdict {
				list = append(list, c)
			}
		}
	}
	if len(list) == 0 {
		return
	}
	fmt.Fprintf(b, "  %s\n", title)
	for len(list) > 0 {
		// Checks that failed for one reason, such as a missing right, share an entry.
		same := slices.IndexFunc(list, func(c Result) bool { return c.Found != list[0].Found || c.Next != list[0].Next })
		if same < 0 {
			same = len(list)
		}
		c := list[0]
		for _, other := range list[:same-1] {
			fmt.Fprintf(b, "    %s\n", other.Name)
		}
		fmt.Fprintf(b, "    %-*s %s\n", nameWidth, list[same-1].Name, c.Found)
		if c.Verdict == Differed || c.Verdict == Tolerated {
			fmt.Fprintf(b, "    %-*s assumed: %s\n", nameWidth, "", c.Assumes)
		}
		if c.Next != "" {
			fmt.Fprintf(b, "    %-*s next: %s\n", nameWidth, "", c.Next)
		}
		list = list[same:]
	}
}

// nameWidth is that of the column of names.
const nameWidth = 18

func writeMeasures(b *strings.Builder, s *SystemReport) {
	table := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	begun := false
	for _, c := range s.Checks {
		for _, m := range c.Measures {
			if !begun {
				fmt.Fprintln(b, "  measured")
				begun = true
			}
			fmt.Fprintf(table, "    %s\t%s %s\n", m.Name, strconv.FormatFloat(m.Value, 'f', digits(m.Value), 64), m.Unit)
		}
	}
	_ = table.Flush() // writes to memory
}

// digits is how many digits after the point a number is shown with.
func digits(v float64) int {
	switch {
	case v < 10:
		return 2
	case v < 100:
		return 1
	}
	return 0
}

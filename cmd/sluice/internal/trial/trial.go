// Package trial counts what a pipeline does with events, and writes it for people and programs.
package trial

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/cmd/sluice/internal/term"
	"github.com/sluice-go/sluice/internal/humanize"
	"github.com/sluice-go/sluice/pipeline"
)

// Sample is an event that was tried.
type Sample struct {
	Event *sluice.Event
	Place string // in its file; empty: the partition and the sequence number say it
	pipeline.Tried
}

// Where says where the event is.
func (s *Sample) Where() string {
	if s.Place != "" {
		return s.Place
	}
	return fmt.Sprintf("partition %s, sequence %d", s.Event.Partition, s.Event.Sequence)
}

// Summary is what becomes of all events.
type Summary struct {
	Events, Skipped, Dead int
	Targets               []*Target // of the routes that events take, in the order of the file
	Reasons               []*Reason // of dead letters
	More                  int       // dead letters with other reasons than these
	First                 []*Sample // the first ones with rows

	Keep int // rows of First at most
	kept int
}

// Target is what a route's target gets.
type Target struct {
	Route                         int // as in [pipeline.Tried]
	Kind, Table                   string
	Events, Rows, Deletes, Clears int // without dead letters
	Columns                       []*Column

	several bool // an event has not exactly one row
}

// Column is what events have for a column.
type Column struct {
	Name, Type                     string
	Values, Nulls, Missing, Failed int
	Reason                         string // of the first that failed
	Example                        string
}

// Reason is why some events become dead letters.
type Reason struct {
	Events int
	Text   string // of the first of them
	Where  string
	alike  string
}

// Bounds of what is kept.
const (
	mostReasons = 50
	mostColumns = 2000
	mostExample = 200 // characters
)

// Add counts an event.
func (s *Summary) Add(e *Sample) {
	s.Events++
	var to *Target
	if e.Route >= 0 && e.Kind != "" {
		to = s.target(&e.Tried)
		for i := range e.Rows {
			to.countValues(&e.Rows[i])
		}
	}
	switch {
	case e.Err != nil:
		s.addReason(e)
	case e.Skipped:
		s.Skipped++
	default:
		to.count(&e.Tried)
		if s.kept < s.Keep && len(e.Rows) > 0 {
			s.First = append(s.First, e)
			s.kept += len(e.Rows)
		}
	}
}

// target returns the target of an event.
func (s *Summary) target(t *pipeline.Tried) *Target {
	i, found := slices.BinarySearchFunc(s.Targets, t.Route, func(t *Target, route int) int { return cmp.Compare(t.Route, route) })
	if !found {
		s.Targets = slices.Insert(s.Targets, i, &Target{Route: t.Route, Kind: t.Kind, Table: t.Table})
	}
	return s.Targets[i]
}

func (t *Target) count(tried *pipeline.Tried) {
	t.Events++
	if tried.Cleared {
		t.Clears++
	}
	t.several = t.several || len(tried.Rows) != 1
	for i := range tried.Rows {
		if tried.Rows[i].Deleted {
			t.Deletes++
		} else {
			t.Rows++
		}
	}
}

// countValues counts the values of a row.
func (t *Target) countValues(r *pipeline.TriedRow) {
	for i := range r.Values {
		v := &r.Values[i]
		c := t.column(i, v)
		switch {
		case c == nil:
		case v.Err != nil:
			if c.Failed++; c.Failed == 1 {
				c.Reason = v.Err.Error()
			}
		case v.Missing:
			c.Missing++
		case v.Value == nil:
			c.Nulls++
		default:
			if c.Values++; c.Example == "" {
				c.Example = humanize.Shorten(v.String(), mostExample)
			}
		}
	}
}

// column returns the column of a value, which is the i-th of its row; nil: there are too many.
func (t *Target) column(i int, v *pipeline.TriedValue) *Column {
	if i < len(t.Columns) && t.Columns[i].Name == v.Name {
		return t.Columns[i]
	}
	if n := slices.IndexFunc(t.Columns, func(c *Column) bool { return c.Name == v.Name }); n >= 0 {
		return t.Columns[n]
	}
	if len(t.Columns) == mostColumns {
		return nil
	}
	c := &Column{Name: v.Name, Type: v.Type}
	t.Columns = append(t.Columns, c)
	return c
}

// varying are the parts of an error's text that differ between events with the same mistake.
var varying = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|[0-9]+(?:\.[0-9]+)?`)

func (s *Summary) addReason(e *Sample) {
	s.Dead++
	text := e.Err.Error()
	alike := varying.ReplaceAllString(text, "…")
	for _, r := range s.Reasons {
		if r.alike == alike {
			r.Events++
			return
		}
	}
	if len(s.Reasons) == mostReasons {
		s.More++
		return
	}
	s.Reasons = append(s.Reasons, &Reason{1, text, e.Where(), alike})
}

// escaped makes one line of a text, which can't act on a terminal.
func escaped(text string) string { return lineBreaks.Replace(string(term.Escape(nil, []byte(text)))) }

var lineBreaks = strings.NewReplacer("\n", `\n`, "\t", `\t`)

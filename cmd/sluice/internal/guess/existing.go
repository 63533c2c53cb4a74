package guess

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/cmd/sluice/internal/newfile"
	"github.com/sluice-go/sluice/internal/humanize"
	"github.com/sluice-go/sluice/pipeline"
)

// typeOrder lists, for a type that was guessed, the types that may store its values too, the best
// first.
var typeOrder = map[string][]string{
	"bigint":    {"bigint", "integer", "smallint", "numeric", "double", "real", "text", "boolean", "json"},
	"double":    {"double", "numeric", "real", "text", "json"},
	"numeric":   {"numeric", "text", "double", "json"},
	"boolean":   {"boolean", "text", "json"},
	"text":      {"text", "bigint", "integer", "smallint", "numeric", "double", "real", "boolean", "timestamp", "date", "bytes", "json"},
	"date":      {"date", "timestamp", "text", "json"},
	"timestamp": {"timestamp", "text", "json"},
	"json":      {"json", "text"},
}

// numbers are the types of numbers.
var numbers = []string{"bigint", "integer", "smallint", "numeric", "double", "real"}

// notations are the formats that a type is tried with beside the one that was guessed.
var notations = map[string]string{"boolean": "1/0"}

// matchEvents is how many samples a type is tried on.
const matchEvents = 5000

// fit is a column of the table, with the types that it may have.
type fit struct {
	Column
	choices []Column // that are left; the first is the one that is tried
	kind    string
	known   *pipeline.TableColumn
}

// match maps the values to the columns of a table that exists.
func (g *guesser) match() error {
	existing, err := pipeline.ExistingTable(g.ctx, g.Database, g.Table)
	if err != nil {
		return err
	}
	if len(existing) == 0 {
		g.note("Table %s does not exist yet: the pipeline creates it.", g.Table)
		return nil
	}
	g.g.Choice.Filled.Own = true
	table := &g.g.Tables[0]
	guessed := slices.Clone(table.Columns)
	var fits []*fit
	for i := range existing {
		e := &existing[i]
		at := slices.IndexFunc(guessed, func(c Column) bool { return !e.Generated && sameColumn(c, e.Name) })
		switch {
		case at >= 0:
			fits = append(fits, newFit(guessed[at], e))
			guessed = slices.Delete(guessed, at, at+1)
		case e.Required && !e.Generated:
			g.g.Todo = append(g.g.Todo, fmt.Sprintf("Column %s (%s) must have a value, has no default, and no value of the events has this name: add it to columns.", e.Name, strings.ToLower(e.Kind)))
		}
	}
	var left []string
	for _, c := range guessed {
		if !c.Plain {
			left = append(left, c.From)
		}
	}
	if len(left) > 0 {
		g.note("Table %s has no column for %s.", g.Table, listed(left))
	}
	if len(fits) == 0 {
		return fmt.Errorf("table %s has no column with the name of a value: it has %s", g.Table, listed(names(existing)))
	}
	return g.choose(table, fits)
}

func names(columns []pipeline.TableColumn) []string {
	list := make([]string, len(columns))
	for i, c := range columns {
		list[i] = c.Name
	}
	return list
}

// listed shows the first of a list.
func listed(list []string) string {
	const most = 8
	if len(list) > most {
		return strings.Join(list[:most], ", ") + fmt.Sprintf(" and %d more", len(list)-most)
	}
	return strings.Join(list, ", ")
}

// sameColumn reports whether a value has the name of a column. Case and signs do not count.
func sameColumn(c Column, name string) bool {
	if folded(c.Name) == folded(name) {
		return true
	}
	i := strings.LastIndexAny(strings.TrimSuffix(c.From, `"]`), `."`)
	return i >= 0 && folded(c.From[i:]) == folded(name)
}

func folded(name string) string {
	return strings.ToLower(strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return r
		}
		return -1
	}, name))
}

func newFit(c Column, e *pipeline.TableColumn) *fit {
	f := &fit{Column: c, kind: strings.ToLower(e.Kind), known: e}
	f.Name = e.Name
	for _, t := range typeOrder[c.Type] {
		if !slices.Contains(e.Types, t) {
			continue
		}
		one := f.Column
		if one.Type = t; t != c.Type {
			one.Format = ""
			if t != "timestamp" {
				one.Zone = ""
			}
		}
		f.choices = append(f.choices, one)
		if format := notations[t]; format != "" && t != c.Type {
			one.Format = format
			f.choices = append(f.choices, one)
		}
		if t == "timestamp" && one.Zone == "" && t != c.Type {
			one.Zone = "UTC"
			f.choices = append(f.choices, one)
		}
	}
	if c.Plain {
		f.choices = []Column{f.Column}
	}
	return f
}

// choose tries the types of each column on samples, and takes the first that takes all values, or
// else the first.
func (g *guesser) choose(table *Table, fits []*fit) error {
	fits = slices.DeleteFunc(fits, func(f *fit) bool {
		if len(f.choices) == 0 {
			g.g.Todo = append(g.g.Todo, fmt.Sprintf("Column %s is %s, which stores no value of %s (%s): it is left out.", f.Name, f.kind, f.From, f.Type))
		}
		return len(f.choices) == 0
	})
	firsts := make([]Column, len(fits))
	for i, f := range fits {
		firsts[i] = f.choices[0]
	}
	for more := true; more; {
		failed, err := g.failures(table, fits)
		if err != nil {
			return err
		}
		more = false
		for _, f := range fits {
			if failed[f.Name] > 0 && len(f.choices) > 1 {
				f.choices = f.choices[1:]
				more = true
			}
		}
	}
	failed, err := g.failures(table, fits)
	if err != nil {
		return err
	}
	table.Columns = nil
	for i, f := range fits {
		c := f.choices[0]
		if failed[f.Name] > 0 {
			c = firsts[i]
		}
		c.Required = f.known.Required
		if c.Format != f.Format || c.Type != f.Type && !(slices.Contains(numbers, c.Type) && slices.Contains(numbers, f.Type)) {
			c.Why = joined(f.Why, fmt.Sprintf("%s, because the column is %s", c.kind(), f.kind))
		}
		c.Comment = joined(humanize.Shorten(c.Example, maxExample), c.Why)
		table.Columns = append(table.Columns, c)
	}
	return nil
}

// failures returns how many samples the type that is tried of each column refuses.
func (g *guesser) failures(table *Table, fits []*fit) (map[string]int, error) {
	one := newfile.Table{Name: table.Name}
	for _, f := range fits {
		c := f.choices[0].Column
		c.Required = f.known.Required
		one.Columns = append(one.Columns, c)
	}
	c := g.g.Choice
	filled := *c.Filled
	filled.Tables, c.Filled = []newfile.Table{one}, &filled
	p, err := pipeline.Parse("guess.yaml", []byte(newfile.Text(g.Name, c)), g.lookup)
	if err != nil {
		return nil, err
	}
	_ = p.CheckDatabase(g.ctx) // then values that the columns would change are refused
	failed := map[string]int{}
	n := 0
	err = g.samples.Each(g.ctx, func(e *sluice.Event) error {
		if n++; n > matchEvents {
			return nil
		}
		tried, err := p.Try(g.ctx, e)
		for _, row := range tried.Rows {
			for _, v := range row.Values {
				if v.Err != nil {
					failed[v.Name]++
				}
			}
		}
		return err
	})
	return failed, err
}

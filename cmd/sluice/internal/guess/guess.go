package guess

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/cmd/sluice/internal/newfile"
	"github.com/sluice-go/sluice/internal/humanize"
	"github.com/sluice-go/sluice/pipeline"
	"github.com/sluice-go/sluice/pipeline/infer"
)

// Config says what is known before the samples are read.
type Config struct {
	Name   string         // of the pipeline
	Choice newfile.Choice // Filled has Log, if it is known
	System pipeline.System
	Table  string // empty: the name of the log or of the pipeline
	// Database is the address of the database with the table, empty if it need not exist.
	Database string
	// Lookup returns the value of a variable in the file. Default: a value that is valid there.
	Lookup func(string) (string, bool)
}

// Guess is what was found.
type Guess struct {
	Choice newfile.Choice
	Tables []Table
	Notes  []string // what else the user should know
	Todo   []string // what is left to do before the file runs
	Split  string   // the value that decides to which table an event goes
}

// Table is a table and how many events it gets.
type Table struct {
	Name    string
	Values  []string
	Events  int
	Columns []Column
}

// Column is a column of a table.
type Column struct {
	newfile.Column
	Seen    int    // in how many events the value is
	Example string // as JSON has it
	Why     string // what the guess depends on
}

// guesser makes a guess.
type guesser struct {
	*Config
	ctx     context.Context
	samples Samples
	decoder *pipeline.Pipeline // nil: nothing is decoded
	g       *Guess

	whole  infer.Sample
	shapes infer.Shapes
	keys   keys
	nulls  int
	plain  plain
}

// plain counts bodies that are no JSON objects.
type plain struct{ json, text, binary int }

// shapeEvents is how many events are searched for different shapes.
const shapeEvents = 20_000

// Make guesses what a pipeline file says of events.
func Make(ctx context.Context, samples Samples, cfg *Config) (*Guess, error) {
	g := &guesser{Config: cfg, ctx: ctx, samples: samples, g: &Guess{Choice: cfg.Choice}}
	filled := newfile.Filled{}
	if cfg.Choice.Filled != nil {
		filled = *cfg.Choice.Filled
	}
	g.g.Choice.Filled = &filled
	var sent bodies
	var around envelope
	if err := g.firstLook(&sent, &around); err != nil {
		return nil, err
	}
	filled.Description = samples.Description()
	if sent.events == 0 {
		return nil, fmt.Errorf("%s: there is nothing to guess from", samples.Description())
	}
	if needed := sent.needed(); needed != nil {
		filled.Advice = needed
		g.g.Todo = append(g.g.Todo, strings.Join(needed, " ")+" Until then the table has the bodies as they are.")
		return g.g, g.raw("bytes")
	}
	if word := around.word(); word != "" {
		filled.Format = append(filled.Format, "envelope: "+word)
		g.note("The bodies have the envelope of %s.", map[string]string{"debezium": "Debezium: each is a change of a row", "connect": "Kafka Connect"}[word])
	}
	if err := g.look(); err != nil {
		return nil, err
	}
	if objects, _, _ := g.whole.Events(); objects == 0 {
		kind := "bytes"
		switch {
		case g.plain.binary > 0:
			g.note("The bodies are no JSON and no text.")
		case g.plain.text > 0:
			kind = "text"
			g.note("The bodies are text and no JSON.")
		default:
			kind = "json"
			g.note("The bodies are JSON, but no objects. If they are arrays, each: body writes a row for each element.")
		}
		return g.g, g.raw(kind)
	}
	return g.g, g.columns()
}

func (g *guesser) note(format string, args ...any) {
	g.g.Notes = append(g.g.Notes, fmt.Sprintf(format, args...))
}

// firstLook finds out how bodies are compressed, and what is around their values.
func (g *guesser) firstLook(sent *bodies, around *envelope) error {
	if _, compressed := g.samples.(*Log); compressed {
		err := g.samples.Each(g.ctx, func(e *sluice.Event) error { sent.add(e); return nil })
		if err != nil {
			return err
		}
		if word, why := sent.compression(); word != "" && sent.needed() == nil {
			g.g.Choice.Filled.Format = []string{"compression: " + word}
			g.note("Compression %s: %s.", word, why)
			if err := g.open(); err != nil {
				return err
			}
		}
	}
	if sent.events > 0 && sent.needed() != nil {
		return nil
	}
	// Records of files are events as they are.
	file := sent.events == 0
	return g.samples.Each(g.ctx, func(e *sluice.Event) error {
		if file {
			sent.events++
		}
		if around.connect+around.debezium < around.events {
			return nil
		}
		body, err := g.body(e)
		if err == nil {
			around.add(body)
		}
		return nil
	})
}

// open makes a decoder of the format that is known so far.
func (g *guesser) open() (err error) {
	c := g.g.Choice
	filled := *c.Filled
	filled.Tables = []newfile.Table{{Name: "t", Columns: []newfile.Column{{Name: "b", From: "body", Plain: true}}}}
	c.Filled = &filled
	g.decoder, err = pipeline.Parse("guess.yaml", []byte(newfile.Text(g.Name, c)), g.lookup)
	return err
}

// body returns the decoded body of an event.
func (g *guesser) body(e *sluice.Event) ([]byte, error) {
	if g.decoder == nil {
		return e.Body, nil
	}
	whole, err := g.decoder.Decoded(g.ctx, e)
	if err != nil {
		return nil, err
	}
	return whole.Body, nil
}

// look looks at the decoded bodies.
func (g *guesser) look() error {
	if len(g.g.Choice.Filled.Format) > 0 {
		if err := g.open(); err != nil {
			return err
		}
	}
	undecoded := 0
	n := 0
	err := g.samples.Each(g.ctx, func(e *sluice.Event) error {
		n++
		body, err := g.body(e)
		if err != nil {
			undecoded++
			return nil
		}
		if len(body) == 0 {
			g.nulls++
			return nil
		}
		objects, _, _ := g.whole.Events()
		g.whole.Add(body)
		if now, _, _ := g.whole.Events(); now == objects {
			g.plain.add(body)
		} else {
			g.keys.add(e.Key, body)
		}
		if n <= shapeEvents {
			g.shapes.Add(body, typeTexts(e))
		}
		return nil
	})
	if undecoded > 0 {
		g.note("%s cannot be decoded.", events(undecoded, "event"))
	}
	if g.nulls > 0 && g.System == pipeline.Kafka && !g.isDebezium() {
		g.note("%s without a body: with key, and delete_when: tombstone, such events delete rows.", events(g.nulls, "event"))
	}
	return err
}

func (g *guesser) isDebezium() bool {
	return slices.Contains(g.g.Choice.Filled.Format, "envelope: debezium")
}

// typeTexts returns the texts beside the body that may say of which type an event is.
func typeTexts(e *sluice.Event) map[string]string {
	texts := map[string]string{}
	for name, v := range e.Properties {
		text, ok := v.(string)
		if !ok || text == "" || len(text) > 100 || strings.HasPrefix(strings.ToLower(name), "content-") {
			continue
		}
		switch name {
		case "cloudEvents:type", "cloudEvents_type", "ce_type":
			texts["type"] = text
		default:
			texts["properties."+name] = text
		}
	}
	return texts
}

// raw makes a table of the bodies as they are.
func (g *guesser) raw(kind string) error {
	table := Table{Name: g.table(), Columns: append(place(), Column{Column: newfile.Column{Name: "body", From: "body", Type: kind, Required: true}})}
	err := g.samples.Each(g.ctx, func(*sluice.Event) error { table.Events++; return nil })
	g.g.Tables = []Table{table}
	g.fill()
	return err
}

// place are the columns for where an event is.
func place() []Column {
	return []Column{{Column: newfile.Column{Name: "hub_partition", From: "partition", Plain: true}}, {Column: newfile.Column{Name: "sequence_number", From: "sequence", Plain: true}}}
}

// table is the name of the only table.
func (g *guesser) table() string {
	switch log := g.g.Choice.Filled.Log; {
	case g.Table != "":
		return g.Table
	case log != nil:
		return newfile.Name(log.Name)
	}
	return newfile.Name(g.Name)
}

// columns makes the tables.
func (g *guesser) columns() error {
	objects, others, why := g.whole.Events()
	if others > 0 {
		g.note("%s no JSON object (%v): the row has no values.", areNo(others), why)
	}
	split := g.shapes.Split()
	if split != nil && g.Table == "" && !g.isDebezium() {
		if err := g.split(split); err != nil {
			return err
		}
		g.fill()
		return nil
	}
	table := Table{Name: g.table(), Events: objects}
	var keyed []string
	if g.isDebezium() {
		keyed = g.keys.certain()
		if keyed == nil {
			g.note("The events' keys are not values of the row in each event: set key yourself, so that a change replaces the row.")
		}
	}
	key := g.fillTable(&table, &g.whole, keyed)
	g.g.Tables = []Table{table}
	if g.Database != "" && g.Table != "" {
		if err := g.match(); err != nil {
			return err
		}
	}
	g.fill()
	g.g.Choice.Filled.Tables[0].Key = key
	return nil
}

func areNo(n int) string {
	if n == 1 {
		return "One body is"
	}
	return humanize.Count(n) + " bodies are"
}

func events(n int, noun string) string { return humanize.Plural(n, noun, noun+"s") }

// fillTable makes the columns of a table. It returns the columns whose values have the names of
// keyed.
func (g *guesser) fillTable(t *Table, of *infer.Sample, keyed []string) (key []string) {
	columns, whole := of.Columns()
	if !whole {
		g.note("Table %s: there are too many values: the last of them have no column.", t.Name)
	}
	t.Columns = place()
	tooLong := 0
	for _, c := range columns {
		if len(c.From) > longestFrom {
			tooLong++
			continue
		}
		own := Column{Column: newfile.Column{Name: c.Name, From: c.From, Type: c.Type, Format: c.Format, Zone: c.Zone}, Seen: c.Seen, Example: c.Example, Why: c.Why}
		if at, ok := instant(c.Format, c.Example); ok {
			own.Why += ": " + at.Format(time.RFC3339)
		}
		for _, name := range keyed {
			if c.From == "body."+name || c.From == fmt.Sprintf("body[%q]", name) {
				key = append(key, c.Name)
				own.Required = true
				own.Why = joined(own.Why, "part of the events' keys")
			}
		}
		own.Comment = joined(humanize.Shorten(c.Example, maxExample), own.Why)
		t.Columns = append(t.Columns, own)
	}
	if tooLong > 0 {
		g.note("Table %s: %s with names of more than %d bytes have no column.", t.Name, events(tooLong, "value"), longestFrom)
	}
	if len(key) != len(keyed) {
		return nil
	}
	return key
}

// instant is the time of a number in a unit.
func instant(unit, number string) (time.Time, bool) {
	n, err := strconv.ParseFloat(number, 64)
	per, known := map[string]float64{"unix": 1, "unix_ms": 1e3, "unix_us": 1e6, "unix_ns": 1e9}[unit]
	if err != nil || !known {
		return time.Time{}, false
	}
	return time.Unix(int64(n/per), 0).UTC(), true
}

// longestFrom bounds the places of values, so that the file does not become too large to be read.
const longestFrom = 500

// maxExample is how many characters of an example are shown.
const maxExample = 40

func joined(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), "; ")
}

// split makes a table for each shape.
func (g *guesser) split(s *infer.Split) error {
	samples := make([]infer.Sample, len(s.Shapes))
	routes := map[string]int{}
	for i, shape := range s.Shapes {
		for _, v := range shape.Values {
			routes[v] = i
		}
		g.g.Tables = append(g.g.Tables, Table{Name: g.routeTable(shape.Values[0]), Values: shape.Values})
	}
	filters := make([]*pipeline.EventFilter, len(s.Shapes))
	for i := range filters {
		var err error
		only := newfile.Only(s.From, s.Shapes[i].Values)
		if filters[i], err = pipeline.ParseFilter("only", only, g.System); err != nil {
			return err
		}
	}
	others := 0
	err := g.samples.Each(g.ctx, func(e *sluice.Event) error {
		body, err := g.body(e)
		if err != nil {
			return nil
		}
		decoded := *e
		decoded.Body = body
		for i, f := range filters {
			if ok, err := f.Matches(&decoded); ok && err == nil {
				samples[i].Add(body)
				g.g.Tables[i].Events++
				return nil
			}
		}
		others++
		return nil
	})
	if err != nil {
		return err
	}
	g.g.Split = s.From
	g.note("%s distinguishes %d shapes of events: each has a table.", s.From, len(s.Shapes))
	for i := range samples {
		g.fillTable(&g.g.Tables[i], &samples[i], nil)
	}
	if others > 0 {
		g.note("%s have another %s: no route takes them.", events(others, "event"), s.From)
	}
	return nil
}

// routeTable is the name of the table for a type of events.
func (g *guesser) routeTable(value string) string {
	name := infer.Name(value)
	if name == "value" || strings.HasPrefix(name, "sluice_") || name[0] == 'n' && value[0] >= '0' && value[0] <= '9' {
		name = infer.Name(g.table() + "_" + value)
	}
	base := name
	for n := 2; slices.ContainsFunc(g.g.Tables, func(t Table) bool { return t.Name == name }); n++ {
		name = fmt.Sprintf("%s_%d", base, n)
	}
	return name
}

// fill puts the tables into what the file has.
func (g *guesser) fill() {
	filled := g.g.Choice.Filled
	filled.Tables = nil
	for _, t := range g.g.Tables {
		own := newfile.Table{Name: t.Name, From: g.g.Split, Values: t.Values}
		for _, c := range t.Columns {
			own.Columns = append(own.Columns, c.Column)
		}
		filled.Tables = append(filled.Tables, own)
	}
}

func (p *plain) add(body []byte) {
	switch kind := kindOf(body); kind {
	case "json":
		p.json++
	case "text":
		p.text++
	default:
		p.binary++
	}
}

package pipeline

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/sluice-go/sluice/internal/config/strictyaml"
)

// Test is an entry of the key tests: what the pipeline does with an event.
type Test struct {
	Name string // as in the file, or its number
	File string
	Line int // of its first key

	pipeline *Pipeline
	decoded  bool // bodies are as the pipeline decodes them
	event    *sample
	events   string // a file of events; empty: there is one event
	want     expectation
}

// expectation is what a test expects of each of its events.
type expectation struct {
	form    string      // row, rows, deleted, skipped, error, or empty: only where the event goes
	rows    []wantedRow // of row, rows and deleted
	text    string      // of error
	route   int         // from 1; 0: any
	table   string      // empty: any
	targets []strictyaml.Node
}

// wantedRow has the values of a row that a test compares.
type wantedRow []wantedValue

type wantedValue struct {
	name string
	json json.RawMessage
	node strictyaml.Node
}

// Bounds of tests.
const (
	maxTests      = 1000
	maxWantedRows = 1000
)

// Tests returns the tests of the pipeline, in the file's order.
func (p *Pipeline) Tests() []*Test { return p.tests }

// readTests reads the key tests.
func (r *reader) readTests(n strictyaml.Node) {
	n.Items(maxTests, func(n strictyaml.Node) {
		place := n.Place()
		t := &Test{Name: fmt.Sprintf("test %d", len(r.tests)+1), File: place.File, Line: place.Line, pipeline: r.Pipeline}
		ok := n.Object(strictyaml.Keys{
			"name":    func(n strictyaml.Node) { n.Verbatim(&t.Name) },
			"decoded": func(n strictyaml.Node) { n.Bool(&t.decoded) },
			"event":   func(n strictyaml.Node) { t.event = readSample(n) },
			"events":  func(n strictyaml.Node) { n.Verbatim(&t.events) },
			"expect":  t.want.read,
		}, "expect")
		if ok {
			n.ExactlyOne("event", "events: a file of events")
		}
		r.tests = append(r.tests, t)
	})
}

// readSample reads the event of a test. Variables are not replaced in it.
func readSample(n strictyaml.Node) *sample {
	s := &sample{Partition: samplePartition, Sequence: 1}
	s.Enqueued, _ = time.Parse(time.RFC3339, sampleEnqueued)
	text := func(to *string) func(strictyaml.Node) { return func(n strictyaml.Node) { n.Verbatim(to) } }
	moment := func(to *time.Time) func(strictyaml.Node) {
		return func(n strictyaml.Node) {
			var text string
			if !n.Verbatim(&text) {
				return
			}
			at, err := time.Parse(time.RFC3339Nano, text)
			if err != nil {
				n.Fail("%s: write a time such as 2026-01-31T08:00:00Z", n.Shown())
				return
			}
			*to = at
		}
	}
	sequence := 1
	ok := n.Object(strictyaml.Keys{
		"body": func(n strictyaml.Node) { s.readSampleBody(n) },
		"body_base64": func(n strictyaml.Node) {
			var text string
			if !n.Verbatim(&text) {
				return
			}
			if _, err := base64.StdEncoding.DecodeString(text); err != nil {
				n.Fail("is not base64")
			}
			s.Base64 = &text
		},
		"key": func(n strictyaml.Node) {
			var text string
			if n.Verbatim(&text) {
				s.Key, _ = json.Marshal(text)
			}
		},
		"properties":     s.readProperties,
		"content_type":   text(&s.ContentType),
		"message_id":     text(&s.MessageID),
		"correlation_id": text(&s.CorrelationID),
		"partition":      text(&s.Partition),
		"sequence":       func(n strictyaml.Node) { n.Int(&sequence, 0, math.MaxInt64) },
		"offset":         text(&s.Offset),
		"enqueued":       moment(&s.Enqueued),
		"created":        moment(&s.Created),
	})
	s.Sequence = int64(sequence)
	if ok {
		n.ExactlyOne("body", "body_base64")
	}
	return s
}

// readSampleBody reads a body: a text as it is, any other value as JSON.
func (s *sample) readSampleBody(n strictyaml.Node) {
	if !n.JSON(&s.Body) || len(s.Body) == 0 || s.Body[0] != '"' {
		return
	}
	var text string
	if json.Unmarshal(s.Body, &text) == nil {
		s.Text = &text
	}
}

func (s *sample) readProperties(n strictyaml.Node) {
	s.Properties = map[string]json.RawMessage{}
	n.Each(func(name string, n strictyaml.Node) {
		var value json.RawMessage
		if !n.JSON(&value) {
			return
		}
		if _, err := propertyOf(value, EventHubs); err != nil {
			n.Fail("%w", err)
		}
		s.Properties[name] = value
	})
}

// read reads what a test expects.
func (x *expectation) read(n strictyaml.Node) {
	form := func(name string, read func(strictyaml.Node)) func(strictyaml.Node) {
		return func(n strictyaml.Node) {
			if x.form != "" {
				n.Fail("goes without %s: a test expects one of row, rows, deleted, skipped and error", x.form)
			}
			x.form = name
			read(n)
		}
	}
	row := func(n strictyaml.Node) { x.rows = []wantedRow{readWantedRow(n)} }
	target := func(read func(strictyaml.Node)) func(strictyaml.Node) {
		return func(n strictyaml.Node) { x.targets = append(x.targets, n); read(n) }
	}
	ok := n.Object(strictyaml.Keys{
		"row":     form("row", row),
		"deleted": form("deleted", row),
		"rows": form("rows", func(n strictyaml.Node) {
			n.Items(maxWantedRows, func(n strictyaml.Node) { x.rows = append(x.rows, readWantedRow(n)) })
		}),
		"skipped": form("skipped", func(n strictyaml.Node) {
			yes := true
			if n.Bool(&yes) && !yes {
				n.Fail("write true, or what else is expected")
			}
		}),
		"error": form("error", func(n strictyaml.Node) { n.Verbatim(&x.text) }),
		"route": target(func(n strictyaml.Node) { n.Int(&x.route, 1, maxRoutes) }),
		"table": target(func(n strictyaml.Node) { n.Verbatim(&x.table) }),
	})
	switch {
	case !ok:
	case x.form == "" && len(x.targets) == 0:
		n.Fail("needs one of row, rows, deleted, skipped, error, route and table")
	case (x.form == "skipped" || x.form == "error") && len(x.targets) > 0:
		x.targets[0].Fail("goes without %s: such an event reaches no target", x.form)
	}
}

// readWantedRow reads the values of a row.
func readWantedRow(n strictyaml.Node) (row wantedRow) {
	n.Each(func(name string, n strictyaml.Node) {
		v := wantedValue{name: name, node: n}
		if n.JSON(&v.json) {
			row = append(row, v)
		}
	})
	return row
}

// checkTests compares the tests with the targets.
func (r *reader) checkTests() {
	for _, t := range r.tests {
		x := &t.want
		routes := r.routing.routes
		for _, n := range x.targets {
			switch {
			case x.route > len(routes):
				n.Fail("the file has no such route: it has %d", len(routes))
			case x.table != "" && !slices.ContainsFunc(routes, func(o route) bool { return o.table() == x.table }):
				n.Fail("no target of the file writes to table %s", x.table)
			}
		}
		var known []string
		for i, o := range routes {
			names := r.valueNames(o)
			if names == nil {
				known = nil
				break
			}
			if (x.route == 0 || x.route == i+1) && (x.table == "" || x.table == o.table()) {
				known = append(known, names...)
			}
		}
		for _, row := range x.rows {
			for _, v := range row {
				if known != nil && !slices.Contains(known, v.name) {
					v.node.Fail("the mapping has no such column: it has %s", strings.Join(slices.Compact(known), ", "))
				}
			}
		}
	}
}

// valueNames are the names of the values that a route's target gets of an event; nil: any.
func (r *reader) valueNames(o route) []string {
	var m *mapping
	switch to := o.target.(type) {
	case *tableTarget:
		m = to.mapping
	case *statementTarget:
		m = to.mapping
	case *messageTarget:
		m = to.mapping
	}
	if r.Rollup {
		m = r.rollup.mapping
	}
	if m == nil || len(m.columns) == 0 { // the mapping is invalid, or there is none
		return nil
	}
	return columnNames(m.columns)
}

// table is the table of a route's insert; empty if its target is another.
func (o route) table() string {
	if t, ok := o.target.(*tableTarget); ok {
		return t.table
	}
	return ""
}

package pipeline

import (
	"slices"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/strictyaml"
	"github.com/sluice-go/sluice/pipeline/internal/jsonpick"
)

// filter is the key only: what the events have in common that a pipeline, or a route, handles. Its
// zero value is every event.
type filter struct {
	given  *strictyaml.Node // the key; nil: there is none
	fields conditions       // on what is outside the body
	body   conditions       // on values in the body's JSON, which is read if the others hold
}

// conditions are on values that are picked together.
type conditions struct {
	mapping *mapping // of the values to texts; nil: there are none
	wanted  []wanted
}

// wanted says which values of an event match.
type wanted struct {
	values []string
	not    bool // the others match, and events without a value
}

// maxWanted bounds the values of a condition.
const maxWanted = 1000

// read reads what values events must have: ORIGIN: VALUE, a list of values, or {not: …}.
func (f *filter) read(n strictyaml.Node) {
	if f.given != nil {
		n.Fail("is given twice: line %d has it too", f.given.Place().Line)
		return
	}
	f.given = &n
	var fields, body []column
	keys := 0
	read := n.Each(func(path string, n strictyaml.Node) {
		keys++
		from, err := parseOrigin(path)
		if err != nil || from.field == fieldBody {
			n.Fail("%w", orError(err, "cannot be the whole body: write body.PATH"))
			return
		}
		var w wanted
		if !w.read(n) {
			return
		}
		c := column{name: path, at: n, from: from, typ: typeText}
		if from.field == fieldPath {
			body, f.body.wanted = append(body, c), append(f.body.wanted, w)
		} else {
			fields, f.fields.wanted = append(fields, c), append(f.fields.wanted, w)
		}
	})
	if read && keys == 0 {
		n.Fail("has no values: write them as body.PATH: VALUE")
	}
	f.fields.mapping, f.body.mapping = newMapping("value", atMost(n, fields)), newMapping("value", atMost(n, body))
}

func (w *wanted) read(n strictyaml.Node) bool {
	if !n.IsMapping() {
		return n.Texts(maxWanted, &w.values)
	}
	return n.Object(strictyaml.Keys{"not": func(n strictyaml.Node) { w.not = n.Texts(maxWanted, &w.values) }}, "not")
}

// matches reports whether an event has the values. It is an error if that cannot be decided, because
// the body is not JSON or a value is not a text.
func (f *filter) matches(e *sluice.Event) (bool, error) {
	for _, c := range []*conditions{&f.fields, &f.body} {
		if hold, err := c.hold(e); !hold || err != nil {
			return false, err
		}
	}
	return true, nil
}

func (c *conditions) hold(e *sluice.Event) (bool, error) {
	if len(c.wanted) == 0 {
		return true, nil
	}
	row := make([]any, len(c.wanted))
	if err := c.mapping.fill(row, make([]jsonpick.Value, c.mapping.paths), e); err != nil {
		return false, err
	}
	for i, w := range c.wanted {
		value, given := row[i].(string)
		if (given && slices.Contains(w.values, value)) == w.not {
			return false, nil
		}
	}
	return true, nil
}

// mappings are the filter's, of which each may be nil.
func (f *filter) mappings() []*mapping { return []*mapping{f.fields.mapping, f.body.mapping} }

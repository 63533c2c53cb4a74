package pipeline

import (
	"slices"
	"strings"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/blobstore"
	"github.com/sluice-go/sluice/internal/config/strictyaml"
	"github.com/sluice-go/sluice/pipeline/internal/jsonpick"
)

// filter is the key only: what the events have in common that a pipeline, or a route, handles. Its
// zero value is every event.
type filter struct {
	given   *strictyaml.Node // the key; nil: there is none
	sent    conditions       // on what is the same in the event as it was sent and in the decoded one
	kind    conditions       // on the type of a CloudEvent, which may be in the body
	decoded conditions       // on what decoding changes
	body    conditions       // on values in the body's JSON, which is read if the others hold
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
	columns := map[*conditions][]column{}
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
		c := column{name: path, node: n, origin: from, typ: typeText}
		group := f.group(from)
		columns[group], group.wanted = append(columns[group], c), append(group.wanted, w)
	})
	if read && keys == 0 {
		n.Fail("has no values: write them as body.PATH: VALUE")
	}
	for _, c := range f.groups() {
		c.mapping = newMapping("value", atMost(n, columns[c]))
	}
}

// groups are the conditions in the order in which they are looked at.
func (f *filter) groups() []*conditions { return []*conditions{&f.sent, &f.kind, &f.decoded, &f.body} }

// describesBody are the names of properties that may be missing after the body is fetched and
// decoded.
var describesBody = []string{"content-encoding", "content-type", blobstore.ReferenceProperty}

// group returns the conditions to which one on a value belongs.
func (f *filter) group(from origin) *conditions {
	last := 0
	for _, o := range from.leaves() {
		last = max(last, groupOf(o))
	}
	return f.groups()[last]
}

// groupOf returns the number of the group for a value at one place.
func groupOf(from origin) int {
	switch from.field {
	case fieldPath:
		return 3
	case fieldContentType:
		return 2
	case fieldType:
		return 1
	case fieldProperty:
		if slices.ContainsFunc(describesBody, func(name string) bool { return strings.EqualFold(from.name, name) }) {
			return 2
		}
	}
	return 0
}

func (w *wanted) read(n strictyaml.Node) bool {
	if !n.IsMapping() {
		return n.Texts(maxWanted, &w.values)
	}
	return n.Object(strictyaml.Keys{"not": func(n strictyaml.Node) { w.not = n.Texts(maxWanted, &w.values) }}, "not")
}

// matches reports whether an event has the values. It is an error if that cannot be decided,
// because the body is not JSON or a value is not a text.
func (f *filter) matches(e *sluice.Event) (bool, error) {
	for _, c := range f.groups() {
		if hold, err := c.hold(e); !hold || err != nil {
			return false, err
		}
	}
	return true, nil
}

// excludes reports whether an event whose body is not decoded shows that it does not match.
func (f *filter) excludes(e *sluice.Event) bool {
	for _, c := range []*conditions{&f.sent, &f.kind} {
		if c == &f.kind && hasTypeInBody(e) {
			continue
		}
		if hold, err := c.hold(e); !hold && err == nil {
			return true
		}
	}
	return false
}

// needsBody reports whether the decoded body decides.
func (f *filter) needsBody(e *sluice.Event) bool {
	return len(f.decoded.wanted)+len(f.body.wanted) > 0 || len(f.kind.wanted) > 0 && hasTypeInBody(e)
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
func (f *filter) mappings() []*mapping {
	var list []*mapping
	for _, c := range f.groups() {
		list = append(list, c.mapping)
	}
	return list
}

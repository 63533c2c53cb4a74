package connector

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"github.com/sluice-go/sluice/cmd/sluice/internal/newfile"
)

// record is what transforms make of a record's value and key, without a record.
type record struct {
	root    string           // where the value's fields are
	fields  []newfile.Column // those that are known, in order
	open    bool             // there are others, under their own names
	gone    []string         // fields of the value that are not among the others any more
	flat    string           // the delimiter of fields that were nested; empty: none were
	renamed func(topic string) string

	changes bool // values are change events of Debezium, of which the row counts
	deletes deletion
	key     key
}

// deletion is what becomes of deletes and null values before the connector sees them.
type deletion struct {
	dropped bool // they are left out
	rewrite bool // a delete is a row with __deleted
}

// key is what is known of a record's key.
type key struct {
	one    string           // where the value comes from, if the key is no structure
	fields []newfile.Column // of a structure, if they are known
}

// field returns a field of the value as the next transform or the connector sees it.
func (r *record) field(name string) newfile.Column {
	for _, f := range r.fields {
		if f.Name == name {
			return f
		}
	}
	return newfile.Column{Name: name, From: r.path(name)}
}

// known returns a field to change, which is among the known ones from then on.
func (r *record) known(name string) *newfile.Column {
	i := slices.IndexFunc(r.fields, func(f newfile.Column) bool { return f.Name == name })
	if i < 0 {
		r.fields = append(r.fields, r.field(name))
		r.gone = append(r.gone, name)
		i = len(r.fields) - 1
	}
	return &r.fields[i]
}

// drop removes a field.
func (r *record) drop(name string) {
	r.fields = slices.DeleteFunc(r.fields, func(f newfile.Column) bool { return f.Name == name })
	r.gone = append(r.gone, name)
}

// has reports whether the value may have a field.
func (r *record) has(name string) bool {
	if slices.ContainsFunc(r.fields, func(f newfile.Column) bool { return f.Name == name }) {
		return true
	}
	return r.open && !slices.Contains(r.gone, name)
}

// maxParts bounds the parts of a flattened name: each may be a level, or belong to the part before.
const maxParts = 5

// path returns where a field of that name is in the event. Once flattened, a name does not say at
// which of its delimiters a level ends, so all are looked at.
func (r *record) path(name string) string {
	if r.flat == "" || !strings.Contains(name, r.flat) {
		return r.root + step(name)
	}
	parts := strings.Split(name, r.flat)
	if len(parts) > maxParts {
		return r.root + step(name)
	}
	var paths []string
	for levels := range 1 << (len(parts) - 1) {
		path, part := r.root, parts[0]
		for i, next := range parts[1:] {
			if levels&(1<<i) == 0 {
				part += r.flat + next
				continue
			}
			path, part = path+step(part), next
		}
		paths = append(paths, path+step(part))
	}
	return "coalesce(" + strings.Join(paths, ", ") + ")"
}

var plainName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// step is a member of an object in a path.
func step(name string) string {
	if plainName.MatchString(name) {
		return "." + name
	}
	return "[" + quoted(name) + "]"
}

// nowhere is a place in which no event has a value, for columns whose default is a fixed value.
const nowhere = `body["\u0000"]`

// fix makes a column that has one value in all rows.
func fix(c *newfile.Column, text string) {
	c.From, c.Type, c.Default = nowhere, "text", text
}

// quoted is a text as JSON has it.
func quoted(text string) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(text) // a builder takes all, and a text is always JSON
	return strings.TrimSuffix(b.String(), "\n")
}

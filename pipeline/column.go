package pipeline

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/config/strictyaml"
	"github.com/sluice-go/sluice/pipeline/internal/jsonpick"
)

// column is one value of a mapping.
type column struct {
	name     string
	node     strictyaml.Node
	origin   origin
	typ      columnType
	notation *notation // nil: the type's own
	required bool
	fallback any // for a value that is missing or null
}

// maxColumns is PostgreSQL's limit, below SQLite's.
const maxColumns = 1600

// readColumns reads the mapping of columns or parameters, which are of the event.
func readColumns(n strictyaml.Node) []column {
	columns := readElementColumns(n)
	for _, c := range columns {
		if c.origin.inElement() {
			c.node.Fail("%s: only columns of an insert with the key each can be of an element", c.origin)
		}
	}
	return columns
}

// readElementColumns reads the mapping of columns, which may be of an element of an array.
func readElementColumns(n strictyaml.Node) []column {
	var columns []column
	n.Each(func(name string, n strictyaml.Node) {
		c := column{name: name, node: n}
		if err := checkName(name); err != nil {
			n.Fail("%w", err)
		}
		if c.read(n) {
			columns = append(columns, c)
		}
	})
	return atMost(n, columns)
}

// atMost refuses more columns than there may be, and returns the first ones: what is done
// with columns may take the square of their number.
func atMost(n strictyaml.Node, columns []column) []column {
	if len(columns) > maxColumns {
		n.Fail("has %d entries: at most %d", len(columns), maxColumns)
		return columns[:maxColumns]
	}
	return columns
}

// read reads `name: body.path`, or the long form with type, required and default.
func (c *column) read(n strictyaml.Node) bool {
	if !n.IsMapping() {
		if !c.readFrom(n) {
			return false
		}
		c.typ, c.required = columnTypes[c.origin.field][0], !c.origin.optional()
		return true
	}
	var typ string
	var required, hasRequired bool
	var fallback, format, zone *strictyaml.Node
	ok := n.Object(strictyaml.Keys{
		"from":     func(n strictyaml.Node) { c.readFrom(n) },
		"type":     func(n strictyaml.Node) { n.OneOf(&typ, typeNames...) },
		"format":   func(n strictyaml.Node) { format = &n },
		"zone":     func(n strictyaml.Node) { zone = &n },
		"required": func(n strictyaml.Node) { hasRequired = n.Bool(&required) },
		"default":  func(n strictyaml.Node) { fallback = &n },
	}, "from")
	if !ok {
		return false
	}
	types := columnTypes[c.origin.field]
	c.typ = cmp.Or(columnType(typ), types[0])
	if !slices.Contains(types, c.typ) {
		return n.Fail("%s can't become %s: write one of %s", c.origin, c.typ, joined(types))
	}
	if c.origin.field == fieldBody && c.typ == typeJSON { // the empty path, which is checked to be JSON
		c.origin = origin{field: fieldPath}
	}
	if !c.readNotation(format, zone) {
		return false
	}
	c.required = !c.origin.optional() && fallback == nil
	if hasRequired {
		c.required = required
	}
	if fallback == nil {
		return true
	}
	if c.required {
		return n.Fail("is required and has a default: remove one of them")
	}
	return c.readDefault(*fallback)
}

func (c *column) readFrom(n strictyaml.Node) bool {
	var text string
	if !n.Text(&text) {
		return false
	}
	from, err := parsePlace(text)
	if err != nil {
		return n.Fail("%w", err)
	}
	c.origin = from
	return true
}

// readDefault reads a default, which is converted like a string in an event without a format.
func (c *column) readDefault(n strictyaml.Node) bool {
	var literal string
	if !n.Text(&literal) {
		return false
	}
	if c.typ == typeJSON {
		if err := jsonpick.New().Pick([]byte(literal), nil); err != nil {
			return n.Fail("%w", err)
		}
	}
	v, err := c.typ.convert(scalar{kind: text, text: []byte(literal)})
	if err != nil {
		return n.Fail("%w", err)
	}
	c.fallback = v.value()
	return true
}

// cell returns the column's value of an event; raw is as in mapping. An error's text continues the
// origin's name.
func (c *column) cell(e *sluice.Event, picked []jsonpick.Value, raw bool) (cell, error) {
	// The common columns, without an allocation for a scalar.
	switch {
	case c.origin.field == fieldSequence && c.typ == typeBigint:
		return cell{kind: cellInteger, integer: e.Sequence}, nil
	case c.origin.field == fieldPartition && c.typ == typeText:
		return ownText(e.Partition), nil
	case c.origin.field == fieldEnqueued && c.typ == typeTimestamp && !e.Enqueued.IsZero() && !e.Enqueued.After(latestTime):
		return cell{kind: cellTime, time: e.Enqueued.UTC()}, nil
	case (c.origin.field == fieldPath || c.origin.field == fieldElement) && c.typ == typeJSON && picked[c.origin.slot].Kind > jsonpick.Null:
		return sharedText(picked[c.origin.slot].Raw), nil
	}
	v, err := c.origin.scalar(e, picked)
	if err != nil {
		return cell{}, err
	}
	if raw {
		v = c.raw(e, v)
	}
	if v.kind == missing || v.kind == null {
		if !c.required {
			if v.kind == missing && c.fallback == nil {
				return cell{kind: cellMissing}, nil
			}
			return cell{other: c.fallback}, nil
		}
		if v.kind == null {
			return cell{}, errors.New("is null")
		}
		return cell{}, errors.New("is missing")
	}
	if c.notation == nil {
		return c.typ.convert(v)
	}
	return c.convert(v)
}

// raw corrects a value of an event of Kafka: a body can be null, and keys and headers are bytes,
// which are not base64 because they happen to be text. A format is that of their text.
func (c *column) raw(e *sluice.Event, v scalar) scalar {
	switch {
	case c.origin.field == fieldBody && e.Body == nil:
		return scalar{kind: null}
	case c.typ != typeBytes || !v.sent:
	case c.notation != nil && v.kind == binary:
		v.kind = text
	case c.notation == nil && v.kind == text:
		v.kind = binary
	}
	return v
}

func joined(types []columnType) string {
	names := make([]string, len(types))
	for i, t := range types {
		names[i] = string(t)
	}
	return strings.Join(names, ", ")
}

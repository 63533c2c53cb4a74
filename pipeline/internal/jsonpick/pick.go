// Package jsonpick finds the values at given paths in a JSON document in one pass. It
// checks the whole document, but keeps only those values, as slices of the document,
// without allocations. Package jsonscan does the scanning.
package jsonpick

import (
	"bytes"
	"errors"

	"github.com/sluice-go/sluice/internal/jsonscan"
)

// Kind is the type of a [Value].
type Kind uint8

// The kinds of values. Missing, the zero value, means that there is no value at the
// path.
const (
	Missing Kind = iota
	Null
	False
	True
	Number
	String
	Array
	Object
)

var kindNames = [...]string{"missing", "null", "false", "true", "number", "string", "array", "object"}

// String returns the kind's name.
func (k Kind) String() string { return kindNames[k] }

// Value is the value at a path in a document.
type Value struct {
	Kind Kind
	Raw  []byte // the value's JSON, a slice of the document
}

// errHalf: JSON escapes can express half of a surrogate pair, which UTF-8 can't.
var errHalf = errors.New("has an escape for half of a character")

// Text returns the text of a string value, a slice of the document unless it has
// escapes. It fails if an escape is half of a surrogate pair.
func (v Value) Text() ([]byte, error) {
	if bytes.IndexByte(v.Raw, '\\') < 0 {
		return v.Raw[1 : len(v.Raw)-1], nil
	}
	text, whole := jsonscan.AppendUnquoted(make([]byte, 0, len(v.Raw)), v.Raw)
	if !whole {
		return nil, errHalf
	}
	return text, nil
}

// Picker finds the values at its paths. It is safe for concurrent use.
type Picker struct {
	root  node
	paths int
}

// node is a position in the document: of a value to find, or on the way to one.
type node struct {
	slots       []int // indices of the value itself
	descendants []int // indices of the values below it
	keys        []keyed
	items       []indexed
	last        int // the highest index in items
}

type keyed struct {
	key  []byte
	node *node
}

type indexed struct {
	index int
	node  *node
}

// New returns a picker for paths.
func New(paths ...Path) *Picker {
	p := &Picker{paths: len(paths)}
	for slot, path := range paths {
		n := &p.root
		for _, step := range path {
			n.descendants = append(n.descendants, slot)
			n = n.child(step)
		}
		n.slots = append(n.slots, slot)
	}
	return p
}

func (n *node) child(step Step) *node {
	if step.Array {
		for _, c := range n.items {
			if c.index == step.Index {
				return c.node
			}
		}
		c := indexed{step.Index, &node{}}
		n.items = append(n.items, c)
		n.last = max(n.last, step.Index)
		return c.node
	}
	for _, c := range n.keys {
		if string(c.key) == step.Key {
			return c.node
		}
	}
	c := keyed{[]byte(step.Key), &node{}}
	n.keys = append(n.keys, c)
	return c.node
}

// maxDepth is how deep arrays and objects may nest, as in encoding/json.
const maxDepth = 10000

// Pick checks that doc is one JSON value, in UTF-8 or as [UTF8] reads it, and puts what is at the
// picker's paths into values, in the order of the paths; it must be as long as
// there are paths. If an object has a key twice, the last one counts. The error
// of JSON is a [*jsonscan.SyntaxError].
func (p *Picker) Pick(doc []byte, values []Value) error {
	values = values[:p.paths]
	clear(values)
	doc, err := UTF8(doc)
	if err != nil {
		return err
	}
	w := walk{jsonscan.New(doc, maxDepth), values}
	if err := w.value(&p.root); err != nil {
		return err
	}
	return w.scanner.End()
}

// walk reads one document.
type walk struct {
	scanner *jsonscan.Scanner
	values  []Value
}

// value reads the value of n.
func (w *walk) value(n *node) error {
	first := w.scanner.Peek()
	from := w.scanner.Offset()
	var err error
	switch {
	case first == '{' && len(n.keys) > 0:
		err = w.object(n)
	case first == '[' && len(n.items) > 0:
		err = w.array(n)
	default:
		_, err = w.scanner.Value()
	}
	if err != nil {
		return err
	}
	for _, slot := range n.slots {
		w.values[slot] = Value{kindOf(first), w.scanner.TextFrom(from)}
	}
	return nil
}

// kindOf returns the kind of the value that begins with a byte.
func kindOf(first byte) Kind {
	switch first {
	case '{':
		return Object
	case '[':
		return Array
	case '"':
		return String
	case 't':
		return True
	case 'f':
		return False
	case 'n':
		return Null
	}
	return Number
}

func (w *walk) object(n *node) error {
	return w.scanner.Object(func(key []byte) error {
		child := n.find(key)
		if child == nil {
			_, err := w.scanner.Value()
			return err
		}
		for _, slot := range child.descendants { // remove values of an earlier member with the same key
			w.values[slot] = Value{}
		}
		return w.value(child)
	})
}

// find returns the node of a key in its quotes, nil if there is none.
func (n *node) find(quoted []byte) *node {
	key := jsonscan.Unquote(quoted)
	for i := range n.keys {
		if c := &n.keys[i]; bytes.Equal(c.key, key) {
			return c.node
		}
	}
	return nil
}

func (w *walk) array(n *node) error {
	i := -1
	return w.scanner.Array(func() error {
		i++
		if i <= n.last {
			for _, c := range n.items {
				if c.index == i {
					return w.value(c.node)
				}
			}
		}
		_, err := w.scanner.Value()
		return err
	})
}

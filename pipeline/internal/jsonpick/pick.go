// Package jsonpick takes the values at known paths out of a JSON document in
// one pass. The whole document is checked, but only what was asked for is
// remembered, as slices of the document: picking allocates nothing.
package jsonpick

import (
	"bytes"
	"fmt"
	"unicode/utf8"
)

// Kind is what a [Value] is.
type Kind uint8

// The kinds of value. Missing is the zero value: nothing is at the path.
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

// String gives the kind's name.
func (k Kind) String() string { return kindNames[k] }

// Value is what a document has at a path.
type Value struct {
	Kind Kind
	Raw  []byte // the value's JSON, a slice of the document
}

// SyntaxError says where a document stops being JSON.
type SyntaxError struct {
	Offset int // in bytes
	Reason string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("not JSON at byte %d: %s", e.Offset, e.Reason)
}

// Picker picks the values at its paths. It is safe for concurrent use.
type Picker struct {
	root  node
	paths int
}

// node is a place in the document that is asked for, or on the way to one.
type node struct {
	slots []int // where the value itself goes
	below []int // where the values under it go
	keys  []keyed
	items []indexed
	last  int // the highest index in items
}

type keyed struct {
	key  []byte
	node *node
}

type indexed struct {
	index int
	node  *node
}

// New makes a picker for paths.
func New(paths ...Path) *Picker {
	p := &Picker{paths: len(paths)}
	for slot, path := range paths {
		n := &p.root
		for _, step := range path {
			n.below = append(n.below, slot)
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

// Pick checks that doc is one JSON value in UTF-8 and puts what is at the
// picker's paths into values, in the order of the paths; it must be as long as
// there are paths. Of a key that an object has twice the last one counts.
func (p *Picker) Pick(doc []byte, values []Value) error {
	values = values[:p.paths]
	clear(values)
	s := scanner{doc: doc, values: values}
	if !utf8.Valid(doc) {
		return s.notUTF8()
	}
	if !s.value(&p.root, 0) {
		err := s.err // only now on the heap
		return &err
	}
	s.space()
	if s.at != len(doc) {
		return &SyntaxError{s.at, fmt.Sprintf("%s after the value", s.here())}
	}
	return nil
}

// maxDepth is how deep arrays and objects may lie in each other, as in
// encoding/json.
const maxDepth = 10000

// scanner reads one document. Its methods return false once err is set.
type scanner struct {
	doc    []byte
	at     int
	values []Value
	err    SyntaxError
}

func (s *scanner) fail(reason string) bool {
	s.err = SyntaxError{s.at, reason}
	return false
}

// unexpected fails at the current byte.
func (s *scanner) unexpected(want string) bool {
	return s.fail(fmt.Sprintf("%s where %s should be", s.here(), want))
}

func (s *scanner) here() string {
	if s.at >= len(s.doc) {
		return "the end"
	}
	r, _ := utf8.DecodeRune(s.doc[s.at:])
	return fmt.Sprintf("%q", r)
}

func (s *scanner) notUTF8() error {
	for s.at < len(s.doc) {
		r, n := utf8.DecodeRune(s.doc[s.at:])
		if r == utf8.RuneError && n == 1 {
			break
		}
		s.at += n
	}
	return &SyntaxError{s.at, "not UTF-8"}
}

func (s *scanner) space() {
	for s.at < len(s.doc) {
		switch s.doc[s.at] {
		case ' ', '\t', '\n', '\r':
			s.at++
		default:
			return
		}
	}
}

// value reads a value and the space before it; n is nil if nothing in it is
// asked for.
func (s *scanner) value(n *node, depth int) bool {
	s.space()
	if s.at == len(s.doc) {
		return s.unexpected("a value")
	}
	start := s.at
	kind, ok := Missing, false
	switch c := s.doc[s.at]; {
	case c == '"':
		kind, ok = String, s.text()
	case c == '-' || c >= '0' && c <= '9':
		kind, ok = Number, s.number()
	case c == '{':
		kind, ok = Object, s.object(n, depth+1)
	case c == '[':
		kind, ok = Array, s.array(n, depth+1)
	case c == 't':
		kind, ok = True, s.word("true")
	case c == 'f':
		kind, ok = False, s.word("false")
	case c == 'n':
		kind, ok = Null, s.word("null")
	default:
		return s.unexpected("a value")
	}
	if ok && n != nil {
		for _, slot := range n.slots {
			s.values[slot] = Value{kind, s.doc[start:s.at]}
		}
	}
	return ok
}

func (s *scanner) object(n *node, depth int) bool {
	if depth > maxDepth {
		return s.fail("nested too deep")
	}
	s.at++
	s.space()
	if s.next('}') {
		return true
	}
	for {
		s.space()
		start := s.at
		if s.at == len(s.doc) || s.doc[s.at] != '"' {
			return s.unexpected("a key in double quotes")
		}
		if !s.text() {
			return false
		}
		key := s.doc[start+1 : s.at-1]
		s.space()
		if !s.next(':') {
			return s.unexpected("a colon")
		}
		var child *node
		if n != nil && len(n.keys) > 0 {
			child = s.find(n, key)
		}
		if !s.value(child, depth) {
			return false
		}
		s.space()
		if s.next('}') {
			return true
		}
		if !s.next(',') {
			return s.unexpected("a comma or }")
		}
	}
}

// find returns the node of a key, and forgets what an earlier value of the
// same key has left there.
func (s *scanner) find(n *node, raw []byte) *node {
	key := raw
	if bytes.IndexByte(raw, '\\') >= 0 {
		key, _ = appendText(nil, raw)
	}
	for i := range n.keys {
		if c := &n.keys[i]; bytes.Equal(c.key, key) {
			for _, slot := range c.node.below {
				s.values[slot] = Value{}
			}
			return c.node
		}
	}
	return nil
}

func (s *scanner) array(n *node, depth int) bool {
	if depth > maxDepth {
		return s.fail("nested too deep")
	}
	s.at++
	s.space()
	if s.next(']') {
		return true
	}
	for i := 0; ; i++ {
		var child *node
		if n != nil && i <= n.last {
			for _, c := range n.items {
				if c.index == i {
					child = c.node
				}
			}
		}
		if !s.value(child, depth) {
			return false
		}
		s.space()
		if s.next(']') {
			return true
		}
		if !s.next(',') {
			return s.unexpected("a comma or ]")
		}
	}
}

func (s *scanner) next(c byte) bool {
	if s.at < len(s.doc) && s.doc[s.at] == c {
		s.at++
		return true
	}
	return false
}

func (s *scanner) word(w string) bool {
	for i := range len(w) {
		if !s.next(w[i]) {
			return s.unexpected("the rest of " + w)
		}
	}
	return true
}

// IsNumber tells whether text is a number as JSON writes it.
func IsNumber(text []byte) bool {
	s := scanner{doc: text}
	return s.number() && s.at == len(text)
}

func (s *scanner) number() bool {
	s.next('-')
	if !s.next('0') && !s.digits() {
		return s.unexpected("a digit")
	}
	if s.next('.') && !s.digits() {
		return s.unexpected("a digit")
	}
	if s.next('e') || s.next('E') {
		if !s.next('+') {
			s.next('-')
		}
		if !s.digits() {
			return s.unexpected("a digit")
		}
	}
	return true
}

// digits reads at least one digit.
func (s *scanner) digits() bool {
	start := s.at
	for s.at < len(s.doc) && s.doc[s.at] >= '0' && s.doc[s.at] <= '9' {
		s.at++
	}
	return s.at > start
}

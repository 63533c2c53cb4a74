// Package infer guesses from samples of events how a pipeline maps them to columns: which values
// there are, of which type and notation, and how sure that is.
package infer

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/sluice-go/sluice/internal/jsonscan"
	"github.com/sluice-go/sluice/pipeline/internal/jsonpick"
)

// Limits of what is looked at: deeper and wider values become columns of JSON.
const (
	maxDepth   = 4   // objects in objects
	maxMembers = 100 // of one object, over all samples
	maxPaths   = 2000
	maxNesting = 10000 // of JSON at all
)

// Sample collects what events have in common. Its zero value is ready to use; it is not safe for
// concurrent use, and its memory does not grow with the number of events.
type Sample struct {
	events int // that are JSON objects
	others int // that are not
	why    error
	root   value
	paths  int
}

// value is what stands at one path.
type value struct {
	path    jsonpick.Path
	leaf    leaf
	objects int // how often it was an object
	members []*value
	wide    bool // it has too many members, or they are too deep
}

// Add adds the body of an event.
func (s *Sample) Add(body []byte) {
	doc, err := jsonpick.UTF8(body)
	if err == nil {
		err = s.check(doc)
	}
	if err != nil {
		if s.others++; s.why == nil {
			s.why = err
		}
		return
	}
	s.events++
	// The document was checked.
	s.object(jsonscan.New(doc, maxNesting), &s.root)
}

// check returns why a document is no JSON object.
func (s *Sample) check(doc []byte) error {
	scan := jsonscan.New(doc, maxNesting)
	first := scan.Peek()
	if _, err := scan.Value(); err != nil {
		return err
	}
	if err := scan.End(); err != nil {
		return err
	}
	if first != '{' {
		return fmt.Errorf("the body is %s and no object", map[byte]string{'[': "an array", '"': "a text"}[first])
	}
	return nil
}

// Events returns how many bodies were JSON objects, how many were not, and why the first of those
// was not.
func (s *Sample) Events() (objects, others int, why error) { return s.events, s.others, s.why }

// object adds the object that is next in a document.
func (s *Sample) object(scan *jsonscan.Scanner, to *value) error {
	to.objects++
	return scan.Object(func(key []byte) error {
		member := s.member(to, key)
		if member == nil {
			_, err := scan.Value()
			return err
		}
		return s.value(scan, member)
	})
}

// member returns the member of an object with a key in its quotes, nil if there are too many.
func (s *Sample) member(of *value, quoted []byte) *value {
	var key string
	if json.Unmarshal(quoted, &key) != nil {
		return nil
	}
	for _, m := range of.members {
		if m.path[len(m.path)-1].Key == key {
			return m
		}
	}
	if len(of.members) == maxMembers || s.paths == maxPaths {
		of.wide = true
		return nil
	}
	s.paths++
	m := &value{path: append(slices.Clone(of.path), jsonpick.Step{Key: key})}
	of.members = append(of.members, m)
	return m
}

// value adds the value that is next in a document.
func (s *Sample) value(scan *jsonscan.Scanner, to *value) error {
	if scan.Peek() == '{' && len(to.path) < maxDepth && !to.wide {
		return s.object(scan, to)
	}
	first := scan.Peek()
	raw, err := scan.Value()
	switch {
	case err != nil:
		return err
	case first == '{':
		to.objects++
		to.wide = true
	default:
		to.leaf.add(first, raw)
	}
	return nil
}

// seen returns in how many events there is a value.
func (v *value) seen() int { return v.leaf.seen + v.objects }

// isOpen reports whether an object's members become columns of their own: those of an object that
// is always one, and whose members are mostly the same.
func (v *value) isOpen() bool {
	if v.objects == 0 || v.wide || v.leaf.seen > v.leaf.nulls {
		return false
	}
	present, objects := 0, 0
	for _, m := range v.members {
		present += m.seen()
		objects += min(m.objects, 1)
	}
	isMap := len(v.members) >= leastMap && objects == len(v.members) // as translations by language
	return len(v.members) > 0 && 2*present >= len(v.members)*v.objects && !isMap
}

// leastMap is how many members, all of them objects, make an object a map.
const leastMap = 8

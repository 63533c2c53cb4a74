package strictyaml

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/sluice-go/sluice/internal/humanize"
)

// Node is a value in the file. Methods that read into a variable report success. If the
// value is invalid, they add a problem and leave the variable unchanged.
type Node struct {
	file  *file
	yaml  *yaml.Node
	place Place
}

// Keys has the keys that a mapping may have, and the functions that read their values.
type Keys map[string]func(Node)

// Place returns the position of the value's key.
func (n Node) Place() Place { return n.place }

// Fail adds a problem with the value, and returns false.
func (n Node) Fail(format string, args ...any) bool {
	n.file.fail(n.place, fmt.Errorf(format, args...))
	return false
}

// IsMapping reports whether the value is a mapping.
func (n Node) IsMapping() bool { return n.yaml.Kind == yaml.MappingNode }

// Has reports whether the value is a mapping with the key.
func (n Node) Has(key string) bool {
	if !n.IsMapping() {
		return false
	}
	for i := 0; i+1 < len(n.yaml.Content); i += 2 {
		if n.yaml.Content[i].Value == key {
			return true
		}
	}
	return false
}

// Object reads a mapping that may have these keys and must have the required ones, in
// the file's order. It returns false if there is a problem with any part of it. A
// misspelt required key is one problem, not two.
func (n Node) Object(keys Keys, required ...string) bool {
	before := n.file.failures
	if e := n.file.explorer; e != nil && n.IsMapping() {
		e.object(n.place.Key, keys, required)
	}
	seen := map[string]bool{}
	isMapping := n.each(func(key string, value Node) {
		seen[key] = true
		if read := keys[key]; read != nil {
			read(value)
			return
		}
		known := slices.Sorted(maps.Keys(keys))
		if near := humanize.Nearest(key, known); near != "" {
			seen[near] = true
			value.Fail("unknown key, did you mean %s?", near)
		} else {
			value.Fail("unknown key: known keys are %s", strings.Join(known, ", "))
		}
	})
	for _, key := range required {
		if isMapping && !seen[key] {
			at := n.place
			at.Key = join(at.Key, key)
			n.file.fail(at, errors.New("is missing"))
		}
	}
	return n.file.failures == before
}

// ExactlyOne adds a problem unless the mapping has exactly one of some keys, and returns whether it
// has. What follows the first word of a key explains it in the message.
func (n Node) ExactlyOne(keys ...string) bool {
	names, given := make([]string, len(keys)), 0
	for i, key := range keys {
		names[i], _, _ = strings.Cut(key, " ")
		names[i] = strings.TrimSuffix(names[i], ":")
		if n.Has(names[i]) {
			given++
		}
	}
	if e := n.file.explorer; e != nil && n.IsMapping() {
		e.oneOf(n.place.Key, names)
	}
	if given == 1 {
		return true
	}
	last := len(keys) - 1
	return n.Fail("needs one of %s and %s", strings.Join(keys[:last], ", "), keys[last])
}

// Each reads a mapping whose keys the user chooses, in the file's order.
func (n Node) Each(read func(key string, value Node)) bool {
	e := n.file.explorer
	if e == nil {
		return n.each(read)
	}
	if n.IsMapping() {
		e.shape(n.place.Key).Each = true
	}
	return n.each(func(key string, value Node) {
		value.place.Key = join(n.place.Key, "*")
		read(key, value)
	})
}

func (n Node) each(read func(key string, value Node)) bool {
	if n.yaml.Kind != yaml.MappingNode {
		if n.empty() {
			return n.Fail("is empty: write keys and values under it")
		}
		return n.Fail("%s where keys and values should be", n.kind())
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(n.yaml.Content); i += 2 {
		k := n.yaml.Content[i]
		at := Place{File: n.place.File, Line: k.Line, Column: k.Column, Key: join(n.place.Key, k.Value)}
		value := Node{file: n.file, yaml: n.yaml.Content[i+1], place: at}
		switch line := seen[k.Value]; {
		case k.Kind != yaml.ScalarNode || k.Value == "":
			value.Fail("a key must be a scalar")
		case line > 0:
			value.Fail("duplicate key: line %d has it already", line)
		default:
			seen[k.Value] = k.Line
			read(k.Value, value)
		}
	}
	return true
}

// Values returns all scalars in the value, with their variables, in the file's order. Invalid ones
// are left out.
func (n Node) Values() []string {
	if n.yaml.Kind == yaml.ScalarNode {
		text, _, err := expand(n.yaml.Value, n.file.lookup)
		if err != nil {
			return nil
		}
		return []string{text}
	}
	first, step := 0, 1
	if n.IsMapping() {
		first, step = 1, 2
	}
	var list []string
	for i := first; i < len(n.yaml.Content); i += step {
		list = append(list, Node{file: n.file, yaml: n.yaml.Content[i]}.Values()...)
	}
	return list
}

func join(parent, key string) string {
	if parent == "" {
		return key
	}
	return parent + "." + key
}

func (n Node) empty() bool {
	return n.yaml.Kind == yaml.ScalarNode && (n.yaml.Tag == "!!null" && n.yaml.Style == 0 || n.yaml.Value == "")
}

func (n Node) kind() string {
	switch n.yaml.Kind {
	case yaml.MappingNode:
		return "keys and values"
	case yaml.SequenceNode:
		return "a list"
	}
	return "a single value"
}

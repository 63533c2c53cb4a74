package strictyaml

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/sluice-go/sluice/internal/spelling"
)

// Node is a value in the file. Its methods that read into a variable return
// false, and leave the variable alone, if the value is not as it should be;
// the problem is then noted.
type Node struct {
	file  *file
	yaml  *yaml.Node
	place Place
}

// Keys tells what to do with the value of each key that a mapping may have.
type Keys map[string]func(Node)

// Place is where the value's key stands.
func (n Node) Place() Place { return n.place }

// Fail notes a problem with the value.
func (n Node) Fail(format string, args ...any) bool {
	n.file.fail(n.place, fmt.Errorf(format, args...))
	return false
}

// IsMapping tells a mapping from a scalar.
func (n Node) IsMapping() bool { return n.yaml.Kind == yaml.MappingNode }

// Has tells whether the value is a mapping that has the key.
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

// Object reads a mapping with these keys, in the file's order; the required
// ones must be there. It returns false if there are problems with any of it. A
// required key that is there misspelt is one problem, not two.
func (n Node) Object(keys Keys, required ...string) bool {
	before := n.file.failures
	seen := map[string]bool{}
	isMapping := n.Each(func(key string, value Node) {
		seen[key] = true
		if read := keys[key]; read != nil {
			read(value)
			return
		}
		known := slices.Sorted(maps.Keys(keys))
		if near := spelling.Nearest(key, known); near != "" {
			seen[near] = true
			value.Fail("unknown key, did you mean %s?", near)
		} else {
			value.Fail("unknown key: known here are %s", strings.Join(known, ", "))
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

// Each reads a mapping whose keys are the user's own, in the file's order.
func (n Node) Each(read func(key string, value Node)) bool {
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
			value.Fail("a key must be a word")
		case line > 0:
			value.Fail("a second time: it is in line %d already", line)
		default:
			seen[k.Value] = k.Line
			read(k.Value, value)
		}
	}
	return true
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

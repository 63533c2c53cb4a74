package strictyaml

import (
	"fmt"

	"go.yaml.in/yaml/v3"
)

// IsList reports whether the value is a list.
func (n Node) IsList() bool { return n.yaml.Kind == yaml.SequenceNode }

// Items reads a list with 1 to most items, in the file's order. The key of an item is that of the
// list with its index, counted from 0.
func (n Node) Items(most int, read func(item Node)) bool {
	switch {
	case !n.IsList() && n.empty():
		return n.Fail("is empty: write a list")
	case !n.IsList():
		return n.Fail("%s where a list should be", n.kind())
	case len(n.yaml.Content) == 0:
		return n.Fail("is an empty list")
	case len(n.yaml.Content) > most:
		return n.Fail("has %d entries: at most %d", len(n.yaml.Content), most)
	}
	before := n.file.failures
	if e := n.file.explorer; e != nil {
		e.shape(n.place.Key).MaxItems = most
	}
	for i, item := range n.yaml.Content {
		key := fmt.Sprintf("%s[%d]", n.place.Key, i)
		if n.file.explorer != nil {
			key = n.place.Key + "[]"
		}
		read(Node{file: n.file, yaml: item, place: Place{File: n.place.File, Line: item.Line, Column: item.Column, Key: key}})
	}
	return n.file.failures == before
}

// Texts reads one scalar, or a list of up to most.
func (n Node) Texts(most int, to *[]string) bool {
	var list []string
	read := func(item Node) {
		var text string
		if item.Text(&text) {
			list = append(list, text)
		}
	}
	if !n.IsList() {
		if read(n); len(list) == 0 {
			return false
		}
	} else if !n.Items(most, read) {
		return false
	}
	*to = list
	return true
}

// Package strictyaml reads configuration files by YAML's node tree, so that
// everything wrong with a file is told at once, each with its place: unknown
// and doubled keys, wrong types, bad values, missing variables.
//
// It reads a part of YAML: one document of mappings and scalars. Anchors,
// aliases and tags are refused. Scalars are what they look like: `no` is the
// text "no". In values, ${NAME} stands for an environment variable and
// ${NAME:-text} for the same with a default, used if it is unset or empty;
// $${ is a plain ${. What comes from the environment is never shown.
package strictyaml

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// MaxSize is how large a file may be, in bytes.
const MaxSize = 1 << 20

// Place is where a key stands.
type Place struct {
	File         string
	Line, Column int    // from 1; 0 if it is about the whole file
	Key          string // dotted, from the top
}

// String gives "file:line:column: key", without what is not known.
func (p Place) String() string {
	s := p.File
	if p.Line > 0 {
		s += fmt.Sprintf(":%d:%d", p.Line, p.Column)
	}
	if p.Key != "" {
		s += ": " + p.Key
	}
	return s
}

// Problem is one thing that is wrong at a place.
type Problem struct {
	Place Place
	Err   error
}

func (p *Problem) Error() string { return p.Place.String() + ": " + p.Err.Error() }

// Unwrap gives the error without the place.
func (p *Problem) Unwrap() error { return p.Err }

// Problems is everything that is wrong with a file, in the file's order. Its
// message has a line for each.
type Problems []*Problem

func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i, one := range p {
		lines[i] = one.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap gives the single problems.
func (p Problems) Unwrap() []error {
	list := make([]error, len(p))
	for i, one := range p {
		list[i] = one
	}
	return list
}

// file is a file while it is read.
type file struct {
	name     string
	source   []byte
	lookup   func(string) (string, bool)
	problems Problems
	told     map[telling]bool
	failures int // problems, each as often as it was met
}

// telling is a problem as it is told.
type telling struct {
	at   Place
	text string
}

// fail notes a problem, once: a value may be read more than once.
func (f *file) fail(at Place, err error) {
	f.failures++
	t := telling{at, err.Error()}
	if f.told[t] {
		return
	}
	if f.told == nil {
		f.told = map[telling]bool{}
	}
	f.told[t] = true
	f.problems = append(f.problems, &Problem{at, err})
}

// Read reads a file's content by calling root with its top. The error is
// [Problems]; name is what it calls the file. Variables are asked of lookup.
func Read(name string, data []byte, lookup func(string) (string, bool), root func(Node)) error {
	f := &file{name: name, source: data, lookup: lookup}
	if top := f.parse(data); top != nil {
		root(Node{file: f, yaml: top, place: Place{File: name, Line: top.Line, Column: top.Column}})
	}
	if len(f.problems) == 0 {
		return nil
	}
	slices.SortStableFunc(f.problems, func(a, b *Problem) int {
		return cmp.Or(cmp.Compare(a.Place.Line, b.Place.Line), cmp.Compare(a.Place.Column, b.Place.Column))
	})
	return f.problems
}

// parse returns the top of the only document, nil if there are problems.
func (f *file) parse(data []byte) *yaml.Node {
	whole := Place{File: f.name}
	if len(data) > MaxSize {
		f.fail(whole, fmt.Errorf("larger than %d bytes", MaxSize))
		return nil
	}
	var document, more yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	err := decoder.Decode(&document)
	if err == nil {
		err = decoder.Decode(&more)
	}
	switch {
	case errors.Is(err, io.EOF) && document.IsZero():
		f.fail(whole, errors.New("empty"))
		return nil
	case err == nil:
		f.fail(Place{File: f.name, Line: more.Line, Column: more.Column}, errors.New("a second document: write one per file"))
		return nil
	case !errors.Is(err, io.EOF):
		f.syntax(err)
		return nil
	}
	f.plain(document.Content[0], 0)
	if len(f.problems) > 0 {
		return nil
	}
	return document.Content[0]
}

var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// syntax reports an error of the YAML parser.
func (f *file) syntax(err error) {
	at, text := Place{File: f.name}, err.Error()
	if m := yamlLine.FindStringSubmatch(text); m != nil {
		text = text[len(m[0]):]
		at.Line, _ = strconv.Atoi(m[1])
		// The parser's own errors count lines from 0, its scanner's from 1.
		if strings.HasPrefix(text, "did not find expected") {
			at.Line++
		}
		if at.Line > 0 {
			at.Column = 1
		}
	}
	f.fail(at, fmt.Errorf("not YAML: %s", text))
}

// maxDepth is how deep mappings may lie in each other.
const maxDepth = 100

// plain refuses the parts of YAML that make a file mean more than it shows.
func (f *file) plain(n *yaml.Node, depth int) {
	at := Place{File: f.name, Line: n.Line, Column: n.Column}
	switch {
	case depth > maxDepth:
		f.fail(at, errors.New("nested too deep"))
		return
	case n.Kind == yaml.AliasNode:
		f.fail(at, fmt.Errorf("*%s: aliases are not supported: write it out", n.Value))
		return
	case n.Anchor != "":
		f.fail(at, fmt.Errorf("&%s: anchors are not supported: write it out", n.Anchor))
	case n.Style&yaml.TaggedStyle != 0:
		f.fail(at, fmt.Errorf("%s: tags are not supported", n.Tag))
	}
	for _, c := range n.Content {
		f.plain(c, depth+1)
	}
}

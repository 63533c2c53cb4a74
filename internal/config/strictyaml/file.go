// Package strictyaml reads configuration files. It works on YAML's node tree, so that
// it reports all problems of a file at once, each with its place: unknown and
// duplicate keys, wrong types, invalid values, missing variables.
//
// It accepts a subset of YAML: one document of mappings and scalars. Anchors, aliases
// and tags are refused. Scalars are text: `no` is "no", not false. In values, ${NAME}
// is replaced by an environment variable, and ${NAME:-text} by the variable or, if it
// is unset or empty, by text; $${ is a literal ${. Error messages never show a value
// from the environment.
package strictyaml

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// MaxSize is the largest size of a file in bytes.
const MaxSize = 1 << 20

// ReadFile returns what the file at path holds, of one that is larger than [MaxSize] one byte more
// than that, so that [Read] refuses it.
func ReadFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, readError(path, err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, MaxSize+1))
	if err != nil {
		return nil, readError(path, err)
	}
	return data, nil
}

func readError(path string, err error) error {
	var failed *os.PathError
	if errors.As(err, &failed) {
		err = failed.Err
	}
	return fmt.Errorf("%s: cannot be read: %w", path, err)
}

// Place is the position of a key.
type Place struct {
	File         string
	Line, Column int    // from 1; 0 for the whole file
	Key          string // dotted, from the top
}

// String returns "file:line:column: key", without the parts that are not known.
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

// Problem is an error at a place.
type Problem struct {
	Place Place
	Err   error
}

func (p *Problem) Error() string { return p.Place.String() + ": " + p.Err.Error() }

// Unwrap returns the error without the place.
func (p *Problem) Unwrap() error { return p.Err }

// Problems are all problems of a file, in the order of the file. Error returns one
// line for each.
type Problems []*Problem

func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i, one := range p {
		lines[i] = one.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns the single problems.
func (p Problems) Unwrap() []error {
	list := make([]error, len(p))
	for i, one := range p {
		list[i] = one
	}
	return list
}

// UnsetError: a value has an environment variable that is not set.
type UnsetError struct{ Variable string }

func (e *UnsetError) Error() string {
	return "the environment variable " + e.Variable + " is not set"
}

// file is the state of reading a file.
type file struct {
	name     string
	source   []byte
	lookup   func(string) (string, bool)
	problems Problems
	reported map[report]bool
	failures int       // number of calls of fail
	explorer *explorer // nil unless a reader is explored
}

// report identifies a problem, to report it only once.
type report struct {
	place Place
	text  string
}

// fail adds a problem, unless it is there already: a value may be read more than once.
func (f *file) fail(at Place, err error) {
	f.failures++
	r := report{at, err.Error()}
	if f.reported[r] {
		return
	}
	if f.reported == nil {
		f.reported = map[report]bool{}
	}
	f.reported[r] = true
	f.problems = append(f.problems, &Problem{at, err})
}

// Read parses a file's content and calls root with its top node. name is the file's
// name in errors, and lookup returns environment variables. The error is a
// [Problems].
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

// parse returns the top node of the only document, nil if there are problems.
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

// syntax adds an error of the YAML parser.
func (f *file) syntax(err error) {
	at, text := Place{File: f.name}, err.Error()
	if m := yamlLine.FindStringSubmatch(text); m != nil {
		text = text[len(m[0]):]
		at.Line, _ = strconv.Atoi(m[1])
		// Errors of the parser count lines from 0, those of the scanner from 1.
		if strings.HasPrefix(text, "did not find expected") {
			at.Line++
		}
		if at.Line > 0 {
			at.Column = 1
		}
	}
	f.fail(at, fmt.Errorf("not YAML: %s", text))
}

// maxDepth is how deep mappings may be nested.
const maxDepth = 100

// plain refuses anchors, aliases and tags, which give a file a meaning that it does not
// show.
func (f *file) plain(n *yaml.Node, depth int) {
	at := Place{File: f.name, Line: n.Line, Column: n.Column}
	switch {
	case depth > maxDepth:
		f.fail(at, errors.New("nested too deep"))
		return
	case n.Kind == yaml.AliasNode:
		f.fail(at, fmt.Errorf("*%s: aliases are not supported: write the value itself", n.Value))
		return
	case n.Anchor != "":
		f.fail(at, fmt.Errorf("&%s: anchors are not supported: write the value itself", n.Anchor))
	case n.Style&yaml.TaggedStyle != 0:
		f.fail(at, fmt.Errorf("%s: tags are not supported", n.Tag))
	}
	for _, c := range n.Content {
		f.plain(c, depth+1)
	}
}

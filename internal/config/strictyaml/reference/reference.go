// Package reference describes the keys of a configuration file. What a key accepts is taken from
// the file's reader, see [strictyaml.Explore]; what it means is in a description beside the reader.
// From both together come help for a terminal, a page in Markdown, and a JSON Schema.
package reference

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/sluice-go/sluice/internal/config/strictyaml"
)

// File is the reference of a kind of file.
type File struct {
	Title string // such as "Pipeline file"
	Doc   string // paragraphs about the whole file, without line breaks in them

	variants     []variant
	shapes       map[string]*strictyaml.Shape
	descriptions map[string]*keyDescription
	order        map[string]int // of paths, as described
}

// Variant is one of the forms that a file can have: that of files with the keys of Seed.
type Variant struct {
	Key  string // that distinguishes the form from the first; empty for the first
	Seed string // as in [strictyaml.Explore]
}

type variant struct {
	Variant
	top *strictyaml.Shape
}

// keyDescription is the description of a key.
type keyDescription struct {
	Doc     string          `yaml:"doc"`
	Text    string          `yaml:"text"`
	Default string          `yaml:"default"`
	Absent  string          `yaml:"absent"`
	Example string          `yaml:"example"`
	Type    strictyaml.Type `yaml:"type"` // where the reader's is not known, or too general
	Values  []string        `yaml:"values"`
	Pattern string          `yaml:"pattern"`
	OneOf   [][]string      `yaml:"one_of"`
	Alias   *string         `yaml:"as"`
	Same    *string         `yaml:"same"`
}

// New combines a description with what a reader accepts. The error says what is wrong with the
// description itself; [File.Check] compares it with the reader.
func New(title, doc string, description []byte, read func(strictyaml.Node), variants ...Variant) (*File, error) {
	f := &File{Title: title, Doc: doc, shapes: map[string]*strictyaml.Shape{}, descriptions: map[string]*keyDescription{}, order: map[string]int{}}
	var top yaml.Node
	if err := yaml.Unmarshal(description, &top); err != nil {
		return nil, err
	}
	for i := 0; i+1 < len(top.Content[0].Content); i += 2 {
		key, value := top.Content[0].Content[i], top.Content[0].Content[i+1]
		a := &keyDescription{}
		if err := value.Decode(a); err != nil {
			return nil, fmt.Errorf("%s: %w", key.Value, err)
		}
		f.descriptions[key.Value], f.order[key.Value] = a, i
	}
	for _, v := range variants {
		shapes := strictyaml.Explore(v.Seed, f.isAlias, read)
		f.variants = append(f.variants, variant{v, shapes[""]})
		for path, shape := range shapes {
			if path != "" && !f.belowAlias(path) && f.shapes[path] == nil {
				f.shapes[path] = shape
			}
		}
	}
	return f, nil
}

// isAlias reports whether the keys below a path are those of another path.
func (f *File) isAlias(path string) bool {
	return f.descriptions[path] != nil && f.descriptions[path].Alias != nil
}

func (f *File) belowAlias(path string) bool {
	for alias, a := range f.descriptions {
		if a.Alias != nil && isBelow(path, alias) {
			return true
		}
	}
	return false
}

// isBelow reports whether a path is below another.
func isBelow(path, of string) bool {
	rest, ok := strings.CutPrefix(path, of)
	return ok && rest != "" && (of == "" || rest[0] == '.' || rest[0] == '[')
}

func join(parent, key string) string {
	if parent == "" || key == "[]" {
		return parent + key
	}
	return parent + "." + key
}

// shape returns what is accepted at a path.
func (f *File) shape(path string) *strictyaml.Shape {
	if path == "" {
		return f.variants[0].top
	}
	if s := f.shapes[path]; s != nil {
		return s
	}
	return &strictyaml.Shape{}
}

// description returns the description of a key, an empty one if there is none.
func (f *File) description(path string) *keyDescription {
	if a := f.descriptions[path]; a != nil {
		return a
	}
	for at := path; at != ""; {
		at = at[:max(strings.LastIndexAny(at, ".["), 0)]
		if a := f.descriptions[at]; a != nil && a.Same != nil {
			return f.description(*a.Same + path[len(at):])
		}
	}
	return &keyDescription{}
}

// keysOf returns the path whose keys are those below a path, beside the path's own shape.
func (f *File) keysOf(path string) string {
	if f.isAlias(path) {
		return *f.descriptions[path].Alias
	}
	return path
}

// children returns the paths one step below a path, in the order of the description.
func (f *File) children(path string) []string {
	shapes := []*strictyaml.Shape{f.shape(path)}
	if path == "" {
		for _, v := range f.variants[1:] {
			shapes = append(shapes, v.top)
		}
	}
	base := f.keysOf(path)
	var list []string
	for _, s := range shapes {
		for _, key := range s.Keys {
			list = append(list, join(base, key))
		}
		if s.Each {
			list = append(list, join(base, "*"))
		}
		if s.MaxItems > 0 {
			list = append(list, join(base, "[]"))
		}
	}
	slices.Sort(list)
	list = slices.Compact(list)
	slices.SortStableFunc(list, func(a, b string) int { return f.place(a) - f.place(b) })
	return list
}

// place is where a path is in the description. One that has the description of another is placed as
// that is, after those of its own.
func (f *File) place(path string) int {
	if i, ok := f.order[path]; ok {
		return i
	}
	a := f.description(path)
	for other, one := range f.descriptions {
		if one == a {
			return len(f.order)*2 + f.order[other]
		}
	}
	return 0
}

// Check returns how description and reader differ: keys that one of them has and the other has not,
// and keys that are not as those of another path.
func (f *File) Check(read func(strictyaml.Node)) (problems []string) {
	fail := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	known := map[string]bool{"": true}
	var visit func(path string)
	visit = func(path string) {
		for _, child := range f.children(path) {
			if known[child] {
				continue
			}
			known[child] = true
			if a := f.description(child); a.Doc == "" {
				fail("%s: the reader has this key, the description has not", child)
			} else if s := f.shape(child); f.typeOf(child) == "" && s.Keys == nil && !s.Each && s.MaxItems == 0 {
				fail("%s: the type is not known", child)
			}
			visit(child)
		}
	}
	visit("")
	for path := range f.descriptions {
		if !known[path] {
			fail("%s: the description has this key, the reader has not", path)
		}
	}
	for _, v := range f.variants {
		all := strictyaml.Explore(v.Seed, func(string) bool { return false }, read)
		for path, shape := range all {
			for alias, a := range f.descriptions {
				if a.Alias == nil || !isBelow(path, alias) {
					continue
				}
				if as := f.resolve(*a.Alias + path[len(alias):]); !alike(shape, f.shape(as)) {
					fail("%s is not as %s: %+v, %+v", path, as, shape, f.shape(as))
				}
			}
		}
	}
	slices.Sort(problems)
	return problems
}

// resolve returns the path that is described for one below aliases.
func (f *File) resolve(path string) string {
	path = strings.TrimPrefix(path, ".")
	for _, alias := range slices.SortedFunc(maps.Keys(f.descriptions), func(a, b string) int { return len(a) - len(b) }) {
		if a := f.descriptions[alias]; a.Alias != nil && isBelow(path, alias) {
			return f.resolve(*a.Alias + path[len(alias):])
		}
	}
	return path
}

// alike reports whether a shape is another, of which it may have fewer keys.
func alike(s, of *strictyaml.Shape) bool {
	for _, key := range s.Keys {
		if !slices.Contains(of.Keys, key) {
			return false
		}
	}
	if s.Each != of.Each || s.MaxItems != of.MaxItems || (s.Scalar == nil) != (of.Scalar == nil) {
		return false
	}
	if s.Scalar == nil {
		return true
	}
	a, b := *s.Scalar, *of.Scalar
	return a.Type == b.Type && a.Least == b.Least && a.Most == b.Most && slices.Equal(a.Words, b.Words)
}

// scalar returns what is accepted as a single value, nil if none is.
func (f *File) scalar(path string) *strictyaml.Scalar {
	s, a := f.shape(path).Scalar, f.description(path)
	if a.Type == "" && a.Values == nil {
		return s
	}
	var own strictyaml.Scalar
	if s != nil {
		own = *s
	}
	if a.Type != "" {
		own.Type = a.Type
	}
	if a.Values != nil && a.Pattern == "" {
		own.Words = a.Values
	}
	return &own
}

func (f *File) typeOf(path string) strictyaml.Type {
	if s := f.scalar(path); s != nil {
		return s.Type
	}
	return ""
}

// required reports whether a key of a mapping must be given.
func (f *File) required(parent, child string) bool {
	if parent == "" && len(f.variants) > 1 && f.variants[0].top != nil {
		return slices.Contains(f.variants[0].top.Required, child)
	}
	return slices.Contains(f.shape(parent).Required, child[strings.LastIndexAny(child, ".[")+1:])
}

// Rebase returns the part of a description below a path, for another file where it is below to.
func Rebase(description []byte, from, to string) []byte {
	var top yaml.Node
	if err := yaml.Unmarshal(description, &top); err != nil {
		panic(err) // it is part of the program
	}
	kept := &yaml.Node{Kind: yaml.MappingNode}
	for i := 0; i+1 < len(top.Content[0].Content); i += 2 {
		key, value := top.Content[0].Content[i], top.Content[0].Content[i+1]
		if key.Value != from && !isBelow(key.Value, from) {
			continue
		}
		key.Value = to + key.Value[len(from):]
		key.Style = yaml.DoubleQuotedStyle
		for j := 0; j+1 < len(value.Content); j += 2 {
			if of := value.Content[j+1]; (value.Content[j].Value == "as" || value.Content[j].Value == "same") && isBelow(of.Value, from) {
				of.Value = to + of.Value[len(from):]
			}
		}
		kept.Content = append(kept.Content, key, value)
	}
	text, err := yaml.Marshal(kept)
	if err != nil {
		panic(err)
	}
	return text
}

package strictyaml

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Shape is what a reader accepts at a place of a file. More than one of Scalar, Keys, Each and Item
// can be set: a value that can be written in a short and a long form.
type Shape struct {
	Scalar   *Scalar
	Keys     []string   // of a mapping, sorted; nil: it has no known keys
	Required []string   // of Keys
	OneOf    [][]string // of Keys: one of each group must be given, and no other of the group
	Each     bool       // a mapping whose keys the user chooses
	MaxItems int        // of a list; 0: it is none
}

// Type is the type of a scalar.
type Type string

// The types, by the methods of [Node] that read them.
const (
	Text     Type = "text"
	Verbatim Type = "verbatim" // text in which variables are not replaced
	Bool     Type = "bool"
	Int      Type = "int"
	Duration Type = "duration" // bounds are in nanoseconds
	Size     Type = "size"     // bounds are in bytes
)

// Scalar is what a reader accepts as a single value.
type Scalar struct {
	Type        Type
	Words       []string // the only values; nil: any
	Least, Most int64    // of a number; both 0: there are no bounds
	Secret      bool     // the reader refuses a value that stands in the file, or at least one with a secret
}

// Explore returns what root reads, by path: keys are joined by dots, * stands for a key that the
// user chooses, and [] for an entry of a list; the path of the top is empty. It calls root with
// files that have one path each, and beside it the keys of seed, which may be empty. So it finds a
// key that is read only beside others if seed has them. Below a path for which leaf returns true it
// does not go. In these calls no scalar is valid, so that the reader acts on none.
func Explore(seed string, leaf func(path string) bool, root func(Node)) map[string]*Shape {
	e := &explorer{shapes: map[string]*Shape{}}
	pending, seen := [][]string{nil}, map[string]bool{}
	for len(pending) > 0 {
		path := pending[0]
		pending = pending[1:]
		for _, value := range leaves() {
			var top yaml.Node
			if seed != "" {
				if err := yaml.Unmarshal([]byte(seed), &top); err != nil {
					panic("strictyaml: seed: " + err.Error())
				}
				top = *top.Content[0]
			} else {
				top = yaml.Node{Kind: yaml.MappingNode}
			}
			put(&top, path, value)
			f := &file{lookup: func(string) (string, bool) { return "x", true }, explorer: e}
			root(Node{file: f, yaml: &top})
		}
		if leaf(pathOf(path)) {
			continue
		}
		for _, next := range e.children(path) {
			if key := strings.Join(next, "\x00"); !seen[key] {
				seen[key] = true
				pending = append(pending, next)
			}
		}
	}
	return e.shapes
}

// leaves are the values that are tried at each path.
func leaves() []*yaml.Node {
	scalar := func() *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: "${X}"} }
	return []*yaml.Node{scalar(), {Kind: yaml.MappingNode}, {Kind: yaml.SequenceNode, Content: []*yaml.Node{scalar()}}}
}

// chosenKey stands for a key that the user chooses. It is also the name of a field of events.
const chosenKey = "key"

// put puts a value at a path below n.
func put(n *yaml.Node, path []string, leaf *yaml.Node) {
	if len(path) == 0 {
		if len(n.Content) == 0 {
			*n = *leaf
		}
		return
	}
	step := path[0]
	if step == "[]" {
		if n.Kind != yaml.SequenceNode {
			*n = yaml.Node{Kind: yaml.SequenceNode, Content: []*yaml.Node{{Kind: yaml.MappingNode}}}
		}
		put(n.Content[0], path[1:], leaf)
		return
	}
	if step == "*" {
		step = chosenKey
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == step {
			put(n.Content[i+1], path[1:], leaf)
			return
		}
	}
	value := &yaml.Node{Kind: yaml.MappingNode}
	n.Kind, n.Content = yaml.MappingNode, append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: step}, value)
	put(value, path[1:], leaf)
}

// explorer notes what a reader reads.
type explorer struct{ shapes map[string]*Shape }

func (e *explorer) shape(path string) *Shape {
	s := e.shapes[path]
	if s == nil {
		s = &Shape{}
		e.shapes[path] = s
	}
	return s
}

// children returns the paths one step below a path.
func (e *explorer) children(path []string) (list [][]string) {
	s := e.shapes[pathOf(path)]
	if s == nil {
		return nil
	}
	for _, key := range s.Keys {
		list = append(list, append(slices.Clone(path), key))
	}
	if s.Each {
		list = append(list, append(slices.Clone(path), "*"))
	}
	if s.MaxItems > 0 {
		list = append(list, append(slices.Clone(path), "[]"))
	}
	return list
}

func pathOf(steps []string) string {
	path := ""
	for _, step := range steps {
		if step == "[]" {
			path += step
		} else {
			path = join(path, step)
		}
	}
	return path
}

// object notes the keys of a mapping. A key is required if it is so beside all others.
func (e *explorer) object(path string, keys Keys, required []string) {
	s := e.shape(path)
	first := s.Keys == nil
	for key, read := range keys {
		if i, found := slices.BinarySearch(s.Keys, key); read != nil && !found {
			s.Keys = slices.Insert(s.Keys, i, key)
		}
	}
	if first {
		s.Required = slices.Sorted(slices.Values(required))
	}
	s.Required = slices.DeleteFunc(s.Required, func(key string) bool { return !slices.Contains(required, key) })
}

func (e *explorer) oneOf(path string, keys []string) {
	s := e.shape(path)
	if !slices.ContainsFunc(s.OneOf, func(o []string) bool { return slices.Equal(o, keys) }) {
		s.OneOf = append(s.OneOf, keys)
	}
}

// explored notes a scalar, and reports whether that is all to do: the value is not read.
func (n Node) explored(s Scalar) bool {
	e := n.file.explorer
	if e == nil {
		return false
	}
	n.file.failures++
	if n.yaml.Kind != yaml.ScalarNode {
		return true
	}
	shape := e.shape(n.place.Key)
	if shape.Scalar == nil {
		shape.Scalar = &Scalar{}
	}
	if shape.Scalar.Type == "" {
		s.Secret = shape.Scalar.Secret
		*shape.Scalar = s
	}
	return true
}

// exploredLiteral notes that the reader looks at what stands in the file itself.
func (n Node) exploredLiteral() {
	if e := n.file.explorer; e != nil && n.yaml.Kind == yaml.ScalarNode {
		shape := e.shape(n.place.Key)
		if shape.Scalar == nil {
			shape.Scalar = &Scalar{}
		}
		shape.Scalar.Secret = true
	}
}

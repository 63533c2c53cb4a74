package infer

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"
	"unicode"

	"github.com/sluice-go/sluice/internal/jsonscan"
	"github.com/sluice-go/sluice/pipeline/internal/jsonpick"
)

// Limits of the search for shapes.
const (
	maxValues     = 12 // of what distinguishes shapes
	maxText       = 100
	maxTelling    = 60 // values of the first event that may distinguish shapes
	maxShapePaths = 500
	shapeDepth    = 3
)

// How sure the search is.
const (
	leastNamed  = 5   // events of each shape, if the value has a name that people give to types
	leastOther  = 20  // if it has another name
	typicalPart = 0.9 // of its events make a path typical of a shape
	leastOwn    = 2   // typical paths that each of two shapes has, and the other never
	ownPart     = 0.2 // which so many of its typical paths must be
)

// Shapes looks for a value that distinguishes events of different shapes. Its zero value is ready
// to use.
type Shapes struct {
	events  int
	numbers map[string]int // of paths
	telling map[string]*teller
}

// teller is a value that may distinguish shapes.
type teller struct {
	values map[string]*shape
	seen   int
}

// shape is what the events of some values have in common.
type shape struct {
	values []string
	events int
	seen   []int // by the number of the path, in how many events it is there
}

// Split says that events have different shapes.
type Split struct {
	From   string       // the value that tells them apart, as a pipeline file writes it
	Shapes []SplitShape // the most frequent first
}

// SplitShape are the events of one shape.
type SplitShape struct {
	Values []string // the most frequent first
	Events int
}

// Name makes a name of a column or a table, as [Sample.Columns] does.
func Name(text string) string { return columnName(text) }

// Add adds the body of an event, and texts beside the body that may distinguish shapes. A body that
// is no JSON object has no values.
func (s *Shapes) Add(body []byte, beside map[string]string) {
	found := walk{texts: maps.Clone(beside), paths: map[string]bool{}}
	if found.texts == nil {
		found.texts = map[string]string{}
	}
	if doc, err := jsonpick.UTF8(body); err == nil && (&Sample{}).check(doc) == nil {
		_ = found.object(jsonscan.New(doc, maxNesting), nil) // the document was checked
	}
	if s.events++; s.events == 1 {
		s.numbers, s.telling = map[string]int{}, map[string]*teller{}
		for i, from := range slices.Sorted(maps.Keys(found.texts)) {
			if _, given := beside[from]; given || i < maxTelling {
				s.telling[from] = &teller{values: map[string]*shape{}}
			}
		}
	}
	var numbers []int
	for path := range found.paths {
		n, known := s.numbers[path]
		if !known && len(s.numbers) < maxShapePaths {
			n, known = len(s.numbers), true
			s.numbers[path] = n
		}
		if known {
			numbers = append(numbers, n)
		}
	}
	for from, t := range s.telling {
		if text, ok := found.texts[from]; !ok || !t.add(text, numbers) {
			delete(s.telling, from)
		}
	}
}

// add adds an event. It returns false if there are too many values.
func (t *teller) add(text string, numbers []int) bool {
	of := t.values[text]
	if of == nil {
		if len(t.values) == maxValues {
			return false
		}
		of = &shape{values: []string{text}}
		t.values[text] = of
	}
	t.seen++
	of.events++
	for _, n := range numbers {
		if n >= len(of.seen) {
			of.seen = append(of.seen, make([]int, n+1-len(of.seen))...)
		}
		of.seen[n]++
	}
	return true
}

// walk collects the paths of a document, and its texts that may distinguish shapes.
type walk struct {
	texts map[string]string
	paths map[string]bool
}

func (w *walk) object(scan *jsonscan.Scanner, at jsonpick.Path) error {
	return scan.Object(func(key []byte) error {
		path := append(slices.Clone(at), jsonpick.Step{Key: string(jsonscan.Unquote(key))})
		from := "body" + path.String()
		w.paths[from] = true
		first := scan.Peek()
		if first == '{' && len(path) < shapeDepth {
			return w.object(scan, path)
		}
		raw, err := scan.Value()
		switch {
		case err != nil || first == '{' || first == '[':
			return err
		case first == '"':
			raw = jsonscan.Unquote(raw)
		}
		if tells(string(raw)) && first != 'n' {
			w.texts[from] = string(raw)
		}
		return nil
	})
}

// tells reports whether a text may be the name of a type.
func tells(text string) bool {
	return text != "" && len(text) <= maxText && !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar })
}

// Split returns what distinguishes events of different shapes, nil if their shapes do not clearly
// differ.
func (s *Shapes) Split() *Split {
	var best *Split
	for _, from := range slices.SortedFunc(maps.Keys(s.telling), func(a, b string) int {
		return cmp.Or(rank(a)-rank(b), cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
	}) {
		shapes := s.telling[from].shapes()
		least := leastOther
		if rank(from) < otherRank {
			least = leastNamed
		}
		if len(shapes) < 2 || slices.ContainsFunc(shapes, func(one *shape) bool { return one.events < least }) {
			continue
		}
		if best != nil && len(best.Shapes) >= len(shapes) {
			continue
		}
		best = &Split{From: from}
		for _, one := range shapes {
			best.Shapes = append(best.Shapes, SplitShape{one.values, one.events})
		}
		if rank(from) < otherRank {
			break
		}
	}
	return best
}

// shapes returns the shapes that clearly differ. Values whose events are alike share one.
func (t *teller) shapes() []*shape {
	var list []*shape
	for _, v := range slices.Sorted(maps.Keys(t.values)) {
		of := *t.values[v]
		of.seen = slices.Clone(of.seen)
		list = append(list, &of)
	}
	byEvents := func(a, b *shape) int { return b.events - a.events }
	slices.SortStableFunc(list, byEvents)
	for i, j := alike(list); i >= 0; i, j = alike(list) {
		list[i].join(list[j])
		list = slices.Delete(list, j, j+1)
	}
	slices.SortStableFunc(list, byEvents)
	return list
}

// alike returns the two shapes that differ least, if they do not clearly differ; else -1.
func alike(list []*shape) (i, j int) {
	i, least := -1, math.Inf(1)
	for a := range list {
		for b := a + 1; b < len(list); b++ {
			if d := difference(list[a], list[b]); d < least && d < 1 {
				i, j, least = a, b, d
			}
		}
	}
	return i, j
}

// difference is 1 or more if two shapes clearly differ.
func difference(a, b *shape) float64 {
	return min(a.own(b), b.own(a))
}

// own is 1 or more if a shape has enough typical paths that the other one never has.
func (s *shape) own(other *shape) float64 {
	typical, own := 0, 0
	for n, seen := range s.seen {
		if float64(seen) < typicalPart*float64(s.events) {
			continue
		}
		if typical++; n >= len(other.seen) || other.seen[n] == 0 {
			own++
		}
	}
	if typical == 0 {
		return 0
	}
	return min(float64(own)/leastOwn, float64(own)/float64(typical)/ownPart)
}

// join adds the events of another shape.
func (s *shape) join(other *shape) {
	s.values = append(s.values, other.values...)
	s.events += other.events
	if n := len(other.seen); n > len(s.seen) {
		s.seen = append(s.seen, make([]int, n-len(s.seen))...)
	}
	for n, seen := range other.seen {
		s.seen[n] += seen
	}
}

const otherRank = 4

// rank is lower for values with names that people give to types.
func rank(from string) int {
	name := from
	if i := strings.LastIndexAny(from, ".:"); i >= 0 {
		name = from[i+1:]
	}
	switch name = strings.ReplaceAll(columnName(name), "_", ""); {
	case from == "type":
		return 0
	case strings.HasPrefix(from, "properties.") && soundsLikeType(name):
		return 1
	case soundsLikeType(name):
		return 2
	case strings.HasSuffix(name, "type") || strings.HasSuffix(name, "kind"):
		return 3
	}
	return otherRank
}

// soundsLikeType reports whether a name is one that people give to types of events.
func soundsLikeType(name string) bool {
	return slices.Contains([]string{"type", "kind", "event", "eventtype", "eventname", "messagetype", "msgtype", "recordtype", "schema", "category", "subject", "operationname", "topic", "table", "action"}, name)
}

package formats

import (
	"encoding/json"
	"slices"
	"strings"
)

// avroStep says how a value in a body becomes JSON. The steps of a schema are those of its types,
// or of the types that it was written with beside those that it is read with. They form a cycle if
// a type refers to itself.
type avroStep struct {
	read  avroKind // how the body has it
	write avroKind // what it becomes; another one if the reader's type is a wider one

	whole    wholeFormat // of a logical type; nil: none
	bytes    bytesFormat
	scale    int
	size     int          // of a fixed
	symbols  []string     // of an enum, as JSON
	item     *avroStep    // of an array or a map
	noBytes  bool         // the items of an array take no bytes
	branches []*avroStep  // of a union
	fields   []avroMember // of a record, in the order of the body
	// order are the fields that are written, sorted by name, as indexes among them; nil: they are
	// in this order.
	order []int
}

// avroMember is a field of a record in a body, or one that has its default value.
type avroMember struct {
	name string
	key  string    // the name as JSON, and a colon
	step *avroStep // nil: it is skipped, or has its default value
	skip *avroType // the type of a field that the reader does not have
	text []byte    // the default value as JSON
	err  error     // why the default value has no JSON
}

// avroPlan makes the steps of types.
type avroPlan struct {
	direct   map[*avroType]*avroStep
	resolved map[[2]*avroType]*avroStep // by reader and writer
}

func newAvroPlan() *avroPlan {
	return &avroPlan{map[*avroType]*avroStep{}, map[[2]*avroType]*avroStep{}}
}

// stepOf returns the step of a type that is read as it was written.
func (p *avroPlan) stepOf(t *avroType) *avroStep {
	if known := p.direct[t]; known != nil {
		return known
	}
	s := newStep(t, t)
	p.direct[t] = s
	switch t.kind {
	case avroEnum:
		for _, symbol := range t.symbols {
			s.symbols = append(s.symbols, quoted(symbol))
		}
	case avroArray, avroMap:
		s.item, s.noBytes = p.stepOf(t.item), t.item.noBytes
	case avroUnion:
		for _, branch := range t.branches {
			s.branches = append(s.branches, p.stepOf(branch))
		}
	case avroRecord:
		for _, field := range t.fields {
			s.fields = append(s.fields, avroMember{name: field.name, key: quoted(field.name) + ":", step: p.stepOf(field.typ)})
		}
		s.sort()
	}
	return s
}

// newStep returns the step of a type that is not made of others, without what those add.
func newStep(reader, writer *avroType) *avroStep {
	s := &avroStep{read: writer.kind, write: reader.kind, scale: reader.scale, size: writer.size}
	if slices.Contains(logicalBases[reader.logical], avroKindNames[reader.kind]) || reader.logical == "big-decimal" && reader.kind == avroBytes {
		switch reader.kind {
		case avroInt, avroLong:
			s.whole = wholeFormats[reader.logical]
		case avroBytes, avroFixed:
			s.bytes = bytesFormats[reader.logical]
		}
	}
	return s
}

// sort sets the order in which the fields of a record are written.
func (s *avroStep) sort() {
	var names []string
	for _, field := range s.fields {
		if field.skip == nil {
			names = append(names, field.name)
		}
	}
	if slices.IsSorted(names) {
		return
	}
	s.order = make([]int, len(names))
	for i := range s.order {
		s.order[i] = i
	}
	slices.SortFunc(s.order, func(a, b int) int { return strings.Compare(names[a], names[b]) })
}

// quoted returns a name as JSON.
func quoted(name string) string {
	text, err := json.Marshal(name)
	if err != nil { // no string has one
		panic(err)
	}
	return string(text)
}

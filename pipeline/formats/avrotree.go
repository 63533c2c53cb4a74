package formats

import (
	"fmt"
	"math"
	"strings"
	"sync"

	"github.com/twmb/avro"
)

// avroKind is a kind of types in Avro.
type avroKind uint8

const (
	avroNull avroKind = iota
	avroBoolean
	avroInt
	avroLong
	avroFloat
	avroDouble
	avroBytes
	avroString
	avroFixed
	avroEnum
	avroArray
	avroMap
	avroRecord
	avroUnion
)

// avroKinds are the kinds by the names that schemas have for them. Any other name refers to a type.
var avroKinds = map[string]avroKind{
	"null": avroNull, "boolean": avroBoolean, "int": avroInt, "long": avroLong, "float": avroFloat,
	"double": avroDouble, "bytes": avroBytes, "string": avroString, "fixed": avroFixed, "enum": avroEnum,
	"array": avroArray, "map": avroMap, "record": avroRecord, "error": avroRecord, "union": avroUnion,
}

// avroKindNames are the names of the kinds, for errors.
var avroKindNames = [...]string{"null", "boolean", "int", "long", "float", "double", "bytes", "string", "fixed", "enum",
	"array", "map", "record", "union"}

func (k avroKind) String() string { return avroKindNames[k] }

// avroType is a type of a schema. A type that refers to itself is a cycle.
type avroType struct {
	kind      avroKind
	name      string      // with its namespace, of a record, an enum or a fixed
	aliases   []string    // with their namespaces
	shorts    []string    // the aliases that were written without a namespace
	logical   string      // the logical type; "": none
	scale     int         // of a decimal
	size      int         // of a fixed
	fields    []avroField // of a record
	item      *avroType   // of an array or a map
	branches  []*avroType // of a union
	symbols   []string    // of an enum
	otherwise string      // the symbol that stands for unknown ones, if hasOther
	hasOther  bool

	// noBytes: every value takes no bytes in a body, so that a body does not bound their number.
	noBytes bool
}

// avroField is a field of a record.
type avroField struct {
	name     string
	aliases  []string
	typ      *avroType
	fallback func() ([]byte, error) // its default value as JSON; nil: it has none
}

// avroTree makes types of a schema that the library has parsed and checked.
type avroTree struct {
	nodes     map[string]*avro.SchemaNode // the definitions of the names
	types     map[string]*avroType
	fallbacks bool   // default values are needed
	undefined string // a name that has no definition
}

// typesOf returns the type of a schema. Only of one that reads what others have written, default
// values are needed.
func typesOf(schema *avro.Schema, fallbacks bool) (*avroType, error) {
	root := schema.Root()
	t := avroTree{nodes: map[string]*avro.SchemaNode{}, types: map[string]*avroType{}, fallbacks: fallbacks}
	t.define(root)
	found := t.typeOf(root, "")
	if t.undefined != "" {
		return nil, fmt.Errorf("the type %.100q is not defined", t.undefined)
	}
	findNoBytes(found, map[*avroType]bool{})
	return found, nil
}

// define notes the names that a schema defines.
func (t *avroTree) define(n *avro.SchemaNode) {
	switch avroKinds[n.Type] {
	case avroFixed, avroEnum:
		t.nodes[fullName(n)] = n
	case avroRecord:
		t.nodes[fullName(n)] = n
		for i := range n.Fields {
			annotate(&n.Fields[i])
			t.define(&n.Fields[i].Type)
		}
	case avroArray:
		t.define(n.Items)
	case avroMap:
		t.define(n.Values)
	case avroUnion:
		for i := range n.Branches {
			t.define(&n.Branches[i])
		}
	}
}

// fullName returns the name of a named type with its namespace.
func fullName(n *avro.SchemaNode) string {
	if strings.Contains(n.Name, ".") || n.Namespace == "" {
		return rooted(n.Name)
	}
	return n.Namespace + "." + n.Name
}

// rooted returns a name without the dot at its beginning, if it has no other: the name is in no
// namespace.
func rooted(name string) string {
	if strings.LastIndexByte(name, '.') == 0 {
		return name[1:]
	}
	return name
}

// namespaceOf returns the namespace of a full name.
func namespaceOf(name string) string { return name[:max(0, strings.LastIndexByte(name, '.'))] }

// shortName returns a full name without its namespace.
func shortName(name string) string { return name[strings.LastIndexByte(name, '.')+1:] }

// typeOf returns the type of a node within a namespace.
func (t *avroTree) typeOf(n *avro.SchemaNode, namespace string) *avroType {
	kind, known := avroKinds[n.Type]
	if !known {
		return t.named(t.resolve(n.Type, namespace))
	}
	out := &avroType{kind: kind, logical: n.LogicalType, scale: n.Scale}
	switch kind {
	case avroFixed, avroEnum, avroRecord:
		return t.named(fullName(n))
	case avroArray:
		out.item = t.typeOf(n.Items, namespace)
	case avroMap:
		out.item = t.typeOf(n.Values, namespace)
	case avroUnion:
		for i := range n.Branches {
			out.branches = append(out.branches, t.typeOf(&n.Branches[i], namespace))
		}
	}
	return out
}

// resolve returns the full name that a name refers to within a namespace.
func (t *avroTree) resolve(name, namespace string) string {
	if !strings.Contains(name, ".") && namespace != "" && t.nodes[namespace+"."+name] != nil {
		return namespace + "." + name
	}
	return rooted(name)
}

// named returns the type with a full name.
func (t *avroTree) named(full string) *avroType {
	if known := t.types[full]; known != nil {
		return known
	}
	n := t.nodes[full]
	if n == nil { // the library has found it, or it would have refused the schema
		t.undefined = full
		return &avroType{}
	}
	out := &avroType{kind: avroKinds[n.Type], name: full, logical: n.LogicalType, scale: n.Scale, size: n.Size,
		symbols: n.Symbols, otherwise: n.EnumDefault, hasOther: n.HasEnumDefault}
	t.types[full] = out
	namespace := namespaceOf(full)
	for _, alias := range n.Aliases {
		if strings.Contains(alias, ".") {
			out.aliases = append(out.aliases, rooted(alias))
			continue
		}
		out.shorts = append(out.shorts, alias)
		if namespace != "" {
			alias = namespace + "." + alias
		}
		out.aliases = append(out.aliases, alias)
	}
	for _, field := range n.Fields {
		made := avroField{name: field.Name, aliases: field.Aliases, typ: t.typeOf(&field.Type, namespace)}
		if field.HasDefault && t.fallbacks {
			made.fallback = sync.OnceValues(func() ([]byte, error) { return t.fallback(field, namespace) })
		}
		out.fields = append(out.fields, made)
	}
	return out
}

// annotate gives the type of a field the logical type that is written beside it: to the first
// branch of a union that is not null. The annotation of the type itself counts more.
func annotate(field *avro.SchemaField) {
	logical, _ := field.Props["logicalType"].(string)
	target := &field.Type
	for i := range target.Branches {
		if target.Branches[i].Type != "null" {
			target = &target.Branches[i]
			break
		}
	}
	kind, known := avroKinds[target.Type]
	if !known || kind == avroUnion || logical == "" {
		return
	}
	if target.LogicalType == "" {
		target.LogicalType = logical
		precision, _ := field.Props["precision"].(int64)
		target.Precision = int(precision)
	}
	if scale, _ := field.Props["scale"].(int64); target.LogicalType == "decimal" && target.Scale == 0 {
		target.Scale = int(scale)
	}
}

// fallback returns the default value of a field as JSON. The library decodes it: what a schema has
// is as large as the schema.
func (t *avroTree) fallback(field avro.SchemaField, namespace string) ([]byte, error) {
	record := avro.SchemaNode{Type: "record", Name: "holder", Namespace: namespace}
	for t.nodes[fullName(&record)] != nil {
		record.Name += "_"
	}
	writer, err := record.Schema()
	if err != nil {
		return nil, err
	}
	record.Fields = []avro.SchemaField{field}
	reader, err := record.Schema(logicalTypes...)
	if err != nil {
		return nil, err
	}
	both, err := avro.Resolve(writer, reader)
	if err != nil {
		return nil, err
	}
	var value map[string]any
	if _, err := both.Decode(nil, &value); err != nil {
		return nil, fmt.Errorf("its default: %w", misfit(err))
	}
	w := jsonWriter{limit: math.MaxInt}
	err = w.value(value[field.Name])
	return w.out, err
}

// findNoBytes sets noBytes of a type and of those in it. What seen has is done, or is being done: a
// record that contains itself takes bytes for what ends it.
func findNoBytes(t *avroType, seen map[*avroType]bool) bool {
	if seen[t] {
		return t.noBytes
	}
	seen[t] = true
	noBytes := t.kind == avroNull || t.kind == avroFixed && t.size == 0 || t.kind == avroRecord
	for _, field := range t.fields {
		noBytes = findNoBytes(field.typ, seen) && noBytes
	}
	for _, branch := range t.branches {
		findNoBytes(branch, seen)
	}
	if t.item != nil {
		findNoBytes(t.item, seen)
	}
	t.noBytes = noBytes
	return noBytes
}

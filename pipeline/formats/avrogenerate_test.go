package formats

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
)

// avroMade generates schemas, schemas that read them, and bodies.
type avroMade struct {
	*rand.Rand
	named []*madeType // the named types so far, which others refer to
	count int
	spent int // values of the body that is generated
}

// madeType is a generated type.
type madeType struct {
	kind, logical    string
	name, namespace  string
	aliases          []string
	precision, scale int
	size             int
	symbols          []string
	otherwise        string
	item             *madeType // of an array or a map
	branches         []*madeType
	fields           []madeField
}

type madeField struct {
	name     string
	aliases  []string
	typ      *madeType
	separate bool // its logical type is written beside its type
	value    any  // its default, if hasDefault
	has      bool
}

var madeLeaves = []string{"null", "boolean", "int", "long", "float", "double", "bytes", "string", "fixed", "enum"}

var madeLogical = map[string][]string{
	"int":    {"date", "time-millis", "unheard-of"},
	"long":   {"time-micros", "timestamp-millis", "timestamp-micros", "timestamp-nanos", "local-timestamp-millis", "local-timestamp-micros", "local-timestamp-nanos", "date"},
	"bytes":  {"decimal", "big-decimal", "uuid"},
	"fixed":  {"decimal", "uuid", "duration"},
	"string": {"uuid", "date"},
}

func (g *avroMade) oneIn(n int) bool { return g.IntN(n) == 0 }

func (g *avroMade) name(prefix string) string {
	g.count++
	return fmt.Sprintf("%c%s%d", 'a'+rune(g.IntN(26)), prefix, g.count)
}

// aType generates a type that nests at most depth levels.
func (g *avroMade) aType(depth int) *madeType {
	if len(g.named) > 0 && g.oneIn(8) {
		return g.named[g.IntN(len(g.named))]
	}
	if depth <= 0 || g.oneIn(3) {
		return g.leaf(madeLeaves[g.IntN(len(madeLeaves))])
	}
	t := &madeType{kind: []string{"array", "map", "record", "union", "record", "union"}[g.IntN(6)]}
	switch t.kind {
	case "array", "map":
		t.item = g.aType(depth - 1)
	case "record":
		g.define(t)
		for range g.IntN(6) {
			t.fields = append(t.fields, madeField{name: g.name("f"), typ: g.aType(depth - 1), separate: g.oneIn(4)})
		}
	case "union":
		g.unite(t, depth)
	}
	return t
}

// unite gives a union branches of different kinds and names.
func (g *avroMade) unite(t *madeType, depth int) {
	seen := map[string]bool{}
	if g.oneIn(2) {
		t.branches, seen["null"] = append(t.branches, g.leaf("null")), true
	}
	for range 1 + g.IntN(4) {
		b := g.aType(depth - 1)
		key := b.kind
		if b.name != "" {
			key = b.full()
		}
		if b.kind != "union" && !seen[key] {
			t.branches, seen[key] = append(t.branches, b), true
		}
	}
	if len(t.branches) == 0 {
		t.branches = append(t.branches, g.leaf("string"))
	}
}

func (t *madeType) full() string {
	if t.namespace == "" {
		return t.name
	}
	return t.namespace + "." + t.name
}

func (g *avroMade) define(t *madeType) {
	t.name = g.name("t")
	t.namespace = []string{"", "n", "n.m"}[g.IntN(3)]
	if g.oneIn(3) {
		t.aliases = []string{g.name("alias")}
	}
	g.named = append(g.named, t)
}

func (g *avroMade) leaf(kind string) *madeType {
	t := &madeType{kind: kind}
	switch kind {
	case "fixed":
		t.size = []int{0, 1, 2, 12, 16, 7}[g.IntN(6)]
		g.define(t)
	case "enum":
		for range 1 + g.IntN(4) {
			t.symbols = append(t.symbols, g.name("S"))
		}
		g.define(t)
	}
	if all := madeLogical[kind]; all != nil && g.oneIn(2) {
		t.logical = all[g.IntN(len(all))]
		t.precision, t.scale = g.IntN(12), g.IntN(10)
	}
	return t
}

// schema returns the schema of a type, with the definition of each name where it comes first.
func (t *madeType) schema(seen map[*madeType]bool, annotated bool) any {
	if seen[t] {
		return t.full()
	}
	m := map[string]any{"type": t.kind}
	if t.name != "" {
		seen[t] = true
		m["name"], m["namespace"], m["aliases"] = t.name, t.namespace, append([]string{}, t.aliases...)
	}
	if t.logical != "" && annotated {
		m["logicalType"], m["precision"], m["scale"] = t.logical, t.precision, t.scale
	}
	switch t.kind {
	case "union":
		list := []any{}
		for _, b := range t.branches {
			list = append(list, b.schema(seen, true))
		}
		return list
	case "array":
		m["items"] = t.item.schema(seen, true)
	case "map":
		m["values"] = t.item.schema(seen, true)
	case "fixed":
		m["size"] = t.size
	case "enum":
		m["symbols"] = t.symbols
		if t.otherwise != "" {
			m["default"] = t.otherwise
		}
	case "record":
		fields := []any{}
		for _, f := range t.fields {
			field := map[string]any{"name": f.name, "aliases": append([]string{}, f.aliases...)}
			beside := f.separate && f.typ.logical != "" && !seen[f.typ]
			if field["type"] = f.typ.schema(seen, !beside); beside {
				field["logicalType"], field["precision"], field["scale"] = f.typ.logical, f.typ.precision, f.typ.scale
			}
			if f.has {
				field["default"] = f.value
			}
			fields = append(fields, field)
		}
		m["fields"] = fields
	}
	return m
}

func (t *madeType) text() string {
	text, err := json.Marshal(t.schema(map[*madeType]bool{}, true))
	if err != nil {
		panic(err)
	}
	return string(text)
}

// reader generates a type that reads what t has written, if no chance makes it unfit.
func (g *avroMade) reader(t *madeType, made map[*madeType]*madeType) *madeType {
	if known := made[t]; known != nil {
		return known
	}
	out := *t
	made[t] = &out
	switch t.kind {
	case "int", "long", "float", "bytes", "string":
		wider := map[string][]string{"int": {"long", "float", "double"}, "long": {"float", "double"}, "float": {"double"}, "bytes": {"string"}, "string": {"bytes"}}[t.kind]
		if g.oneIn(3) {
			return g.leaf(wider[g.IntN(len(wider))])
		}
	case "array", "map":
		out.item = g.reader(t.item, made)
	case "union":
		out.branches = nil
		for _, i := range g.Perm(len(t.branches)) {
			out.branches = append(out.branches, g.reader(t.branches[i], made))
		}
		if len(out.branches) == 1 && g.oneIn(2) {
			return out.branches[0]
		}
		return &out
	case "enum":
		if g.oneIn(2) {
			out.symbols = append([]string{g.name("S")}, t.symbols[:g.IntN(len(t.symbols)+1)]...)
			out.otherwise = out.symbols[0]
		}
	case "record":
		g.readFields(&out, t, made)
	}
	if t.name != "" && g.oneIn(4) {
		out.name, out.aliases = g.name("t"), []string{t.full()}
		if g.oneIn(2) { // an alias without a namespace stands for names in any
			out.namespace, out.aliases = "other", []string{t.name}
		}
	}
	if g.oneIn(6) && t.kind != "null" {
		return &madeType{kind: "union", branches: []*madeType{g.leaf("null"), &out}}
	}
	return &out
}

// readFields gives a record fields of t: in another order, some with another name, and others.
func (g *avroMade) readFields(out, t *madeType, made map[*madeType]*madeType) {
	out.fields = nil
	for _, i := range g.Perm(len(t.fields)) {
		f := t.fields[i]
		if g.oneIn(4) {
			continue
		}
		if g.oneIn(4) {
			f.name, f.aliases = g.name("f"), []string{f.name}
		}
		f.typ = g.reader(f.typ, made)
		out.fields = append(out.fields, f)
	}
	for range g.IntN(3) {
		f := madeField{name: g.name("f"), typ: g.aType(1), has: true}
		f.value = g.fallback(f.typ, 0)
		out.fields = append(out.fields, f)
	}
}

// fallback generates a default value.
func (g *avroMade) fallback(t *madeType, depth int) any {
	switch t.kind {
	case "null":
		return nil
	case "boolean":
		return g.oneIn(2)
	case "int", "long":
		return g.IntN(100000)
	case "float", "double":
		return g.Float64()
	case "bytes":
		if t.logical == "big-decimal" {
			return "\u0002\u0005\u0002"
		}
		return strings.Repeat("\u00ff", g.IntN(4))
	case "fixed":
		return strings.Repeat("\u0001", t.size)
	case "string":
		return "d<é"
	case "enum":
		return t.symbols[0]
	case "array":
		if depth > 3 || g.oneIn(2) {
			return []any{}
		}
		return []any{g.fallback(t.item, depth+1)}
	case "map":
		if depth > 3 || g.oneIn(2) {
			return map[string]any{}
		}
		return map[string]any{"k": g.fallback(t.item, depth+1)}
	case "union":
		return g.fallback(t.branches[0], depth+1)
	}
	value := map[string]any{}
	if depth > 5 { // which does not fit if the record has fields
		return value
	}
	for _, f := range t.fields {
		value[f.name] = g.fallback(f.typ, depth+1)
	}
	return value
}

var madeTexts = []string{"", "a", "b", "key", "é", "a\"b", "\\", "\x00\x1f\n\t\b\f\r", "<&>é", "\u2028\u2029", "𝄞", "\x7f", "plain text", "<&>"}

func (g *avroMade) aText() string {
	if g.oneIn(400) {
		return "\xff\xfe"
	}
	return madeTexts[g.IntN(len(madeTexts))]
}

func (g *avroMade) whole(t *madeType) int64 {
	switch {
	case t.logical == "time-millis" && !g.oneIn(30):
		return g.Int64N(86400000)
	case t.logical == "time-micros" && !g.oneIn(30):
		return g.Int64N(86400000000)
	case strings.HasSuffix(t.logical, "-millis") && !g.oneIn(30):
		return g.Int64N(4e12)
	case strings.HasSuffix(t.logical, "-micros") && !g.oneIn(30):
		return g.Int64N(4e15)
	case g.oneIn(40):
		return []int64{math.MaxInt32, math.MinInt32, math.MaxInt64, math.MinInt64}[g.IntN(4)] >> map[string]int{"int": 32}[t.kind]
	}
	return g.Int64N(100000) - 1000
}

// body appends a value of a type.
func (g *avroMade) body(out []byte, t *madeType, depth int) []byte {
	if depth > 30 || len(out) > 2000 || g.spent > 2000 { // the rest is missing
		return out
	}
	g.spent++
	switch t.kind {
	case "boolean":
		return append(out, byte(g.IntN(2)))
	case "int", "long":
		return binary.AppendVarint(out, g.whole(t))
	case "float":
		return binary.LittleEndian.AppendUint32(out, math.Float32bits([]float32{0, 1.5, -0.1, 1e20, float32(math.NaN()), float32(math.Inf(1)), g.Float32()}[g.IntN(7)]))
	case "double":
		return binary.LittleEndian.AppendUint64(out, math.Float64bits([]float64{0, 1.5, -0.1, 1e300, math.NaN(), math.Inf(-1), g.NormFloat64()}[g.IntN(7)]))
	case "string":
		return append(out, textOf(g.aText())...)
	case "bytes":
		if t.logical == "big-decimal" {
			return append(out, textOf(textOf(string(g.octets(g.IntN(12))))+long(g.Int64N(20)-5))...)
		}
		return append(out, textOf(string(g.octets(g.IntN(20))))...)
	case "fixed":
		return append(out, g.octets(t.size)...)
	case "enum":
		return binary.AppendVarint(out, int64(g.IntN(len(t.symbols))))
	case "array", "map":
		return g.blocks(out, t, depth)
	case "union":
		i := g.IntN(len(t.branches))
		if depth > 8 {
			i = 0
		}
		return g.body(binary.AppendVarint(out, int64(i)), t.branches[i], depth+1)
	case "record":
		for _, f := range t.fields {
			out = g.body(out, f.typ, depth+1)
		}
	}
	return out
}

// blocks appends an array or map.
func (g *avroMade) blocks(out []byte, t *madeType, depth int) []byte {
	for range g.IntN(3) {
		n := g.IntN(4)
		if depth > 8 || n == 0 {
			break
		}
		var block []byte
		for range n {
			if t.kind == "map" {
				block = append(block, textOf(g.aText())...)
			}
			block = g.body(block, t.item, depth+1)
		}
		if g.oneIn(3) {
			out = binary.AppendVarint(binary.AppendVarint(out, int64(-n)), int64(len(block)))
		} else {
			out = binary.AppendVarint(out, int64(n))
		}
		out = append(out, block...)
	}
	return append(out, 0)
}

func (g *avroMade) octets(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(g.Uint32())
	}
	return b
}

// damage changes a body.
func (g *avroMade) damage(body []byte) []byte {
	if len(body) == 0 {
		return []byte{byte(g.Uint32())}
	}
	i := g.IntN(len(body))
	switch g.IntN(4) {
	case 0:
		return body[:i]
	case 1:
		return append(body, byte(g.Uint32()))
	case 2:
		body[i] ^= 1 << g.IntN(8)
	default:
		body[i] = byte(g.Uint32())
	}
	return body
}

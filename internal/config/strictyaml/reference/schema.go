package reference

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/sluice-go/sluice/internal/config/strictyaml"
)

// object is an object of a schema.
type object = map[string]any

// Patterns of scalars.
const (
	variablePattern = `\$\{`
	intPattern      = `^[+-]?[0-9]+$`
	durationPattern = `^[+]?(([0-9]+([.][0-9]*)?|[.][0-9]+)(ns|us|µs|μs|ms|s|m|h))+$`
	sizePattern     = `^([0-9]+([.][0-9]*)?|[.][0-9]+) *(B|kB|KB|MB|KiB|MiB)?$`
)

// Schema returns the file's JSON Schema, draft 2020-12. It refuses what the reader refuses because
// of a key, a type or a form; some values that depend on others only the reader refuses.
func (f *File) Schema() []byte {
	defs := object{}
	for _, path := range f.aliased() {
		defs[path] = f.schemaOf(path)
	}
	root := object{
		"$schema":     "https://json-schema.org/draft/2020-12/schema",
		"title":       f.Title,
		"description": f.Doc,
		"type":        "object",
		"$defs":       defs,
	}
	if len(f.variants) == 1 {
		f.mapping(root, "", f.variants[0].top)
	} else {
		then, otherwise := object{}, object{}
		f.mapping(otherwise, "", f.variants[0].top)
		f.mapping(then, "", f.variants[1].top)
		root["if"], root["then"], root["else"] = object{"required": []string{f.variants[1].Key}}, then, otherwise
	}
	text, err := json.MarshalIndent(root, "", "  ")
	if err != nil {
		panic(err) // it is made of maps and texts
	}
	return append(text, '\n')
}

// aliased are the paths whose keys other paths have too.
func (f *File) aliased() (list []string) {
	for _, a := range f.descriptions {
		if a.Alias != nil && *a.Alias != "" && !slices.Contains(list, *a.Alias) {
			list = append(list, *a.Alias)
		}
	}
	slices.Sort(list)
	return list
}

// schema returns the schema of a value at a path.
func (f *File) schema(path string) object {
	as := f.keysOf(path)
	if as != "" && slices.Contains(f.aliased(), as) && f.alikeWhole(path, as) {
		o := object{"$ref": "#/$defs/" + as}
		f.describe(o, path)
		return o
	}
	return f.schemaOf(path)
}

// alikeWhole reports whether a path accepts exactly what another does.
func (f *File) alikeWhole(path, as string) bool {
	a, b := f.shape(path), f.shape(as)
	return path == as || alike(a, b) && slices.Equal(a.Keys, b.Keys) && slices.Equal(a.Required, b.Required)
}

func (f *File) schemaOf(path string) object {
	s := f.shape(path)
	var forms []object
	if scalar := f.scalar(path); scalar != nil {
		forms = append(forms, f.scalarForms(path, scalar)...)
	}
	if s.Keys != nil {
		o := object{}
		f.mapping(o, path, s)
		forms = append(forms, o)
	}
	if s.Each {
		forms = append(forms, object{"type": "object", "additionalProperties": f.schema(join(f.keysOf(path), "*"))})
	}
	if s.MaxItems > 0 {
		forms = append(forms, object{"type": "array", "minItems": 1, "maxItems": s.MaxItems, "items": f.schema(join(f.keysOf(path), "[]"))})
	}
	o := object{"anyOf": forms}
	if len(forms) == 1 {
		o = forms[0]
	}
	f.describe(o, path)
	return o
}

// mapping adds the schema of a mapping with known keys.
func (f *File) mapping(o object, path string, s *strictyaml.Shape) {
	properties := object{}
	for _, key := range s.Keys {
		properties[key] = f.schema(join(f.keysOf(path), key))
	}
	o["type"], o["properties"], o["additionalProperties"] = "object", properties, false
	if len(s.Required) > 0 {
		o["required"] = s.Required
	}
	groups := s.OneOf
	if a := f.descriptions[f.keysOf(path)]; a != nil {
		groups = append(slices.Clone(groups), a.OneOf...)
	}
	var all []object
	for _, group := range groups {
		var one []object
		for _, key := range group {
			if slices.Contains(s.Keys, key) {
				one = append(one, object{"required": []string{key}})
			}
		}
		if len(one) > 0 {
			all = append(all, object{"oneOf": one})
		}
	}
	if len(all) > 0 {
		o["allOf"] = all
	}
}

// scalarForms returns the forms in which a scalar can be written: also as a text with variables.
func (f *File) scalarForms(path string, s *strictyaml.Scalar) []object {
	variable := object{"type": "string", "pattern": variablePattern}
	text := func(pattern string) object { return object{"type": "string", "pattern": pattern} }
	if a := f.description(path); a.Pattern != "" {
		forms := []object{{"type": []string{"string", "integer"}, "pattern": "^(" + a.Pattern + `)$|` + variablePattern}}
		if a.Values != nil {
			forms = append([]object{{"enum": a.Values}}, forms...)
		}
		return forms
	}
	switch s.Type {
	case strictyaml.Value:
		return []object{{}}
	case strictyaml.Bool:
		return []object{{"type": "boolean"}, {"enum": []string{"true", "false"}}, variable}
	case strictyaml.Int:
		return []object{{"type": "integer", "minimum": s.Least, "maximum": s.Most}, text(intPattern), variable}
	case strictyaml.Duration:
		return []object{text(durationPattern), variable}
	case strictyaml.Size:
		return []object{{"type": "integer", "minimum": s.Least, "maximum": s.Most}, text(sizePattern), variable}
	case "number":
		return []object{{"type": "number"}, text(`^[+-]?[0-9.]+([eE][+-]?[0-9]+)?$`), variable}
	}
	if s.Words != nil {
		return []object{{"enum": s.Words}, variable}
	}
	return []object{{"type": []string{"string", "number", "boolean"}, "minLength": 1}}
}

// describe adds what people and editors read.
func (f *File) describe(o object, path string) {
	a := f.description(path)
	if a.Doc == "" {
		return
	}
	parts := []string{a.Doc}
	if a.Text != "" {
		parts = append(parts, a.Text)
	}
	if bounds := f.bounds(path); bounds != "" {
		parts = append(parts, "From "+bounds+".")
	}
	if a.Absent != "" {
		parts = append(parts, "Default: "+a.Absent+".")
	}
	o["description"] = strings.Join(parts, " ")
	if a.Default != "" {
		o["default"] = typed(a.Default, f.typeOf(path))
	}
	if a.Example != "" {
		var value any
		if yaml.Unmarshal([]byte(a.Example), &value) != nil || strings.HasPrefix(a.Example, "${") {
			value = a.Example
		}
		o["examples"] = []any{value}
	}
}

// typed returns a value in JSON's type.
func typed(value string, t strictyaml.Type) any {
	switch t {
	case strictyaml.Bool:
		return value == "true"
	case strictyaml.Int:
		if n, err := strconv.Atoi(value); err == nil {
			return n
		}
	}
	return value
}

// bounds returns the bounds of a number, "10ms to 1h"; empty if there are none.
func (f *File) bounds(path string) string {
	s := f.scalar(path)
	if s == nil || s.Least == 0 && s.Most == 0 || s.Most == math.MaxInt64 {
		return ""
	}
	return shown(s.Type, s.Least) + " to " + shown(s.Type, s.Most)
}

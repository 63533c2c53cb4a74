package formats

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
)

// withoutInvalid returns the text of a schema without the logical types that are invalid. The
// specification ignores those, and the underlying type counts. The library refuses some of them,
// and would apply ours to the others, whatever the underlying type is.
func withoutInvalid(text string) string {
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	d.UseNumber()
	var schema any
	if d.Decode(&schema) != nil || d.More() || !dropInvalid(schema) {
		return text // the library says what is wrong with it
	}
	valid, err := json.Marshal(schema)
	if err != nil {
		return text
	}
	return string(valid)
}

// dropInvalid removes the invalid logical types in a schema, and reports whether there were any.
func dropInvalid(schema any) (dropped bool) {
	switch s := schema.(type) {
	case []any: // a union
		for _, branch := range s {
			dropped = dropInvalid(branch) || dropped
		}
	case map[string]any:
		if logical, annotated := s["logicalType"]; annotated && !validLogical(logical, s) {
			dropped = true
			for _, name := range []string{"logicalType", "precision", "scale"} {
				delete(s, name)
			}
		}
		for _, name := range []string{"type", "items", "values"} {
			dropped = dropInvalid(s[name]) || dropped
		}
		fields, _ := s["fields"].([]any)
		for _, field := range fields {
			dropped = dropInvalid(field) || dropped
		}
	}
	return dropped
}

// logicalBases are the types that a logical type is valid on. Other logical types are not known
// here.
var logicalBases = map[string][]string{
	"decimal": {"bytes", "fixed"}, "uuid": {"string", "fixed"}, "duration": {"fixed"},
	"date": {"int"}, "time-millis": {"int"}, "time-micros": {"long"},
	"timestamp-millis": {"long"}, "timestamp-micros": {"long"}, "timestamp-nanos": {"long"},
	"local-timestamp-millis": {"long"}, "local-timestamp-micros": {"long"}, "local-timestamp-nanos": {"long"},
}

// fixedSizes are the sizes that logical types need if they are fixed.
var fixedSizes = map[string]int{"uuid": 16, "duration": 12}

// validLogical reports whether a logical type is valid with the attributes beside it. The
// attributes of a record's field stand for those of its type, in a union for those of the type that
// is not null.
func validLogical(logical any, attributes map[string]any) bool {
	name, isText := logical.(string)
	if !isText {
		return false
	}
	bases, known := logicalBases[name]
	if !known {
		return true
	}
	base, size := baseOf(attributes)
	for _, valid := range bases {
		if base != valid {
			continue
		}
		switch needed := fixedSizes[name]; {
		case name == "decimal":
			return validDecimal(attributes, base, size)
		case base == "fixed" && size != needed:
			return false
		}
		return true
	}
	return false
}

// baseOf returns the type that a logical type is written beside, and its size if it is fixed.
func baseOf(attributes map[string]any) (base string, size int) {
	switch t := attributes["type"].(type) {
	case string:
		size, _ = wholeOf(attributes["size"])
		return t, size
	case map[string]any:
		return baseOf(t)
	case []any:
		for _, branch := range t {
			if branch != "null" {
				return baseOf(map[string]any{"type": branch})
			}
		}
	}
	return "", 0
}

// validDecimal reports whether precision and scale are those of a decimal.
func validDecimal(attributes map[string]any, base string, size int) bool {
	precision, ok := wholeOf(attributes["precision"])
	if !ok || precision <= 0 {
		return false
	}
	if base == "fixed" && precision > int(math.Floor(float64(8*size-1)*math.Log10(2))) {
		return false
	}
	scale, ok := wholeOf(attributes["scale"])
	_, given := attributes["scale"]
	return !given || ok && scale >= 0 && scale <= precision
}

// wholeOf returns a JSON value that is a whole number.
func wholeOf(value any) (int, bool) {
	text, isNumber := value.(json.Number)
	if !isNumber {
		return 0, false
	}
	n, err := strconv.ParseInt(text.String(), 10, 32)
	return int(n), err == nil
}

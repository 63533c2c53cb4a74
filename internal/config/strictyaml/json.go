package strictyaml

import (
	"encoding/json"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Value is the type of any value: a scalar, a list or a mapping, which [Node.JSON] reads.
const Value Type = "value"

// JSON reads any value as JSON, with the keys in the file's order. Variables are not replaced. A
// number, true, false and null without quotes are those of JSON; every other scalar is a text.
func (n Node) JSON(to *json.RawMessage) bool {
	if n.explored(Scalar{Type: Value}) {
		return false
	}
	before := n.file.failures
	text := n.appendJSON(nil)
	if n.file.failures > before {
		return false
	}
	*to = text
	return true
}

func (n Node) appendJSON(b []byte) []byte {
	switch {
	case n.IsMapping():
		b = append(b, '{')
		first := true
		n.each(func(key string, value Node) {
			if !first {
				b = append(b, ',')
			}
			first = false
			b = append(appendText(b, key), ':')
			b = value.appendJSON(b)
		})
		return append(b, '}')
	case n.IsList():
		b = append(b, '[')
		for i, item := range n.yaml.Content {
			if i > 0 {
				b = append(b, ',')
			}
			at := n.place
			at.Line, at.Column, at.Key = item.Line, item.Column, at.Key+"["+strconv.Itoa(i)+"]"
			b = Node{file: n.file, yaml: item, place: at}.appendJSON(b)
		}
		return append(b, ']')
	}
	return n.appendScalar(b)
}

func (n Node) appendScalar(b []byte) []byte {
	text := n.yaml.Value
	switch {
	case n.yaml.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0:
	case n.yaml.Tag == "!!null":
		return append(b, "null"...)
	case n.yaml.Tag == "!!bool":
		return append(b, strings.ToLower(text)...)
	case n.yaml.Tag == "!!int" || n.yaml.Tag == "!!float":
		if json.Valid([]byte(text)) {
			return append(b, text...)
		}
		n.Fail("%s: JSON has no such number: quote it if it is a text", n.Shown())
	}
	return appendText(b, text)
}

// appendText appends a text as a string of JSON.
func appendText(b []byte, text string) []byte {
	var out strings.Builder
	lines := json.NewEncoder(&out)
	lines.SetEscapeHTML(false)
	_ = lines.Encode(text) // of a text it cannot fail
	return append(b, strings.TrimSuffix(out.String(), "\n")...)
}

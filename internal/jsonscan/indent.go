package jsonscan

import (
	"bytes"
	"encoding/json"
)

// deepest is the depth of JSON that [Indent] indents: of deeper one most of the result would be
// indentation.
const deepest = 32

// Indent returns JSON on several lines, for people. Its numbers stay as they were sent. A text that
// is not JSON, or that is nested deeply, is returned as it is.
func Indent(text []byte) []byte {
	var lines bytes.Buffer
	if depthOf(text) > deepest || json.Indent(&lines, text, "", "  ") != nil {
		return text
	}
	return bytes.TrimSpace(lines.Bytes())
}

// depthOf is how deeply JSON is nested.
func depthOf(text []byte) (most int) {
	at, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			at++
			most = max(most, at)
		case c == '}' || c == ']':
			at--
		}
	}
	return most
}

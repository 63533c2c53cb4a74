package strictyaml

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// FailAt notes a problem inside of a text that was read by [Node.Verbatim]: at
// that byte of it. The place is the one in the file, however the text is quoted
// or folded there.
func (n Node) FailAt(offset int, format string, args ...any) bool {
	at := n.place
	at.Line, at.Column = n.locate(offset)
	n.file.fail(at, fmt.Errorf(format, args...))
	return false
}

// locate finds a byte of a scalar in the file. What the file has more than the
// text (quotes, escapes, indentation) is passed over; both have the characters
// that aren't space in the same order.
func (n Node) locate(offset int) (line, column int) {
	lines := strings.Split(string(n.file.source), "\n")
	line, column = n.yaml.Line, n.yaml.Column
	if n.yaml.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
		line, column = line+1, 1 // behind the | or >
	}
	reached := func() []rune {
		if line > len(lines) {
			return nil
		}
		return []rune(lines[line-1])
	}
	row := reached()
	for i, r := range n.yaml.Value {
		if i > offset {
			break
		}
		if strings.ContainsRune(" \t\n", r) {
			continue
		}
		for row != nil && (column > len(row) || row[column-1] != r) {
			if column++; column > len(row) {
				line, column = line+1, 1
				row = reached()
			}
		}
		if row == nil {
			return n.yaml.Line, n.yaml.Column
		}
		if i == offset {
			return line, column
		}
		column++
	}
	return line, column
}

package strictyaml

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// FailAt adds a problem at a byte of a text that was read by [Node.Verbatim], and
// returns false. The problem's place is the byte's position in the file, however the
// text is quoted or folded there.
func (n Node) FailAt(offset int, format string, args ...any) bool {
	at := n.place
	at.Line, at.Column = n.locate(offset)
	n.file.fail(at, fmt.Errorf(format, args...))
	return false
}

// locate returns the position of a byte of a scalar in the file. It skips what only the
// file has (quotes, escapes, indentation): file and text have the same characters other
// than space, in the same order.
func (n Node) locate(offset int) (line, column int) {
	lines := strings.Split(string(n.file.source), "\n")
	line, column = n.yaml.Line, n.yaml.Column
	if n.yaml.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
		line, column = line+1, 1 // after the | or >
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

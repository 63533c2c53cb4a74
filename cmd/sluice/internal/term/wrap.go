package term

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Wrap writes a text in lines of at most width characters, if its words allow it. The first line
// begins with something, and the others are indented as far.
func Wrap(w io.Writer, begin, text string, width int) {
	indent := strings.Repeat(" ", utf8.RuneCountInString(begin))
	line := begin
	empty := true
	for _, word := range strings.Fields(text) {
		if !empty && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width {
			fmt.Fprintln(w, line)
			line, empty = indent, true
		}
		if !empty {
			line += " "
		}
		line, empty = line+word, false
	}
	fmt.Fprintln(w, line)
}

package term

import (
	"io"
	"strings"
	"unicode/utf8"
)

// Table aligns rows in columns. A column is right-aligned if all its cells look like numbers.
type Table struct {
	rows [][]string // the header first
}

// NewTable makes a table with a header.
func NewTable(header ...string) *Table { return &Table{rows: [][]string{header}} }

// Add adds a row. It must have as many cells as the header.
func (t *Table) Add(cells ...string) { t.rows = append(t.rows, cells) }

// WriteTo writes the table.
func (t *Table) WriteTo(w io.Writer) (int64, error) {
	width := make([]int, len(t.rows[0]))
	right := make([]bool, len(width))
	for c := range width {
		right[c] = len(t.rows) > 1
		for r, row := range t.rows {
			width[c] = max(width[c], utf8.RuneCountInString(row[c]))
			right[c] = right[c] && (r == 0 || numeric(row[c]))
		}
	}
	var b strings.Builder
	for _, row := range t.rows {
		var line strings.Builder
		for c, cell := range row {
			if c > 0 {
				line.WriteString("  ")
			}
			pad := strings.Repeat(" ", width[c]-utf8.RuneCountInString(cell))
			if right[c] {
				line.WriteString(pad + cell)
			} else {
				line.WriteString(cell + pad)
			}
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	n, err := io.WriteString(w, b.String())
	return int64(n), err
}

func numeric(cell string) bool {
	digits := false
	for _, r := range cell {
		switch {
		case r >= '0' && r <= '9':
			digits = true
		case !strings.ContainsRune("-,.?", r):
			return false
		}
	}
	return digits || cell == "-" || cell == "?" || cell == ""
}

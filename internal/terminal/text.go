package terminal

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Count writes a number as people read it: 1,234,567.
func Count[N int | int64](n N) string {
	digits := strconv.FormatInt(int64(n), 10)
	sign := ""
	if digits[0] == '-' {
		sign, digits = "-", digits[1:]
	}
	var b strings.Builder
	b.WriteString(sign)
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(d)
	}
	return b.String()
}

// Plural is the count with the noun in the form that goes with it.
func Plural[N int | int64](n N, one, many string) string {
	if n == 1 {
		return Count(n) + " " + one
	}
	return Count(n) + " " + many
}

// Span writes a duration in the two largest units that matter: 1m5s, 340ms.
func Span(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Hour:
		return d.Round(time.Second).String()
	}
	return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
}

// Shorten makes one line of a text, of at most so many characters.
func Shorten(text string, most int) string {
	text = strings.Join(strings.FieldsFunc(strings.ToValidUTF8(text, "\uFFFD"), func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r)
	}), " ")
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	return string([]rune(text)[:most-1]) + "…"
}

// Table lines its rows up in columns. A cell that looks like a number stands
// at the right of its column if the whole column does.
type Table struct {
	rows [][]string // the header first
}

// NewTable begins a table with its header.
func NewTable(header ...string) *Table { return &Table{rows: [][]string{header}} }

// Add adds a row, which has as many cells as the header.
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

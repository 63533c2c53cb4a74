package reference

import (
	"fmt"
	"strings"
)

// Markdown returns the reference as a page. made says how the page is made.
func (f *File) Markdown(made string) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n<!-- Made by %s; do not edit. -->\n\n%s\n", f.Title, made, f.Doc)
	for _, section := range f.sections() {
		if section != "" {
			a := f.description(section)
			fmt.Fprintf(&b, "\n## %s\n\n%s", shownPath(section), strings.TrimSpace(a.Doc+" "+a.Text))
			if a.Absent != "" {
				fmt.Fprintf(&b, " Default: %s.", a.Absent)
			}
			b.WriteString("\n")
			if a.Example != "" {
				fmt.Fprintf(&b, "\nExample: %s\n", code(a.Example))
			}
		}
		b.WriteString("\n| key | value | default | meaning |\n|---|---|---|---|\n")
		for _, r := range f.rows(section) {
			f.markdownRow(&b, r)
		}
	}
	return []byte(b.String())
}

func (f *File) markdownRow(b *strings.Builder, r row) {
	a := f.description(r.path)
	absent := f.absent(r)
	if a.Default != "" && absent == a.Default {
		absent = code(absent)
	}
	meaning := strings.TrimSpace(a.Doc + " " + a.Text)
	if r.section != "" {
		meaning += fmt.Sprintf(" Keys: [%s](#%s).", shownPath(r.section), anchor(r.section))
	}
	if a.Example != "" {
		meaning += " Example: " + code(a.Example)
	}
	fmt.Fprintf(b, "| %s | %s | %s | %s |\n", code(r.name), cell(f.kind(r.path)), cell(absent), cell(meaning))
}

// code marks a text as code.
func code(text string) string { return "`" + text + "`" }

// cell is a text in a table's cell.
func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

// anchor is the link to a heading.
func anchor(section string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(shownPath(section)) {
		switch {
		case r == ' ' || r == '-':
			b.WriteByte('-')
		case r == '_' || r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			b.WriteRune(r)
		}
	}
	return b.String()
}

package reference

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-go/sluice/internal/config/strictyaml"
)

// A mapping with more keys than these has a section of its own.
const inlineKeys = 6

// row is a key in a section.
type row struct {
	path    string // that describes it
	name    string // below the section's path
	needed  bool   // it must be given
	section string // where its keys are; empty: in this section, or it has none
}

// sections returns the paths of the sections, in order.
func (f *File) sections() []string {
	var list []string
	var visit func(path string)
	visit = func(path string) {
		if path == "" || f.isSection(path) {
			list = append(list, path)
		}
		if f.isAlias(path) {
			return
		}
		for _, child := range f.children(path) {
			visit(child)
		}
	}
	visit("")
	return list
}

func (f *File) isSection(path string) bool {
	if f.isAlias(path) {
		return false
	}
	return slices.Contains(f.aliased(), path) && len(f.children(path)) > 0 || f.count(path) > inlineKeys
}

// count returns the number of keys below a path.
func (f *File) count(path string) int {
	if f.isAlias(path) {
		return 0
	}
	n := 0
	for _, child := range f.children(path) {
		n += 1 + f.count(child)
	}
	return n
}

// rows returns the keys of a section.
func (f *File) rows(section string) []row {
	var list []row
	var visit func(parent, prefix string)
	visit = func(parent, prefix string) {
		for _, child := range f.children(parent) {
			last := strings.TrimPrefix(child[len(f.keysOf(parent)):], ".")
			if last == "*" {
				last = "NAME"
			}
			r := row{path: child, name: join(prefix, last), needed: f.required(parent, child)}
			switch {
			case f.isAlias(child):
				r.section = *f.descriptions[child].Alias
				if r.section == "" {
					r.section = f.Title
				}
			case f.isSection(child):
				r.section = child
			}
			list = append(list, r)
			if r.section == "" {
				visit(child, r.name)
			}
		}
	}
	visit(section, "")
	return list
}

// Sections returns the names of the sections, each with its sentence.
func (f *File) Sections() (names, docs []string) {
	for _, path := range f.sections()[1:] {
		names, docs = append(names, shownPath(path)), append(docs, f.description(path).Doc)
	}
	return names, docs
}

// shownPath is a path for people.
func shownPath(path string) string { return strings.ReplaceAll(path, "*", "NAME") }

// kind returns the type of a key, in words.
func (f *File) kind(path string) string {
	shape, a := f.shape(path), f.description(path)
	var forms []string
	if s := f.scalar(path); s != nil {
		forms = append(forms, scalarKind(s, a, f.bounds(path)))
	}
	if shape.MaxItems > 0 {
		forms = append(forms, fmt.Sprintf("a list of up to %d", shape.MaxItems))
	}
	switch {
	case shape.Each:
		forms = append(forms, "names and values")
	case shape.Keys != nil:
		forms = append(forms, "keys")
	}
	return strings.Join(forms, ", or ")
}

func scalarKind(s *strictyaml.Scalar, a *keyDescription, bounds string) string {
	words := s.Words
	if a.Values != nil {
		words = a.Values
	}
	kind := "text"
	switch s.Type {
	case strictyaml.Bool:
		kind = "true or false"
	case strictyaml.Int:
		kind = "whole number"
	case strictyaml.Duration:
		kind = "duration"
	case strictyaml.Size:
		kind = "size"
	case strictyaml.Value:
		kind = "any value"
	case "number":
		kind = "number"
	}
	switch {
	case words != nil && a.Pattern != "":
		return strings.Join(words, ", ") + ", or a number"
	case words != nil:
		return strings.Join(words, ", ")
	case bounds != "":
		return kind + ", " + bounds
	case s.Secret:
		return kind + ", secrets from a variable"
	}
	return kind
}

// shown returns a number with its unit.
func shown(t strictyaml.Type, n int64) string {
	switch t {
	case strictyaml.Duration:
		text := time.Duration(n).String()
		if strings.HasSuffix(text, "m0s") {
			text = strings.TrimSuffix(text, "0s")
		}
		if strings.HasSuffix(text, "h0m") {
			text = strings.TrimSuffix(text, "0m")
		}
		return text
	case strictyaml.Size:
		for _, unit := range []struct {
			name string
			size int64
		}{{"MiB", 1 << 20}, {"KiB", 1 << 10}, {"MB", 1e6}} {
			if n > 0 && n%unit.size == 0 {
				return strconv.FormatInt(n/unit.size, 10) + unit.name
			}
		}
		if n == 0 {
			return "0"
		}
		return strconv.FormatInt(n, 10) + "B"
	}
	return strconv.FormatInt(n, 10)
}

// default returns what an absent key means.
func (f *File) absent(r row) string {
	a := f.description(r.path)
	switch {
	case r.needed:
		return "required"
	case a.Default != "":
		return a.Default
	}
	return a.Absent
}

// Text returns a section for a terminal with lines of up to width characters, or the overview if it
// is empty. It returns false if there is no such section.
func (f *File) Text(section string, width int) (string, bool) {
	path := strings.ReplaceAll(section, "NAME", "*")
	var b strings.Builder
	switch {
	case section == "":
		b.WriteString(strings.ToUpper(f.Title) + "\n\n")
		for paragraph := range strings.SplitSeq(f.Doc, "\n\n") {
			b.WriteString(wrap(paragraph, "", width) + "\n")
		}
	case !slices.Contains(f.sections(), path):
		return "", false
	default:
		b.WriteString(section + "\n")
		a := f.description(path)
		b.WriteString(wrap(strings.TrimSpace(a.Doc+" "+a.Text), "  ", width))
		b.WriteString(wrap(f.kind(path), "  ", width) + "\n")
	}
	for _, r := range f.rows(path) {
		f.writeRow(&b, r, width)
	}
	if section == "" {
		b.WriteString("\nSections:\n\n")
		names, docs := f.Sections()
		for i, name := range names {
			b.WriteString("  " + name + "\n" + wrap(docs[i], "      ", width))
		}
	}
	return b.String(), true
}

func (f *File) writeRow(b *strings.Builder, r row, width int) {
	a := f.description(r.path)
	b.WriteString("  " + r.name + "\n")
	line := f.kind(r.path)
	if absent := f.absent(r); absent == "required" {
		line += "; required"
	} else if absent != "" {
		line += "; default: " + absent
	}
	b.WriteString(wrap(strings.TrimSpace(a.Doc+" "+a.Text), "      ", width))
	b.WriteString(wrap("("+line+")", "      ", width))
	if r.section != "" {
		b.WriteString(wrap("Its keys: see "+shownPath(r.section), "      ", width))
	}
	if a.Example != "" {
		b.WriteString("      Example: " + a.Example + "\n")
	}
}

// wrap breaks a text into indented lines.
func wrap(text, indent string, width int) string {
	var b strings.Builder
	line := indent
	for _, word := range strings.Fields(text) {
		if len([]rune(line))+1+len([]rune(word)) > width && line != indent {
			b.WriteString(line + "\n")
			line = indent
		}
		if line != indent {
			line += " "
		}
		line += word
	}
	if line != indent {
		b.WriteString(line + "\n")
	}
	return b.String()
}

package strictyaml

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/sluice-go/sluice/internal/humanize"
)

// Literal returns the part of a scalar that is in the file itself: variables are
// replaced by their defaults, or by nothing.
func (n Node) Literal() string {
	n.exploredLiteral()
	text, _, _ := expand(n.yaml.Value, func(string) (string, bool) { return "", true })
	return text
}

// Verbatim reads a scalar without replacing variables.
func (n Node) Verbatim(to *string) bool {
	if n.explored(Scalar{Type: Verbatim}) {
		return false
	}
	if !n.scalar() {
		return false
	}
	*to = n.yaml.Value
	return true
}

func (n Node) scalar() bool {
	if n.yaml.Kind != yaml.ScalarNode {
		return n.Fail("%s where a single value should be", n.kind())
	}
	if n.empty() {
		return n.Fail("is empty")
	}
	return true
}

// Text reads a scalar, which must not be empty.
func (n Node) Text(to *string) bool {
	if n.explored(Scalar{Type: Text}) {
		return false
	}
	if !n.scalar() {
		return false
	}
	text, names, err := expand(n.yaml.Value, n.file.lookup)
	if err != nil {
		return n.Fail("%w", err)
	}
	if text == "" {
		return n.Fail("is empty (it comes from %s)", strings.Join(names, ", "))
	}
	*to = text
	return true
}

// Shown returns the value for an error message: quoted and shortened, or the names of
// the variables from which it comes.
func (n Node) Shown() string {
	if _, names, err := expand(n.yaml.Value, func(string) (string, bool) { return "x", true }); err == nil && len(names) > 0 {
		return "the value from " + strings.Join(names, ", ")
	}
	text := []rune(n.yaml.Value)
	if len(text) > 40 {
		return strconv.Quote(string(text[:40]) + "…")
	}
	return strconv.Quote(string(text))
}

// OneOf reads a scalar that must be one of some words.
func (n Node) OneOf(to *string, words ...string) bool {
	if n.explored(Scalar{Type: Text, Words: words}) {
		return false
	}
	var text string
	if !n.Text(&text) {
		return false
	}
	for _, w := range words {
		if text == w {
			*to = w
			return true
		}
	}
	if near := humanize.Nearest(text, words); near != "" {
		return n.Fail("%s: did you mean %s?", n.Shown(), near)
	}
	return n.Fail("%s: write one of %s", n.Shown(), strings.Join(words, ", "))
}

// Bool reads true or false.
func (n Node) Bool(to *bool) bool {
	if n.explored(Scalar{Type: Bool}) {
		return false
	}
	var word string
	if !n.OneOf(&word, "true", "false") {
		return false
	}
	*to = word == "true"
	return true
}

// Int reads a whole number from least to most.
func (n Node) Int(to *int, least, most int) bool {
	if n.explored(Scalar{Type: Int, Least: int64(least), Most: int64(most)}) {
		return false
	}
	var text string
	if !n.Text(&text) {
		return false
	}
	i, err := strconv.Atoi(text)
	if err != nil || i < least || i > most {
		return n.Fail("%s: write a whole number from %d to %d", n.Shown(), least, most)
	}
	*to = i
	return true
}

// Duration reads a positive duration, in Go's notation.
func (n Node) Duration(to *time.Duration) bool {
	if n.explored(Scalar{Type: Duration, Least: 1, Most: math.MaxInt64}) {
		return false
	}
	var text string
	if !n.Text(&text) {
		return false
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return n.Fail("%s: write a duration with its unit, such as 500ms, 30s or 1m30s", n.Shown())
	}
	if d <= 0 {
		return n.Fail("%s: must be more than zero", n.Shown())
	}
	*to = d
	return true
}

// DurationIn reads a duration from least to most, in Go's notation.
func (n Node) DurationIn(to *time.Duration, least, most time.Duration) bool {
	if n.explored(Scalar{Type: Duration, Least: int64(least), Most: int64(most)}) {
		return false
	}
	var d time.Duration
	if !n.Duration(&d) {
		return false
	}
	if d < least || d > most {
		return n.Fail("%s: write a duration from %v to %v", n.Shown(), least, most)
	}
	*to = d
	return true
}

var units = map[string]float64{"": 1, "B": 1, "kB": 1e3, "KB": 1e3, "MB": 1e6, "KiB": 1 << 10, "MiB": 1 << 20}

// Size reads a number of bytes up to most, with or without a unit.
func (n Node) Size(to *int, most int) bool {
	if n.explored(Scalar{Type: Size, Most: int64(most)}) {
		return false
	}
	var text string
	if !n.Text(&text) {
		return false
	}
	digits := strings.TrimRight(text, "BKMik ")
	number, err := strconv.ParseFloat(digits, 64)
	unit, ok := units[strings.TrimSpace(text[len(digits):])]
	if bytes := number * unit; err == nil && ok && bytes >= 0 && bytes <= float64(most) && bytes == math.Trunc(bytes) {
		*to = int(bytes)
		return true
	}
	return n.Fail("%s: write a number of bytes up to %d, such as 4096, 256KiB or 1MB", n.Shown(), most)
}

// SizeIn reads a number of bytes from least to most, with or without a unit.
func (n Node) SizeIn(to *int, least, most int) bool {
	if n.explored(Scalar{Type: Size, Least: int64(least), Most: int64(most)}) {
		return false
	}
	var size int
	if !n.Size(&size, most) {
		return false
	}
	if size < least {
		return n.Fail("%s: write a number of bytes from %d to %d", n.Shown(), least, most)
	}
	*to = size
	return true
}

// expand replaces the variables in text, and returns their names as ${NAME}.
func expand(text string, lookup func(string) (string, bool)) (string, []string, error) {
	var b strings.Builder
	var names []string
	for {
		before, rest, ok := strings.Cut(text, "${")
		if !ok {
			b.WriteString(text)
			return b.String(), names, nil
		}
		if before, escaped := strings.CutSuffix(before, "$"); escaped {
			b.WriteString(before + "${")
			text = rest
			continue
		}
		inside, after, ok := strings.Cut(rest, "}")
		if !ok {
			return "", nil, errors.New("${ has no } after it (write $${ for a literal ${)")
		}
		name, fallback, hasFallback := strings.Cut(inside, ":-")
		if !isName(name) {
			return "", nil, fmt.Errorf("${%s}: not the name of a variable (write $${ for a literal ${)", inside)
		}
		value, set := lookup(name)
		// Values that come from files often have a trailing newline.
		value = strings.TrimRight(value, "\r\n")
		if value == "" && hasFallback {
			value, set = fallback, true
		}
		if !set {
			return "", nil, &UnsetError{name}
		}
		b.WriteString(before + value)
		names = append(names, "${"+name+"}")
		text = after
	}
}

func isName(s string) bool {
	for i, c := range []byte(s) {
		letter := c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}

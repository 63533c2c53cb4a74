package pipeline

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/humanize"
	"github.com/sluice-go/sluice/pipeline/internal/jsonpick"
)

// call is the value of a function of other values of the event, as in concat(body.a, "-", key).
type call struct {
	function  string
	arguments []origin
}

// maxArguments bounds the arguments of a function, maxDepth how deep calls are in others.
const (
	maxArguments = 20
	maxDepth     = 10
)

// function makes a value of texts. A nil result is a missing value.
type function struct {
	least, most int // arguments
	apply       func(texts []string) (*string, error)
	check       func(arguments []origin) error // nil: each argument may come from the event
}

// functions are those of texts; a number or boolean counts as its text, and where an argument is
// missing or null so is the value. coalesce is not among them: it keeps the kind of its value.
var functions = map[string]function{
	"concat":  {least: 2, most: maxArguments, apply: func(texts []string) (*string, error) { return new(strings.Join(texts, "")), nil }},
	"lower":   {least: 1, most: 1, apply: func(texts []string) (*string, error) { return new(strings.ToLower(texts[0])), nil }},
	"upper":   {least: 1, most: 1, apply: func(texts []string) (*string, error) { return new(strings.ToUpper(texts[0])), nil }},
	"trim":    {least: 1, most: 1, apply: func(texts []string) (*string, error) { return new(strings.TrimSpace(texts[0])), nil }},
	"replace": {least: 3, most: 3, apply: replaceText, check: literalsFrom(1)},
	"part":    {least: 3, most: 3, apply: textPart, check: checkPart},
}

const coalesce = "coalesce"

// maxText bounds the result of replace, which can be longer than the body by its own length.
const maxText = 16 << 20

func replaceText(texts []string) (*string, error) {
	if len(texts[0])+strings.Count(texts[0], texts[1])*len(texts[2]) > maxText {
		return nil, fmt.Errorf("makes more than %d bytes", maxText)
	}
	return new(strings.ReplaceAll(texts[0], texts[1], texts[2])), nil
}

// textPart returns the part of a text between separators whose number is the last argument, from 1;
// -1 is the last part.
func textPart(texts []string) (*string, error) {
	parts := strings.Split(texts[0], texts[1])
	i, err := strconv.Atoi(texts[2])
	if i < 0 {
		i += len(parts) + 1
	}
	if err != nil || i < 1 || i > len(parts) {
		return nil, err
	}
	return &parts[i-1], nil
}

// literalsFrom checks that the arguments from one on are texts or numbers in the file, and that the
// first of them is not empty.
func literalsFrom(first int) func([]origin) error {
	return func(arguments []origin) error {
		for i, a := range arguments[first:] {
			if a.field != fieldLiteral || i == 0 && a.name == "" {
				return fmt.Errorf("argument %d must be a text such as \"-\"", first+i+1)
			}
		}
		return nil
	}
}

func checkPart(arguments []origin) error {
	if err := literalsFrom(1)(arguments); err != nil {
		return err
	}
	if n, err := strconv.Atoi(arguments[2].name); err != nil || n == 0 {
		return errors.New("argument 3 must be the number of a part: 1 for the first, -1 for the last")
	}
	return nil
}

// parseCall parses a call, of which text begins with the function's name and a parenthesis.
func parseCall(text string) (origin, error) {
	p := &callParser{rest: text}
	from, err := p.value(0)
	if err == nil && p.rest != "" {
		err = fmt.Errorf("%q follows the end", p.rest)
	}
	if err != nil {
		return origin{}, fmt.Errorf("%s: %w", text, err)
	}
	return from, nil
}

// isCall reports whether a text begins like a call.
func isCall(text string) bool {
	name, _, ok := strings.Cut(text, "(")
	return ok && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_") == "" && name != ""
}

type callParser struct{ rest string }

// value parses an argument: a call, a literal, or the place of a value.
func (p *callParser) value(depth int) (origin, error) {
	p.rest = strings.TrimLeft(p.rest, " ")
	switch {
	case depth > maxDepth:
		return origin{}, fmt.Errorf("more than %d calls in each other", maxDepth)
	case isCall(p.rest):
		return p.call(depth)
	case p.end() == 0:
		return origin{}, errors.New("an argument is missing")
	case p.rest[0] == '"':
		d := json.NewDecoder(strings.NewReader(p.rest))
		var literal string
		if err := d.Decode(&literal); err != nil {
			return origin{}, fmt.Errorf("%s: not a text in double quotes", p.rest)
		}
		p.rest = p.rest[d.InputOffset():]
		return origin{field: fieldLiteral, name: literal}, nil
	}
	word := strings.TrimSpace(p.rest[:p.end()])
	p.rest = p.rest[p.end():]
	if _, err := strconv.ParseInt(word, 10, 64); err == nil {
		return origin{field: fieldLiteral, name: word}, nil
	}
	from, err := parsePlace(word)
	if err == nil && from.field == fieldBody {
		err = errors.New("the whole body cannot be an argument: write body.PATH")
	}
	return from, err
}

// end returns where the argument ends: at a comma or parenthesis that is in no brackets.
func (p *callParser) end() int {
	quoted := false
	for i := 0; i < len(p.rest); i++ {
		switch c := p.rest[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case !quoted && (c == ',' || c == ')'):
			return i
		}
	}
	return len(p.rest)
}

func (p *callParser) call(depth int) (origin, error) {
	name, rest, _ := strings.Cut(p.rest, "(")
	p.rest = rest
	f, known := functions[name]
	if name == coalesce {
		f, known = function{least: 2, most: maxArguments}, true
	}
	if !known {
		names := functionNames()
		if near := humanize.Nearest(name, names); near != "" {
			return origin{}, fmt.Errorf("there is no function %s, did you mean %s?", name, near)
		}
		return origin{}, fmt.Errorf("there is no function %s: there are %s", name, strings.Join(names, ", "))
	}
	c := &call{function: name}
	for {
		a, err := p.value(depth + 1)
		if err != nil {
			return origin{}, err
		}
		c.arguments = append(c.arguments, a)
		p.rest = strings.TrimLeft(p.rest, " ")
		if rest, ok := strings.CutPrefix(p.rest, ","); ok && len(c.arguments) <= maxArguments {
			p.rest = rest
			continue
		}
		break
	}
	rest, closed := strings.CutPrefix(p.rest, ")")
	n := len(c.arguments)
	switch p.rest = rest; {
	case !closed:
		return origin{}, fmt.Errorf("%s( is not closed", name)
	case n < f.least || n > f.most:
		return origin{}, fmt.Errorf("%s has %s, not %d", name, argumentCount(f), n)
	case f.check != nil:
		if err := f.check(c.arguments); err != nil {
			return origin{}, fmt.Errorf("%s: %w", name, err)
		}
	}
	if !slices.ContainsFunc(c.arguments, func(a origin) bool { return a.field != fieldLiteral }) {
		return origin{}, fmt.Errorf("%s has no value of the event: write default for a fixed value", name)
	}
	return origin{field: fieldCall, call: c}, nil
}

func argumentCount(f function) string {
	switch {
	case f.least == f.most && f.least == 1:
		return "one argument"
	case f.least == f.most:
		return fmt.Sprintf("%d arguments", f.least)
	}
	return fmt.Sprintf("%d to %d arguments", f.least, f.most)
}

func isFunction(name string) bool { return name == coalesce || functions[name].apply != nil }

func functionNames() []string {
	names := []string{coalesce}
	for name := range functions {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// String returns the form that parseCall parses.
func (c *call) String() string {
	list := make([]string, len(c.arguments))
	for i, a := range c.arguments {
		list[i] = a.String()
	}
	return c.function + "(" + strings.Join(list, ", ") + ")"
}

// scalar returns the value for an event.
func (c *call) scalar(e *sluice.Event, picked []jsonpick.Value) (scalar, error) {
	if c.function == coalesce {
		var last scalar
		for _, a := range c.arguments {
			v, err := a.scalar(e, picked)
			if err != nil || v.kind != missing && v.kind != null {
				return v, err
			}
			last = v
		}
		return last, nil
	}
	texts := make([]string, len(c.arguments))
	for i, a := range c.arguments {
		v, err := a.scalar(e, picked)
		switch {
		case err != nil || v.kind == missing || v.kind == null:
			return v, err
		case v.kind == binary || v.kind == compound:
			return scalar{}, fmt.Errorf("%s: %s where a text, number or boolean should be", a, v)
		}
		texts[i] = string(v.text)
	}
	result, err := functions[c.function].apply(texts)
	if err != nil || result == nil {
		return scalar{}, err
	}
	return scalar{kind: text, text: []byte(*result)}, nil
}

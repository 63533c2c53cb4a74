package reference

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-go/sluice/internal/config/strictyaml"
)

// CheckBounds compares the bounds that the pages state with the reader: the values at the bounds
// must be accepted, and those just outside refused. beside has the lines without which a file may
// not have a key. It returns how many bounds it has compared.
func (f *File) CheckBounds(read func(strictyaml.Node), beside map[string]string) (compared int, problems []string) {
	for _, path := range slices.Sorted(maps.Keys(f.shapes)) {
		shape := f.shapes[path]
		for _, t := range trials(f.scalar(path), shape.MaxItems) {
			compared++
			refused := slices.ContainsFunc(f.variants, func(v variant) bool {
				top, _, _ := strings.Cut(path, ".")
				return slices.Contains(v.top.Keys, strings.TrimSuffix(top, "[]")) && refuses(path, v.Seed+"\n"+beside[path], t.value, read)
			})
			if refused == t.inside {
				problems = append(problems, fmt.Sprintf("%s: %.60s: refused %v, stated %s", path, t.value, refused, f.kind(path)))
			}
		}
	}
	return compared, problems
}

// trial is a value at a bound, or just outside.
type trial struct {
	value  string
	inside bool
}

func trials(s *strictyaml.Scalar, items int) (list []trial) {
	if s != nil && (s.Least != 0 || s.Most != 0) {
		list = append(list, trial{number(s.Type, s.Least-1), false})
		if s.Most < math.MaxInt64 {
			list = append(list, trial{number(s.Type, s.Least), true}, trial{number(s.Type, s.Most), true}, trial{number(s.Type, s.Most+1), false})
		}
	}
	if items > 0 {
		list = append(list, trial{"[]", false}, trial{"[" + strings.Repeat("x, ", items) + "x]", false})
	}
	return list
}

func number(t strictyaml.Type, n int64) string {
	if t == strictyaml.Duration {
		return time.Duration(n).String()
	}
	return strconv.FormatInt(n, 10)
}

// refuses reports whether the reader has a problem with the value at a path of a file that has no
// other lines than these.
func refuses(path, lines, value string, read func(strictyaml.Node)) bool {
	steps := strings.Split(strings.NewReplacer("[]", ".[]", "*", "key").Replace(path), ".")
	for _, step := range slices.Backward(steps[1:]) {
		if step == "[]" {
			value = "[" + value + "]"
		} else {
			value = "{" + step + ": " + value + "}"
		}
	}
	text := steps[0] + ": " + value + "\n"
	for line := range strings.Lines(lines) {
		if !strings.HasPrefix(line, steps[0]+":") {
			text += strings.TrimSuffix(line, "\n") + "\n"
		}
	}
	err := strictyaml.Read("", []byte(text), func(string) (string, bool) { return "x", true }, read)
	list, _ := errors.AsType[strictyaml.Problems](err)
	at := strings.NewReplacer("[]", "[0]", "*", "key").Replace(path)
	return slices.ContainsFunc(list, func(p *strictyaml.Problem) bool { return p.Place.Key == at })
}

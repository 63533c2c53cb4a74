package jsonpick

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Path is a path from the top of a document to a value in it. The empty path is the
// document itself.
type Path []Step

// Step is one step of a [Path]: into an object by key, or into an array.
type Step struct {
	Key   string
	Index int // if Array
	Array bool
}

// maxSteps is the maximum length of a path, maxIndex the maximum array index in it.
const (
	maxSteps = 64
	maxIndex = 1 << 20
)

// ParsePath parses a path without the name of the document before it: ".key" for keys
// of letters, digits, _ and -, `["any key"]` (a JSON string) for all keys, and "[0]"
// for array elements.
func ParsePath(text string) (Path, error) {
	var path Path
	for rest := text; rest != ""; {
		if len(path) == maxSteps {
			return nil, fmt.Errorf("more than %d steps", maxSteps)
		}
		var step Step
		var err error
		switch {
		case rest[0] == '.':
			step, rest, err = keyStep(rest[1:])
		case strings.HasPrefix(rest, `["`):
			step, rest, err = quotedStep(rest[1:])
		case rest[0] == '[':
			step, rest, err = indexStep(rest[1:])
		default:
			err = fmt.Errorf("%q: a step begins with . or [", rest)
		}
		if err != nil {
			return nil, err
		}
		path = append(path, step)
	}
	return path, nil
}

func keyStep(text string) (Step, string, error) {
	n := strings.IndexFunc(text, func(r rune) bool { return !plain(r) })
	if n < 0 {
		n = len(text)
	}
	if n == 0 {
		return Step{}, "", errors.New(`a key must follow the dot (letters, digits, _ and -; any other key is written ["key"])`)
	}
	return Step{Key: text[:n]}, text[n:], nil
}

func quotedStep(text string) (Step, string, error) {
	d := json.NewDecoder(strings.NewReader(text))
	var key string
	if err := d.Decode(&key); err != nil {
		return Step{}, "", fmt.Errorf("[%s: not a key in double quotes", text)
	}
	rest, ok := strings.CutPrefix(text[d.InputOffset():], "]")
	if !ok {
		return Step{}, "", fmt.Errorf("[%s: ] is missing", text)
	}
	return Step{Key: key}, rest, nil
}

func indexStep(text string) (Step, string, error) {
	digits, rest, ok := strings.Cut(text, "]")
	if !ok {
		return Step{}, "", fmt.Errorf("[%s: ] is missing", text)
	}
	i, err := strconv.ParseUint(digits, 10, 32)
	if err != nil || i > maxIndex {
		return Step{}, "", fmt.Errorf(`[%s]: an index is a number from 0 to %d, a key is written in double quotes`, digits, maxIndex)
	}
	return Step{Index: int(i), Array: true}, rest, nil
}

func plain(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-' || r >= 0x80
}

// String returns the path in the form that [ParsePath] reads.
func (p Path) String() string {
	var b strings.Builder
	for _, s := range p {
		switch {
		case s.Array:
			fmt.Fprintf(&b, "[%d]", s.Index)
		case s.Key != "" && strings.IndexFunc(s.Key, func(r rune) bool { return !plain(r) }) < 0:
			b.WriteString("." + s.Key)
		default:
			quoted, _ := json.Marshal(s.Key)
			b.WriteString("[" + string(quoted) + "]")
		}
	}
	return b.String()
}

package strictyaml

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestExpand(t *testing.T) {
	lookup := func(name string) (string, bool) {
		value, ok := map[string]string{"A": "1", "B_2": "x${A}\r\n", "EMPTY": ""}[name]
		return value, ok
	}
	for text, want := range map[string]string{
		"plain $Default $A": "plain $Default $A",
		"${A}${A}":          "11 from ${A} ${A}",
		"a${B_2}b":          "ax${A}b from ${B_2}", // values are not looked into again
		"${EMPTY}":          " from ${EMPTY}",
		"${EMPTY:-d}":       "d from ${EMPTY}",
		"${NONE:-}":         " from ${NONE}",
		"${NONE:-a:-b}":     "a:-b from ${NONE}",
		"$${A} $$${A}":      "${A} $${A}",
		"${NONE}":           "error: the environment variable NONE is not set",
		"${A":               "error: ${ has no } after it (write $${ for a literal ${)",
		"${}":               "error: ${}: not the name of a variable (write $${ for a literal ${)",
		"${1A}":             "error: ${1A}: not the name of a variable (write $${ for a literal ${)",
	} {
		got, names, err := expand(text, lookup)
		if len(names) > 0 {
			got += " from " + strings.Join(names, " ")
		}
		if err != nil {
			got = "error: " + err.Error()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

// Each problem can be got at, with its place and without.
func TestProblems(t *testing.T) {
	cause := errors.New("cause")
	err := Read("f.yaml", []byte("b: 1\na: 2\n"), nil, func(n Node) {
		n.Object(Keys{
			"a": func(n Node) { n.Fail("bad: %w", cause) },
			"b": func(n Node) { n.Fail("worse") },
		})
	})
	var one *Problem
	if !errors.Is(err, cause) || !errors.As(err, &one) || fmt.Sprint(one.Place) != "f.yaml:1:1: b" {
		t.Errorf("got %v, the first at %v", err, one.Place)
	}
	if want := "f.yaml:1:1: b: worse\nf.yaml:2:1: a: bad: cause"; err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

// TestDigest: the order of keys, quotes and where a text comes from make no difference.
func TestDigest(t *testing.T) {
	digest := func(text string) (digest string) {
		t.Helper()
		err := Read("f.yaml", []byte(text), func(string) (string, bool) { return "hunter2", true }, func(n Node) { digest = n.Digest() })
		if err != nil {
			t.Fatal(err)
		}
		return digest
	}
	want := digest("a: {b: 1, c: hunter2}\nd: x\n")
	if got := digest("d: 'x'\na:\n  c: ${SECRET}\n  b: \"1\"\n"); got != want || strings.Contains(got, "hunter2") {
		t.Errorf("the same values have the digests %s and %s", want, got)
	}
	for _, other := range []string{"a: {b: 1, c: x}\nd: x\n", "a: {b: 1, c: hunter2}\n", "a: {b: 1, c: hunter2, d: x}\n", "a: '{b: 1, c: hunter2}'\nd: x\n", "a: {b: 'x', c: hunter2}\nd: 1\n"} {
		if digest(other) == want {
			t.Errorf("%q has the same digest", other)
		}
	}
}

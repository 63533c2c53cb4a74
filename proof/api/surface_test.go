package api

import (
	"os"
	"slices"
	"strings"
	"testing"
)

const update = "UPDATE=1 go test ./proof/api"

// TestSurface: no exported name goes, changes or is added without a change of api.txt, and there
// are at most 240 in the root, 300 in driver and 1,600 in all.
func TestSurface(t *testing.T) {
	now, names, err := surface("../..")
	if err != nil {
		t.Fatal(err)
	}
	const path = "api.txt"
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(path, []byte(strings.Join(now, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	for _, line := range breaks(before, now) {
		t.Errorf("breaks programs: %s: if that is meant, run %s, and say so in CHANGELOG.md", line, update)
	}
	if !t.Failed() && !slices.Equal(before, now) {
		t.Errorf("%d names, of which %s lists %d: run %s", len(now), path, len(before), update)
	}
	all := 0
	for _, n := range names {
		all += n
	}
	t.Logf("%d names in the root, %d in driver, %d in all", names["."], names["driver"], all)
	if names["."] > 240 || names["driver"] > 300 || all > 1600 {
		t.Errorf("%d names in the root, %d in driver, %d in all: at most 240, 300 and 1,600", names["."], names["driver"], all)
	}
}

// TestBreaks: what breaks programs is found, and what does not is none.
func TestBreaks(t *testing.T) {
	before := []string{
		"p: Reader: Read func() int", "p: T: Old string", "p: func F(a int) error", "p: type Reader interface", "p: type T struct",
	}
	for what, c := range map[string]struct {
		change func([]string) []string
		want   string
	}{
		"nothing":                     {func(l []string) []string { return l }, ""},
		"a new function":              {func(l []string) []string { return append(l, "p: func G()") }, ""},
		"a new field":                 {func(l []string) []string { return append(l, "p: T: New int") }, ""},
		"another type of a parameter": {func(l []string) []string { return append(slices.Delete(l, 2, 3), "p: func F(a int64) error") }, "p: func F(a int) error"},
		"a field that is gone":        {func(l []string) []string { return slices.Delete(l, 1, 2) }, "p: T: Old string"},
		"a new method of an interface": {func(l []string) []string { return append(l, "p: Reader: Close func()") },
			"new in an interface: p: Reader: Close func()"},
	} {
		now := c.change(slices.Clone(before))
		slices.Sort(now)
		if got := strings.Join(breaks(before, now), "; "); got != c.want {
			t.Errorf("%s: got %q, want %q", what, got, c.want)
		}
	}
}

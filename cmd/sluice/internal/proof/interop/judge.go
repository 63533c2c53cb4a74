package interop

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// judge compares results with the expected ones.
type judge struct {
	t         *testing.T
	expected  map[string]string // the tests that fail, with the reason
	sometimes []string          // those of them that may pass
	leftOut   *regexp.Regexp    // tests that do not run; nil: none
	results   map[string]string // by name: pass, fail or skip
	output    map[string]*strings.Builder
}

// took logs how long a slow test took.
func (j *judge) took(name string, seconds float64) {
	if seconds >= 10 {
		j.t.Logf("%s took %.0f s", name, seconds)
	}
}

// conclude reports what differs from the expected results.
func (j *judge) conclude(atLeast int) {
	counts := make(map[string]int)
	for name, result := range j.results {
		counts[result]++
		reason, expected := j.expected[name]
		switch {
		case result == "fail" && expected:
			j.t.Logf("%s failed as expected: %s", name, reason)
		case result == "fail":
			j.t.Errorf("%s failed:\n%s", name, tail(j.output[name].String()))
		case result == "skip":
			j.t.Logf("%s was skipped:\n%s", name, tail(j.output[name].String()))
		case expected && !slices.Contains(j.sometimes, name):
			j.t.Errorf("%s passes: take it out of the list of expected failures", name)
		}
	}
	for name := range j.expected {
		if j.results[name] == "" && (j.leftOut == nil || !j.leftOut.MatchString(path.Base(name))) {
			j.t.Errorf("%s, an expected failure, did not run", name)
		}
	}
	j.t.Logf("%d tests of the client passed, %d failed, %d were skipped", counts["pass"], counts["fail"], counts["skip"])
	if counts["pass"] < atLeast {
		j.t.Errorf("%d tests passed, and at least %d must", counts["pass"], atLeast)
	}
}

// tail is the end of a test's output.
func tail(text string) string { return text[max(0, len(text)-4000):] }

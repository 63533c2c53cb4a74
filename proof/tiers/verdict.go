//go:build unix

package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
)

// repeats is how often a failure may be repeated, alone.
const repeats = 3

// flake is a test that failed and then passed alone.
type flake struct {
	Package  string  `json:"package"`
	Test     string  `json:"test"`
	Stage    string  `json:"stage"`
	Repeats  int     `json:"repeats"`            // until it passed
	Pressure string  `json:"pressure,omitempty"` // of the machine after the failure: avg10 of /proc/pressure
	Output   string  `json:"output"`             // the end of that of the failure
	Seconds  float64 `json:"seconds"`            // of the failure
}

func (f flake) name() string { return short(f.Package) + "." + f.Test }

// judge decides what becomes of a package's tests. A failure is red at once, except that of a test
// that depends on real time or on a server and that is no verdict (see package need): such a test
// runs again, alone, and if it passes within [repeats] times it is flaky.
func (r *run) judge(ctx context.Context, s stage, o *outcome, log io.Writer, command []string, path string, p *packageResult) {
	failed, unfinished := p.failures()
	o.count(path, p)
	if p.action == "pass" || p.action == "skip" {
		return
	}
	if len(failed)+len(unfinished) == 0 || ctx.Err() != nil {
		r.red(s, o, short(path), &testResult{output: p.output, action: "fail"})
		return
	}
	if p.crash != "" {
		r.red(s, o, short(path)+": "+p.crash, p.joined(failed[0]))
		return
	}
	healed := true
	for _, name := range failed {
		if !p.repeatable(name) {
			r.red(s, o, short(path)+"."+name, p.joined(name))
			healed = false
			continue
		}
		n := r.repeat(ctx, s, log, command, path, name, repeats)
		if n == 0 {
			r.red(s, o, fmt.Sprintf("%s.%s, and each of %d times alone", short(path), name, repeats), p.joined(name))
			healed = false
			continue
		}
		t := p.joined(name)
		o.flaky = append(o.flaky, flake{Package: path, Test: name, Stage: s.name, Repeats: n, Pressure: t.pressure, Output: lastLines(t.output.String(), 40), Seconds: t.seconds})
		r.say("%-16s FLAKY %s.%s: passed alone the %s time; pressure %s\n%s", s.name, short(path), name, ordinal(n), t.pressure, lastLines(t.output.String(), 40))
	}
	if !healed || p.complete {
		return
	}
	r.judgeRest(ctx, s, o, log, command, path, p)
}

// judgeRest runs the tests of a package that its process has not ended, in a second one. There a
// failure is red.
func (r *run) judgeRest(ctx context.Context, s stage, o *outcome, log io.Writer, command []string, path string, p *packageResult) {
	var done []string
	for name, t := range p.tests {
		if !strings.Contains(name, "/") && t.action != "" {
			done = append(done, name)
		}
	}
	slices.Sort(done)
	skip := exactly(done)
	for _, word := range command {
		if before, found := strings.CutPrefix(word, "-skip="); found {
			skip = before + "|" + skip
		}
	}
	rs := results{}
	if err := r.runTests(ctx, s, rs, log, append(slices.Clone(command), "-skip="+skip, path)); err != nil {
		o.red = append(o.red, err.Error())
	}
	r.keepRecord(rs)
	for path, p := range rs {
		failed, unfinished := p.failures()
		if p.action == "fail" && len(failed)+len(unfinished) == 0 {
			r.red(s, o, short(path)+", in the second process", &testResult{output: p.output})
		}
		for _, name := range append(failed, unfinished...) {
			r.red(s, o, short(path)+"."+name+", in the second process", p.joined(name))
		}
		o.count(path, p)
	}
}

// red notes a failure and prints what the test said.
func (r *run) red(s stage, o *outcome, what string, t *testResult) {
	o.red = append(o.red, what)
	r.say("%-16s RED %s\n%s", s.name, what, lastLines(t.output.String(), 60))
}

// count adds a package's tests, without subtests.
func (o *outcome) count(path string, p *packageResult) {
	for name, t := range p.tests {
		switch {
		case strings.Contains(name, "/"):
		case t.action == "pass":
			o.tests++
		case t.action == "skip":
			o.left++
		}
		if t.action == "skip" {
			o.skips = append(o.skips, short(path)+"."+name+": "+t.reason())
		}
	}
}

var sourceLine = regexp.MustCompile(`^\s*\S+\.go:\d+: `)

// reason is why a test was skipped: the last line that it logged.
func (t *testResult) reason() string {
	why := "no reason"
	for line := range strings.Lines(t.output.String()) {
		if sourceLine.MatchString(line) {
			why = strings.TrimSpace(sourceLine.ReplaceAllString(line, ""))
		}
	}
	return why
}

// repeat runs a test alone until it passes, and returns how often it ran; 0 if it never passed.
func (r *run) repeat(ctx context.Context, s stage, log io.Writer, command []string, path, name string, times int) int {
	for n := 1; n <= times && ctx.Err() == nil; n++ {
		r.say("%-16s repeat %s.%s, %d of %d", s.name, short(path), name, n, times)
		rs := results{}
		command := append(slices.Clone(command), "-run="+exactly([]string{name}), path)
		if err := r.runTests(ctx, s, rs, log, command); err != nil {
			continue
		}
		if p := rs[path]; p != nil && p.action == "pass" && p.tests[name] != nil && p.tests[name].action == "pass" {
			return n
		}
	}
	return 0
}

// failures are the package's tests that failed, and those that did not end, since the process ended
// before them; sorted, without subtests.
func (p *packageResult) failures() (failed, unfinished []string) {
	for _, name := range slices.Sorted(maps.Keys(p.tests)) {
		switch {
		case strings.Contains(name, "/"):
		case p.tests[name].action == "fail":
			failed = append(failed, name)
		case p.tests[name].action == "" && p.action == "fail":
			unfinished = append(unfinished, name)
		}
	}
	if len(failed) == 0 { // a time limit of go test: no test says that it failed
		return unfinished, nil
	}
	return failed, unfinished
}

// repeatable reports whether a failure may be repeated: each of its parts that failed depends on
// real time or on a server, and none is a verdict or a data race.
func (p *packageResult) repeatable(top string) bool {
	for name, t := range p.tests {
		if !isPart(name, top) || t.action == "pass" || t.action == "skip" {
			continue
		}
		if t.verdict {
			return false
		}
		if p.hasFailingPart(name) {
			continue // its parts decide
		}
		marked := false
		for other, o := range p.tests {
			marked = marked || len(o.needs) > 0 && (isPart(name, other) || isPart(other, name))
		}
		if !marked {
			return false
		}
	}
	return true
}

func (p *packageResult) hasFailingPart(name string) bool {
	for part, t := range p.tests {
		if part != name && isPart(part, name) && t.action == "fail" {
			return true
		}
	}
	return false
}

// isPart reports whether a test is another or a part of it.
func isPart(name, top string) bool { return name == top || strings.HasPrefix(name, top+"/") }

// joined is a test with the output of its parts that failed.
func (p *packageResult) joined(name string) *testResult {
	t := &testResult{action: p.tests[name].action, seconds: p.tests[name].seconds, pressure: p.tests[name].pressure}
	for _, part := range slices.Sorted(maps.Keys(p.tests)) {
		if isPart(part, name) && p.tests[part].action != "pass" && p.tests[part].action != "skip" {
			t.output = append(t.output, p.tests[part].output...)
		}
	}
	if !p.complete {
		t.output = append(t.output, p.output...)
	}
	return t
}

// exactly is a pattern of go test that matches these tests.
func exactly(names []string) string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = regexp.QuoteMeta(name)
	}
	return "^(" + strings.Join(quoted, "|") + ")$"
}

// pressure says how much of the last ten seconds some process waited for a resource, as the kernel
// measures it.
func pressure() string {
	var parts []string
	for _, resource := range []string{"cpu", "io", "memory"} {
		text, err := os.ReadFile("/proc/pressure/" + resource)
		if err != nil {
			continue
		}
		if _, rest, found := strings.Cut(string(text), "avg10="); found {
			parts = append(parts, resource+" "+strings.Fields(rest)[0]+" %")
		}
	}
	if len(parts) == 0 {
		return "unknown"
	}
	return strings.Join(parts, ", ")
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

func ordinal(n int) string { return []string{"0th", "first", "second", "third"}[min(n, repeats)] }

// tail is the end of a log.
func tail(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return lastLines(string(text), 60)
}

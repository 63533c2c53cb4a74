//go:build unix

package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/sluice-go/sluice/internal/proof/need"
)

// event is a line of go test -json, see go doc test2json.
type event struct {
	Action, Package, ImportPath, Test, Output, Key, Value string

	Elapsed float64
}

// results are what go test said of a set of packages, by import path.
type results map[string]*packageResult

type packageResult struct {
	action   string // pass, fail, skip; empty while it runs
	seconds  float64
	complete bool   // its process ran all tests: it said PASS or FAIL at the end
	crash    string // what ended its process if no test did: a line
	output   output // what is no test's
	tests    map[string]*testResult
}

// testResult is that of a test or of a subtest, whose name has a slash.
type testResult struct {
	action   string // pass, fail, skip; empty if it did not end
	seconds  float64
	needs    []string
	verdict  bool   // also a data race
	pressure string // on the machine when it failed
	output   output
}

// output keeps the end of what a test prints.
type output []byte

const keptOutput = 64 << 10

func (o *output) add(text string) {
	*o = append(*o, text...)
	if len(*o) > 2*keptOutput {
		*o = append(output(nil), (*o)[len(*o)-keptOutput:]...)
	}
}

func (o output) String() string { return string(o) }

// crashes begin the lines that the runtime prints when it ends a process that no recover could
// save.
var crashes = []string{"fatal error: ", "[signal SIG", "testing: race detected outside of test execution"}

// read reads the events of one go test. ended is called with each package's end.
func (rs results) read(in io.Reader, log io.Writer, ended func(path string, p *packageResult)) error {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) != nil {
				log.Write(line) // go test itself, such as "go: downloading …"
			} else {
				rs.add(e, log, ended)
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (rs results) add(e event, log io.Writer, ended func(path string, p *packageResult)) {
	path := cmp.Or(e.Package, strings.Fields(cmp.Or(e.ImportPath, "?"))[0])
	p := rs[path]
	if p == nil {
		p = &packageResult{tests: map[string]*testResult{}}
		rs[path] = p
	}
	if e.Test == "" {
		switch e.Action {
		case "output", "build-output":
			io.WriteString(log, e.Output)
			p.output.add(e.Output)
			p.said(e.Output)
		case "build-fail":
			p.action = "fail"
		case "pass", "fail", "skip":
			p.action, p.seconds = e.Action, e.Elapsed
			ended(path, p)
		}
		return
	}
	t := p.tests[e.Test]
	if t == nil {
		t = &testResult{}
		p.tests[e.Test] = t
	}
	switch e.Action {
	case "output":
		io.WriteString(log, e.Output)
		t.output.add(e.Output)
		t.verdict = t.verdict || strings.Contains(e.Output, "race detected during execution of test")
		p.said(e.Output)
	case "attr":
		if e.Key == need.Attribute {
			t.needs = append(t.needs, e.Value)
		}
		t.verdict = t.verdict || e.Key == need.VerdictAttribute
	case "pass", "fail", "skip":
		t.action, t.seconds = e.Action, e.Elapsed
		if e.Action == "fail" {
			t.pressure = pressure()
		}
	}
}

// said notes the lines by which a process says how it ended.
func (p *packageResult) said(line string) {
	p.complete = p.complete || line == "PASS\n" || line == "FAIL\n"
	for _, begin := range crashes {
		if strings.HasPrefix(line, begin) {
			p.crash = strings.TrimSpace(line)
		}
	}
}

// goTest runs the tests of a stage, and repeats what may be repeated.
func (r *run) goTest(ctx context.Context, s stage, o *outcome, log io.Writer, command []string) {
	command, packages, err := r.expand(ctx, s, command)
	if err != nil {
		o.red = append(o.red, err.Error())
		return
	}
	// What has passed in make test is left out by name, which only packages of make test permit.
	before, others := r.split(s, packages)
	for _, group := range [][]string{before, others} {
		if len(group) == 0 {
			continue
		}
		command, rs := slices.Clone(command), results{}
		if skip := r.earlier.passed(group); skip != "" && !s.again {
			command = append(command, "-skip="+skip)
		}
		if err := r.runTests(ctx, s, rs, log, append(slices.Clone(command), group...)); err != nil {
			o.red = append(o.red, err.Error())
		}
		for _, path := range slices.Sorted(maps.Keys(rs)) {
			r.judge(ctx, s, o, log, command, path, rs[path])
		}
		r.keepRecord(rs)
	}
	if slices.Contains(command, "-run") && o.tests == 0 && len(o.red) == 0 {
		o.red = append(o.red, "no test ran: "+strings.Join(command, " "))
	}
}

// split returns the packages of which make test has run the tests, and the others. They are one
// group where nothing is left out.
func (r *run) split(s stage, packages []string) (before, others []string) {
	if r.earlier == nil || s.again {
		return packages, nil
	}
	for _, path := range packages {
		if r.earlier.Packages[path] != nil {
			before = append(before, path)
		} else {
			others = append(others, path)
		}
	}
	return before, others
}

// runTests runs go test and reads what it says.
func (r *run) runTests(ctx context.Context, s stage, rs results, log io.Writer, command []string) error {
	p := r.process(s, command)
	p.Stderr = log
	out, err := p.StdoutPipe()
	if err != nil {
		return err
	}
	var reading error
	err = runGroupWith(ctx, p, func() {
		reading = rs.read(out, log, func(path string, p *packageResult) {
			if p.action == "fail" || len(p.tests) > 0 {
				r.say("%-16s %s %s %.1f s", s.name, p.action, short(path), p.seconds)
			}
		})
	})
	if context.Cause(ctx) != nil {
		return context.Cause(ctx)
	}
	if reading != nil {
		return fmt.Errorf("read the output of go test: %w", reading)
	}
	failed := slices.ContainsFunc(slices.Collect(maps.Values(rs)), func(p *packageResult) bool { return p.action != "pass" && p.action != "skip" })
	if err != nil && !failed {
		return fmt.Errorf("%s: %w; see the log", strings.Join(command[:min(len(command), 4)], " "), err)
	}
	return nil
}

// expand makes a go test command with the runner's flags, and the packages that it tests: patterns,
// less those that begin with a minus and a dot.
func (r *run) expand(ctx context.Context, s stage, command []string) (with, packages []string, err error) {
	var patterns, less []string
	for _, word := range command {
		switch {
		case strings.HasPrefix(word, "-./"):
			less = append(less, word[1:])
		case word == "." || strings.HasPrefix(word, "./"):
			patterns = append(patterns, word)
		default:
			with = append(with, word)
		}
	}
	if packages, err = r.packages(ctx, s, patterns); err != nil {
		return nil, nil, err
	}
	if len(less) > 0 {
		out, err := r.packages(ctx, s, less)
		if err != nil {
			return nil, nil, err
		}
		packages = slices.DeleteFunc(packages, func(p string) bool { return slices.Contains(out, p) })
	}
	with = append(with, "-json", "-vet=off")
	if r.tier != "test" {
		with = append(with, "-count=1")
	}
	return with, packages, nil
}

// packages are the packages with tests that patterns match, in the patterns' order, each once.
func (r *run) packages(ctx context.Context, s stage, patterns []string) ([]string, error) {
	p := r.process(s, append([]string{"go", "list", "-f", "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}"}, patterns...))
	var out, problem bytes.Buffer
	p.Stdout, p.Stderr = &out, &problem
	if err := runGroup(ctx, p); err != nil {
		return nil, fmt.Errorf("go list %s: %w: %s", strings.Join(patterns, " "), err, bytes.TrimSpace(problem.Bytes()))
	}
	var list []string
	for path := range strings.FieldsSeq(out.String()) {
		if !slices.Contains(list, path) {
			list = append(list, path)
		}
	}
	return list, nil
}

// process is a command of a stage.
func (r *run) process(s stage, command []string) *exec.Cmd {
	p := exec.Command(command[0], command[1:]...)
	p.Env = r.environment(s)
	p.WaitDelay = 10 * time.Second
	prepare(p, s.lane)
	return p
}

const module = "github.com/sluice-go/sluice"

// short is a package's path below the module.
func short(path string) string {
	return cmp.Or(strings.TrimPrefix(strings.TrimPrefix(path, module), "/"), ".")
}

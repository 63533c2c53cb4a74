// Package mutants breaks the engine and its stores on purpose, one line at a time, and
// checks that a test notices. A mutant is built with go's -overlay, so the tree is never
// changed.
package mutants

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/sluice-go/sluice/internal/proof/need"
)

// Mutant is one mistake in the source, and the test that must notice it.
type Mutant struct {
	Name  string   // what is broken
	File  string   // relative to the repository's root
	Old   string   // exactly one place in the file
	New   string   // what replaces it
	Test  []string // arguments of go test
	Needs string   // what the test needs beside Go, such as postgres; see package need
	Env   []string // of the test
	Quick bool     // it also runs in every run of the tests
}

// Outcome is what the test of a mutant found.
type Outcome struct {
	Mutant
	FailedTest string // the first test that failed
	Seeds      string // after how many seeds of the simulation; empty for another test
	Finding    string // the simulation's first violation, or its panic; empty for another test
	Took       time.Duration
}

// errSurvived means that no test noticed a mutant.
var errSurvived = errors.New("survived")

// Root returns the directory of the module that holds dir.
func Root(dir string) (string, error) {
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("find the repository's root: no go.work in any parent directory")
		}
	}
}

// Source returns the file of a mutant with its mistake.
func (m *Mutant) Source(root string) ([]byte, error) {
	source, err := os.ReadFile(filepath.Join(root, m.File))
	if err != nil {
		return nil, fmt.Errorf("mutant %q: %w", m.Name, err)
	}
	if n := bytes.Count(source, []byte(m.Old)); n != 1 {
		return nil, fmt.Errorf("mutant %q: its text is %d times in %s, must be there once: adapt the table in mutants/table.go to the source", m.Name, n, m.File)
	}
	return bytes.Replace(source, []byte(m.Old), []byte(m.New), 1), nil
}

// What a failed run of go test -v prints.
var (
	failedTest = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)
	begunTest  = regexp.MustCompile(`(?m)^=== (?:RUN|CONT|NAME)\s+(\S+)`)
	caught     = regexp.MustCompile(`caught after (\d+) seeds: (.*)`)
	panicked   = regexp.MustCompile(`SLUICE_SIM_[A-Z]+=(\d+) go test`) // a world that panics, or has no end
	panicText  = regexp.MustCompile(`(?m)^panic: (.{1,100})`)
)

// Run builds a mutant and runs its test, which must fail. dir is for temporary files.
func (m *Mutant) Run(ctx context.Context, root, dir string) (Outcome, error) {
	o := Outcome{Mutant: *m}
	mutated, err := m.Source(root)
	if err != nil {
		return o, err
	}
	file, overlay := filepath.Join(dir, "mutant.go"), filepath.Join(dir, "overlay.json")
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(root, m.File): file}})
	if err == nil {
		err = errors.Join(os.WriteFile(file, mutated, 0o600), os.WriteFile(overlay, replace, 0o600))
	}
	if err != nil {
		return o, fmt.Errorf("mutant %q: %w", m.Name, err)
	}
	began := time.Now()
	args := append([]string{"test", "-count=1", "-vet=off", "-failfast", "-timeout=5m", "-v"}, m.Test...)
	cmd := exec.CommandContext(ctx, "go", args...)
	// The test must not skip, whatever this run leaves out: a test that skips notices nothing. And
	// it starts no server that it does not need, even if that is installed.
	flags := os.Getenv("GOFLAGS") + " -overlay=" + overlay // also of the programs that the test builds
	cmd.Dir, cmd.Env = root, append(append(os.Environ(), "GOFLAGS="+flags, need.Variable+"="+cmp.Or(m.Needs, "realtime")), m.Env...)
	output, err := cmd.CombinedOutput()
	o.Took = time.Since(began)
	text := string(output)
	switch {
	case strings.Contains(text, "[build failed]"), strings.Contains(text, "no tests to run"), strings.Contains(text, "\n--- SKIP: "):
		return o, fmt.Errorf("mutant %q: its test did not run:\n%s", m.Name, text)
	case err == nil:
		return o, fmt.Errorf("mutant %q: %w: go %s passed", m.Name, errSurvived, strings.Join(args, " "))
	}
	o.read(text)
	return o, nil
}

// read reads from the output of a failed run which test failed, and at which seed. Seeds
// count from 1, so a seed is a number of seeds too.
func (o *Outcome) read(output string) {
	if found := failedTest.FindStringSubmatch(output); found != nil {
		o.FailedTest = found[1]
	} else if begun := begunTest.FindAllStringSubmatch(output, -1); begun != nil {
		o.FailedTest = begun[len(begun)-1][1] // it ended in a panic
	}
	if found := caught.FindStringSubmatch(output); found != nil {
		o.Seeds, o.Finding = found[1], found[2]
	} else if found := panicked.FindStringSubmatch(output); found != nil {
		o.Seeds = found[1]
		if text := panicText.FindStringSubmatch(output); text != nil {
			o.Finding = "panic: " + text[1]
		}
	}
}

// Table returns outcomes as a table in Markdown.
func Table(list []Outcome) string {
	var b strings.Builder
	b.WriteString("| what is broken | file | noticed by | seeds | first finding |\n|---|---|---|---:|---|\n")
	for _, o := range list {
		by := "**nothing**"
		if o.FailedTest != "" {
			by = "`" + o.FailedTest + "`"
		}
		fmt.Fprintf(&b, "| %s | `%s` | %s | %s | %s |\n", o.Name, o.File, by, o.Seeds, strings.ReplaceAll(o.Finding, "|", "\\|"))
	}
	return b.String()
}

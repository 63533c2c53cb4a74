// Command clocks checks that tests say what make test cannot give them: real time, child processes,
// or random choices that differ in each run. It runs in the root of the repository:
//
//	go run ./proof/clocks
//
// It parses the test files of the modules in go.work, and the other files whose functions take a
// testing.TB, without types. For each test it follows names: functions and variables of its
// package, methods of types that are mentioned, and functions of the project's other packages. A
// test is refused where what it reaches sleeps, compares elapsed time with less than minutes or
// starts a process, and nothing of it calls package need or [testing/synctest.Test]. Random choices
// come from need.Rand and need.Seed in every test.
package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sluice-go/sluice/proof/workspace"
)

const module = "github.com/sluice-go/sluice"

func main() {
	problems, err := run(".")
	if err != nil {
		fmt.Fprintln(os.Stderr, "clocks:", err)
		os.Exit(2)
	}
	for _, problem := range problems {
		fmt.Println(problem)
	}
	if len(problems) > 0 {
		os.Exit(1)
	}
}

// run checks the project in a directory. No test found is an error: it ran in the wrong place.
func run(root string) ([]string, error) {
	modules, err := workspace.Modules(root)
	if err != nil {
		return nil, err
	}
	p := newProject()
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() {
			if path != root && (strings.HasPrefix(name, ".") || name == "testdata" || name == "node_modules") {
				return filepath.SkipDir
			}
			if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil && !slices.Contains(modules, filepath.ToSlash(path)) {
				return filepath.SkipDir // a module outside of go.work, which cannot import package need
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		path, err = filepath.Rel(root, path)
		if err != nil {
			return err
		}
		return p.add(filepath.ToSlash(path), source)
	})
	if err != nil {
		return nil, err
	}
	if len(p.tests) == 0 {
		return nil, fmt.Errorf("no tests below %s: run it in the root of the repository", root)
	}
	return p.check(exceptions), nil
}

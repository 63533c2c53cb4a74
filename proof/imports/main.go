// Command imports checks who imports whom across the modules of go.work, including
// what is imported indirectly and by tests. scripts/check-imports runs it.
//
// It reads the packages from go list, and prints one line for each violation: the
// package, the import, the packages between the two, and the rule. rules.go holds
// the rules.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"

	"github.com/sluice-go/sluice/proof/workspace"
)

const module = "github.com/sluice-go/sluice"

func main() {
	problems, err := run()
	if err != nil {
		fmt.Fprintln(os.Stderr, "check-imports:", err)
		os.Exit(2)
	}
	for _, problem := range problems {
		fmt.Println(problem)
	}
	if len(problems) > 0 {
		os.Exit(1)
	}
}

func run() ([]string, error) {
	g := graph{}
	if err := g.load(); err != nil {
		return nil, err
	}
	problems := g.check()
	for name := range forbiddenModules {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		problems = append(problems, checkGoMod(name, string(text))...)
	}
	return problems, nil
}

// graph holds packages by import path: ours, and all that they import outside
// of tests.
type graph map[string]*node

// node is a package. Imports are sorted and hold no package twice.
type node struct {
	standard    bool   // of the standard library
	module      string // empty for the standard library
	imports     []string
	testImports []string
}

// load adds the packages of all modules.
func (g graph) load() error {
	packages, err := workspace.Packages(".")
	if err != nil {
		return err
	}
	list := exec.Command("go", append([]string{"list", "-deps", "-json=ImportPath,Standard,Module,Imports,TestImports,XTestImports"}, packages...)...)
	list.Stderr = os.Stderr
	out, err := list.StdoutPipe()
	if err != nil {
		return err
	}
	if err := list.Start(); err != nil {
		return err
	}
	decoder := json.NewDecoder(out)
	for {
		var p struct {
			ImportPath                         string
			Standard                           bool
			Module                             struct{ Path string }
			Imports, TestImports, XTestImports []string
		}
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return fmt.Errorf("read the output of go list: %w", err)
		}
		g.add(p.ImportPath, p.Standard, p.Imports, slices.Concat(p.TestImports, p.XTestImports))
		g[p.ImportPath].module = p.Module.Path
	}
	if err := list.Wait(); err != nil {
		return fmt.Errorf("go list: %w", err)
	}
	return nil
}

func (g graph) add(path string, standard bool, imports, testImports []string) {
	n := g[path]
	if n == nil {
		n = &node{standard: standard}
		g[path] = n
	}
	n.imports = union(n.imports, imports)
	n.testImports = union(n.testImports, testImports)
}

func union(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}

// Package platforms checks that the program compiles for every operating system and
// processor that it is released for.
//
// A build of all of them takes half an hour of a CPU where nothing is cached, most of it
// for dependencies. So the program, its dependencies and the standard library are
// type-checked from source, as the compiler does first: for each platform with the files
// that it selects, and with the bodies of functions in the code of this repository.
package platforms

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/internal/proof/need"
)

// platforms are those in goreleaser's configuration.
var platforms = []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64", "windows/amd64", "windows/arm64"}

const ours = "github.com/sluice-go/sluice"

func TestPlatforms(t *testing.T) {
	need.RealTime(t)
	for _, platform := range platforms {
		system, processor, _ := strings.Cut(platform, "/")
		t.Run(system+"-"+processor, func(t *testing.T) {
			c := newChecker(processor)
			for _, p := range list(t, system, processor) {
				if err := c.check(p); err != nil {
					t.Error(err)
				}
			}
			if c.ours < 50 || len(c.packages) < 500 {
				t.Errorf("checked %d packages, %d of them ours: the program has more", len(c.packages), c.ours)
			}
		})
	}
}

// A name that only one system has is found missing on another.
func TestMissingNameIsFound(t *testing.T) {
	need.RealTime(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "lock.go"), []byte("package lock\n\nimport \"syscall\"\n\nfunc f() { _ = syscall.Flock(0, 0) }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, system := range []string{"linux", "windows"} {
		c := newChecker("amd64")
		for _, p := range list(t, system, "amd64", "syscall") {
			if err := c.check(p); err != nil {
				t.Fatal(err)
			}
		}
		err := c.check(&listed{ImportPath: ours + "/lock", Dir: dir, GoFiles: []string{"lock.go"}})
		if missing := err != nil && strings.Contains(err.Error(), "syscall.Flock"); missing != (system == "windows") {
			t.Errorf("%s: %v", system, err)
		}
	}
}

// listed is a package as go list describes it.
type listed struct {
	ImportPath, Dir string
	GoFiles         []string
	ImportMap       map[string]string
	Error           *struct{ Err string }
	Module          *struct{ GoVersion string }
}

// list returns packages and what they import, each after its own imports.
func list(t *testing.T, system, processor string, packages ...string) []*listed {
	t.Helper()
	if packages == nil {
		packages = []string{ours + "/cmd/sluice"}
	}
	cmd := exec.Command("go", append([]string{"list", "-deps", "-json=ImportPath,Dir,GoFiles,ImportMap,Error,Module"}, packages...)...)
	cmd.Env = append(os.Environ(), "GOOS="+system, "GOARCH="+processor, "CGO_ENABLED=0")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	text, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	var all []*listed
	for d := json.NewDecoder(bytes.NewReader(text)); ; {
		p := &listed{}
		if err := d.Decode(p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		if p.Error != nil {
			t.Fatalf("%s: %s", p.ImportPath, p.Error.Err)
		}
		all = append(all, p)
	}
}

type checker struct {
	packages map[string]*types.Package
	sizes    types.Sizes
	ours     int
}

func newChecker(processor string) *checker {
	return &checker{packages: map[string]*types.Package{"unsafe": types.Unsafe}, sizes: types.SizesFor("gc", processor)}
}

// imports are the packages checked so far, by the paths that one package imports them with.
type imports struct {
	packages map[string]*types.Package
	renamed  map[string]string
}

func (i imports) Import(path string) (*types.Package, error) {
	if other, ok := i.renamed[path]; ok {
		path = other
	}
	p := i.packages[path]
	if p == nil {
		return nil, errors.New("no package " + path)
	}
	return p, nil
}

func (c *checker) check(p *listed) error {
	if p.ImportPath == "unsafe" {
		return nil
	}
	own := strings.HasPrefix(p.ImportPath, ours)
	if own {
		c.ours++
	}
	files, positions := make([]*ast.File, 0, len(p.GoFiles)), token.NewFileSet()
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(positions, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		files = append(files, f)
	}
	cfg := &types.Config{Importer: imports{c.packages, maps.Clone(p.ImportMap)}, Sizes: c.sizes, IgnoreFuncBodies: !own}
	if p.Module != nil && p.Module.GoVersion != "" {
		cfg.GoVersion = "go" + p.Module.GoVersion
	}
	var all []error
	cfg.Error = func(err error) {
		// Imports that only bodies use are unused without them.
		if own || !strings.Contains(err.Error(), "imported and not used") && !strings.Contains(err.Error(), "imported as") {
			all = append(all, err)
		}
	}
	c.packages[p.ImportPath], _ = cfg.Check(p.ImportPath, positions, files, nil)
	return errors.Join(all...)
}

// Package built builds programs that tests run. The first test that asks for one builds it, so that
// a run in which all of these tests skip builds nothing.
//
//	var program = built.Main("github.com/sluice-go/sluice/cmd/sluice")
//
//	func TestMain(m *testing.M) { os.Exit(built.Run(m)) }
package built

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"sync"
	"testing"

	"github.com/sluice-go/sluice/internal/proof/need"
)

// Program is a program of this repository. It is safe for concurrent use.
type Program struct{ build func() (string, error) }

// Main returns the program of a main package. flags are those of go build.
func Main(pkg string, flags ...string) *Program {
	return &Program{sync.OnceValues(func() (string, error) {
		dir, err := Dir()
		if err == nil {
			dir, err = os.MkdirTemp(dir, "") // programs may have the same name
		}
		if err != nil {
			return "", err
		}
		file := filepath.Join(dir, path.Base(pkg))
		args := append(append([]string{"build"}, flags...), "-o", file, pkg)
		if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
			return "", fmt.Errorf("go build %s: %w\n%s", pkg, err, out)
		}
		return file, nil
	})}
}

// Path is the program's file. The test is one of real time: it starts a process.
func (p *Program) Path(t testing.TB) string {
	t.Helper()
	need.RealTime(t)
	file, err := p.build()
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// Dir is the directory of what the test binary has built.
var Dir = sync.OnceValues(func() (string, error) {
	used = true
	return os.MkdirTemp("", "sluice-built-")
})

var used bool // Dir was called; read once the tests have ended

// Run runs the tests and removes what they have built.
func Run(m *testing.M) (code int) {
	code = m.Run()
	if !used {
		return code
	}
	dir, err := Dir()
	if err = errors.Join(err, os.RemoveAll(dir)); err != nil {
		fmt.Fprintln(os.Stderr, "remove what the tests have built:", err)
		return 1
	}
	return code
}

package interop

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// goSuitePatience is how long all tests of a client for Go may take.
const goSuitePatience = 30 * time.Minute

// GoSuite is the live and unit tests of a client for Go, unmodified. They come with the
// client's module, in the version of go.mod.
type GoSuite struct {
	// Module is the module's path.
	Module string
	// Expected are the tests that fail, with the reason: "Test", or "package/Test".
	Expected map[string]string
	// Sometimes are those of them that may pass.
	Sometimes []string
	// LeftOut matches the tests that do not run. Empty: all run.
	LeftOut string
	// AtLeast is how many tests must pass.
	AtLeast int
	// Certificates are trusted, in PEM.
	Certificates []byte
	// Variables are the environment variables by which the tests find the servers.
	Variables []string
}

// Run runs the tests in a copy of the module, and compares the results with the expected ones.
func (s *GoSuite) Run(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	source, trusted := filepath.Join(dir, "module"), filepath.Join(dir, "trusted.pem")
	if err := errors.Join(os.CopyFS(source, os.DirFS(moduleDir(t, s.Module))), os.WriteFile(trusted, s.Certificates, 0o600)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), goSuitePatience)
	defer cancel()
	// -exec: the go command itself needs the machine's own certificates to download modules.
	args := []string{"test", "-json", "-count=1", "-p=1", "-vet=off", "-timeout=25m", "-exec", "env SSL_CERT_FILE=" + trusted + " SSL_CERT_DIR=" + dir}
	if s.LeftOut != "" {
		args = append(args, "-skip", s.LeftOut)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "./...")...)
	cmd.Dir = source
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-buildvcs=false -trimpath -mod=mod")
	cmd.Env = append(cmd.Env, s.Variables...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	j := &judge{t: t, expected: s.Expected, sometimes: s.Sometimes, results: make(map[string]string), output: make(map[string]*strings.Builder)}
	if s.LeftOut != "" {
		j.leftOut = regexp.MustCompile(s.LeftOut)
	}
	j.readGo(out, s.Module)
	var exit *exec.ExitError
	if err := cmd.Wait(); err != nil && !errors.As(err, &exit) || ctx.Err() != nil {
		t.Fatalf("%v, %v\n%s", err, ctx.Err(), stderr.String())
	}
	j.conclude(s.AtLeast)
	if t.Failed() {
		t.Log(stderr.String())
	}
}

// readGo reads what go test -json prints.
func (j *judge) readGo(out io.Reader, module string) {
	for d := json.NewDecoder(out); ; {
		var e struct {
			Action, Package, Test, Output string
			Elapsed                       float64 // in seconds
		}
		if err := d.Decode(&e); err == io.EOF {
			return
		} else if err != nil {
			j.t.Errorf("read the results: %v", err)
			return
		}
		if e.Test == "" {
			if e.Action == "build-fail" || e.Action == "build-output" {
				j.t.Error(e.Output)
			}
			continue
		}
		top, _, sub := strings.Cut(e.Test, "/")
		name := strings.TrimPrefix(strings.TrimPrefix(e.Package, module)+"/"+top, "/")
		if j.output[name] == nil {
			j.output[name] = &strings.Builder{}
		}
		j.output[name].WriteString(e.Output)
		if !sub && (e.Action == "pass" || e.Action == "fail" || e.Action == "skip") {
			j.results[name] = e.Action
			j.took(name, e.Elapsed)
		}
	}
}

// moduleDir is the directory of a module in the module cache.
func moduleDir(t *testing.T, module string) string {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		t.Fatalf("find the source of %s: %v", module, err)
	}
	return strings.TrimSpace(string(out))
}

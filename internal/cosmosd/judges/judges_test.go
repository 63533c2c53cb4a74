//go:build judges

package judges

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/emulator"
)

// patience is how long one client may take for all of its checks.
const patience = 3 * time.Minute

var (
	installed = filepath.Join("..", "..", "..", ".dev", "judges") // where scripts/install-judges has put the clients
	node      = filepath.Join(installed, "bin", "node")
	python    = filepath.Join(installed, "venv", "bin", "python")
	vectors   = filepath.Join("..", "..", "epk")
)

func TestJavaScript(t *testing.T) {
	t.Parallel()
	judge(t, node, "judge.js")
}

func TestPython(t *testing.T) {
	t.Parallel()
	judge(t, python, "judge.py")
}

// What the hashes of partition keys are tested with is what the clients compute now.
func TestVectors(t *testing.T) {
	t.Parallel()
	for file, cmd := range map[string]*exec.Cmd{
		"javascript.json": command(t, node, filepath.Join(vectors, "vectors", "vectors.js"), filepath.Join(installed, "node_modules", "@azure", "cosmos")),
		"python.json":     command(t, python, filepath.Join(vectors, "vectors", "vectors.py")),
	} {
		kept, err := os.ReadFile(filepath.Join(vectors, "testdata", file))
		if err != nil {
			t.Fatal(err)
		}
		got, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v", cmd, err)
		}
		if !bytes.Equal(got, kept) {
			t.Errorf("internal/epk/testdata/%s differs from what its script prints", file)
		}
	}
}

// judge has a client check an account of its own. Each check becomes a test.
func judge(t *testing.T, program, script string) {
	srv, err := emulator.StartCosmos(nil, &emulator.CosmosConfig{Control: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := srv.Close(); err != nil {
			t.Errorf("close the account: %v", err)
		}
	})
	cmd := command(t, program, script)
	cmd.Env = append(cmd.Env, "ENDPOINT="+srv.Endpoint(), "KEY="+srv.Key(), "CONTROL=http://"+srv.ControlAddr())
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatalf("%v: run scripts/install-judges", err)
	}
	last, n := verdicts(t, output)
	if err := cmd.Wait(); err != nil {
		t.Errorf("%s: %v", script, err)
	}
	if last != fmt.Sprintf("all %d checks passed", n) {
		t.Errorf("%s ended with %q after %d checks", script, last, n)
	}
}

func command(t *testing.T, program string, args ...string) *exec.Cmd {
	modules, err := filepath.Abs(filepath.Join(installed, "node_modules"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "NODE_PATH="+modules)
	cmd.WaitDelay = time.Second
	return cmd
}

var verdict = regexp.MustCompile(`^(ok  |FAIL) (.+) \((\d+ ms)\)$`)

// verdicts reads a judge's output: a line for each check, followed by the reasons for one that failed. It returns the last line, and the number of
// checks.
func verdicts(t *testing.T, output io.Reader) (last string, n int) {
	var check []string // the parts of its line
	var reason strings.Builder
	conclude := func() {
		if check == nil {
			return
		}
		n++
		t.Run(check[2], func(t *testing.T) {
			if t.Log(check[3]); check[1] == "FAIL" {
				t.Error(reason.String())
			}
		})
		reason.Reset()
	}
	for lines := bufio.NewScanner(output); lines.Scan(); {
		last = lines.Text()
		if m := verdict.FindStringSubmatch(last); m != nil {
			conclude()
			check = m
		} else {
			fmt.Fprintln(&reason, last)
		}
	}
	conclude()
	return last, n
}

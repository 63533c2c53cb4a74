// Package interop runs what others think of the emulator: programs that go through its promises with Azure's own clients, and print a line
// for each check. It is for tests.
//
// scripts/install-judges installs the clients.
package interop

import (
	"bufio"
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
)

// patience is how long one judge may take for all of its checks.
const patience = 5 * time.Minute

// Node and Python are the programs that judges are written for.
const (
	Node   = "bin/node"
	Python = "venv/bin/python"
)

// Installed is where the clients are.
func Installed(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			break
		}
		if dir == filepath.Dir(dir) {
			t.Fatal("the test doesn't run in the module")
		}
	}
	dir = filepath.Join(dir, ".dev", "judges")
	if _, err := os.Stat(filepath.Join(dir, "versions")); err != nil {
		t.Fatalf("the clients are not installed: run scripts/install-judges (%v)", err)
	}
	return dir
}

// Command is a program with the clients at hand. It is killed when it takes too long, or the test is over.
func Command(t testing.TB, program string, args ...string) *exec.Cmd {
	t.Helper()
	dir := Installed(t)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, filepath.Join(dir, program), args...)
	cmd.Env = append(os.Environ(), "NODE_PATH="+filepath.Join(dir, "node_modules"))
	cmd.WaitDelay = time.Second
	return cmd
}

// Judge runs a judge, whose checks become tests. It prints "ok" or "FAIL", the check's name, and its time in parentheses; behind one that
// failed, the reasons; and at last how many there were: "all 7 checks passed".
func Judge(t *testing.T, program, script string, environment ...string) {
	t.Helper()
	cmd := Command(t, program, script)
	cmd.Env = append(cmd.Env, environment...)
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	last, n := verdicts(t, output)
	if err := cmd.Wait(); err != nil {
		t.Errorf("%s: %v", script, err)
	}
	if last != fmt.Sprintf("all %d checks passed", n) {
		t.Errorf("%s ended with %q after %d checks", script, last, n)
	}
}

// SameAs expects a program to print what a file holds.
func SameAs(t *testing.T, cmd *exec.Cmd, file string) {
	t.Helper()
	kept, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	got, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", cmd, err)
	}
	if string(got) != string(kept) {
		t.Errorf("%s differs from what %s prints", file, filepath.Base(cmd.Args[1]))
	}
}

var verdict = regexp.MustCompile(`^(ok  |FAIL) (.+) \((\d+ ms)\)$`)

// verdicts reads a judge's output. It returns the last line, and the number of checks.
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

// Package interop runs the interop tests: programs that check the emulator with
// Azure's own clients for JavaScript, Python and Java, and print a line for each check;
// and the tests that the clients for Go and Python themselves come with ([GoSuite],
// [PythonSuite]). scripts/install-interop installs the clients, scripts/install-interop-java
// those for Java, scripts/install-interop-python those for Python with their tests.
package interop

import (
	"bufio"
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/internal/proof/need"
	"github.com/sluice-go/sluice/internal/proof/testserver"
)

// patience is how long one program may take for all of its checks; one in Java takes
// longer, because its processors take partitions over slowly.
const (
	patience     = 5 * time.Minute
	patienceJava = 3 * patience
)

// Node and Python are the interpreters of the programs, below [Installed].
const (
	Node   = "bin/node"
	Python = "venv/bin/python"
)

// Installed is the directory of the clients. The test skips or fails where they are not installed.
func Installed(t testing.TB) string {
	t.Helper()
	need.Clients(t)
	return installed(t, "interop")
}

func installed(t testing.TB, name string) string {
	t.Helper()
	dir, err := testserver.Repository()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, ".dev", name)
}

// Command is a program that can import the clients. It is killed after five
// minutes, and at the end of the test.
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

// Run runs a program of checks, and makes each check a subtest. The program
// prints for each check "ok" or "FAIL", its name, and its time in parentheses,
// then the reasons if it failed; and at the end their number: "all 7 checks
// passed".
func Run(t *testing.T, program, script string, environment ...string) {
	t.Helper()
	RunCommand(t, Command(t, program, script), environment...)
}

// RunCommand is [Run] for a command.
func RunCommand(t *testing.T, cmd *exec.Cmd, environment ...string) {
	t.Helper()
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	cmd.Env = append(cmd.Env, environment...)
	script := filepath.Base(cmd.Args[len(cmd.Args)-1])
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	last, n := readChecks(t, output)
	if err := cmd.Wait(); err != nil {
		t.Errorf("%s: %v", script, err)
	}
	if last != fmt.Sprintf("all %d checks passed", n) {
		t.Errorf("%s ended with %q after %d checks", script, last, n)
	}
}

// RunJava is [Run] for a class among the Java files in dir. The program trusts the
// certificates in a file in PEM format.
func RunJava(t *testing.T, dir, class, certificates string, environment ...string) {
	t.Helper()
	need.JavaClients(t)
	trust := filepath.Join(t.TempDir(), "trust.p12")
	for _, args := range importCertificates(t, certificates, filepath.Dir(trust), trust) {
		mustRun(t, args...)
	}
	RunCommand(t, JavaCommand(t, dir, class, "-Djavax.net.ssl.trustStore="+trust, "-Djavax.net.ssl.trustStorePassword="+storePassword), environment...)
}

// JavaCommand is [Command] for a class among the Java files in dir, which it compiles. It is
// killed after fifteen minutes.
func JavaCommand(t testing.TB, dir, class string, options ...string) *exec.Cmd {
	t.Helper()
	need.JavaClients(t)
	jars, work := filepath.Join(installed(t, "interop-java"), "jars", "*"), t.TempDir()
	sources, err := filepath.Glob(filepath.Join(dir, "*.java"))
	if err != nil {
		t.Fatal(err)
	}
	mustRun(t, append([]string{"javac", "-nowarn", "-cp", jars, "-d", work}, sources...)...)
	ctx, cancel := context.WithTimeout(context.Background(), patienceJava)
	t.Cleanup(cancel)
	return exec.CommandContext(ctx, "java", append(options, "-cp", jars+":"+work, class)...)
}

// mustRun runs a command that must succeed.
func mustRun(t testing.TB, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", args[0], err, out)
	}
}

// storePassword protects a store of certificates, which Java demands.
const storePassword = "changeit"

// importCertificates returns the commands that put each certificate of a file into a
// store: keytool takes only the first of a file.
func importCertificates(t *testing.T, file, work, store string) (commands [][]string) {
	t.Helper()
	rest, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return commands
		}
		name := fmt.Sprint("trusted", len(commands))
		single := filepath.Join(work, name)
		if err := os.WriteFile(single, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
		commands = append(commands, []string{
			"keytool", "-importcert", "-noprompt", "-alias", name, "-file", single, "-keystore", store, "-storetype", "PKCS12", "-storepass", storePassword,
		})
	}
}

// SameAs checks that a program prints exactly the content of a file.
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

var checkLine = regexp.MustCompile(`^(ok  |FAIL) (.+) \((\d+ ms)\)$`)

// readChecks reads the output of a program of checks. It returns the last line,
// and the number of checks.
func readChecks(t *testing.T, output io.Reader) (last string, n int) {
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
		if m := checkLine.FindStringSubmatch(last); m != nil {
			conclude()
			check = m
		} else {
			fmt.Fprintln(&reason, last)
		}
	}
	conclude()
	return last, n
}

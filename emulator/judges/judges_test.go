//go:build judges

package judges

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

	"github.com/sluice-go/sluice/emulator"
)

// patience is how long one client may take for all of its checks.
const patience = 5 * time.Minute

// Where scripts/install-judges has put the clients.
var (
	installed = filepath.Join("..", "..", ".dev", "judges")
	node      = filepath.Join(installed, "bin", "node")
	python    = filepath.Join(installed, "venv", "bin", "python")
)

func TestJavaScript(t *testing.T) {
	t.Parallel()
	judge(t, node, "judge.js")
}

func TestPython(t *testing.T) {
	t.Parallel()
	judge(t, python, "judge.py")
}

// What the hash of partition keys is tested with is what the client computes now.
func TestVectors(t *testing.T) {
	t.Parallel()
	kept, err := os.ReadFile(filepath.Join("..", "..", "internal", "hub", "testdata", "keys.json"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := command(t, node, "vectors.js").Output()
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(kept) {
		t.Error("internal/hub/testdata/keys.json differs from what vectors.js prints")
	}
}

// judge has a client check an emulator of its own. Each check becomes a test.
func judge(t *testing.T, program, script string) {
	if _, err := os.Stat(filepath.Join(installed, "versions")); err != nil {
		t.Fatalf("the clients are not installed: run scripts/install-judges (%v)", err)
	}
	cmd := command(t, program, script)
	cmd.Env = append(cmd.Env, surroundings(t)...)
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

// surroundings starts emulators and returns the environment in which the judges find them.
func surroundings(t *testing.T) []string {
	cert := filepath.Join(t.TempDir(), "cert.pem")
	keys := []emulator.Key{
		{Name: "all", Secret: "YWxsIHJpZ2h0cw=="},
		{Name: "reader", Secret: "dG8gbGlzdGVu", Rights: emulator.Listen},
		{Name: "writer", Secret: "dG8gc2VuZA==", Rights: emulator.Send},
	}
	hubs := make([]emulator.Hub, 50)
	names := make([]string, len(hubs))
	for i := range hubs {
		names[i] = fmt.Sprint("flights", i)
		hubs[i] = emulator.Hub{Name: names[i], Partitions: 4, ConsumerGroups: []string{"audit"}}
	}
	srv := start(t, hubs, &emulator.Config{TLSListen: "127.0.0.1:0", TLSCertOut: cert, Control: "127.0.0.1:0", Keys: keys, Dir: t.TempDir()})
	impatient := start(t, hubs, &emulator.Config{IdleTimeout: 3 * time.Second})
	as := func(k emulator.Key) string {
		return strings.NewReplacer("="+keys[0].Name+";", "="+k.Name+";", "="+keys[0].Secret, "="+k.Secret).Replace(srv.ConnectionString())
	}
	return []string{
		"HUBS=" + strings.Join(names, " "), "ALL=" + as(keys[0]), "LISTEN=" + as(keys[1]), "SEND=" + as(keys[2]),
		"TLS=" + srv.TLSConnectionString(), "CERT=" + cert, "NODE_EXTRA_CA_CERTS=" + cert,
		"IDLE=" + impatient.ConnectionString(), "CONTROL=http://" + srv.ControlAddr(),
	}
}

func start(t *testing.T, hubs []emulator.Hub, cfg *emulator.Config) *emulator.Server {
	srv, err := emulator.Start(hubs, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := srv.Close(); err != nil {
			t.Errorf("close the emulator: %v", err)
		}
	})
	return srv
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

package release

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-go/sluice/internal/proof/need"
)

// serveHub starts a hub of two partitions, and returns its connection string.
func serveHub(t *testing.T, binary string) string {
	t.Helper()
	cmd := exec.Command(binary, "emulator", "serve", "--hub", "flights=2", "--listen", "127.0.0.1:0")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if connection, ok := strings.CutPrefix(lines.Text(), "ready "); ok {
			return connection
		}
	}
	t.Fatal("the hub has not started")
	return ""
}

// stopWithin is what the engine waits for after SIGTERM, longer than the time-out of `sluice run`;
// then it kills.
const stopWithin = 45 * time.Second

// TestImageRunsAPipeline runs a pipeline file in the image, as each of the users, until SIGTERM:
// the process ends by itself, with exit code 0, its checkpoints committed and its leases released.
// Each event has one row.
func TestImageRunsAPipeline(t *testing.T) {
	need.Release(t)
	podman, binary := loadImage(t), filepath.Join(top, "build/release/bin/sluice")
	connection, records := serveHub(t, binary), filepath.Join(t.TempDir(), "flights.ndjson")
	const each = 500
	line := `{"date":"2001/01/14 21:55","delay":1,"distance":480,"origin":"SAN","destination":"SMF"}` + "\n"
	if err := os.WriteFile(records, []byte(strings.Repeat(line, each)), 0o600); err != nil {
		t.Fatal(err)
	}
	data := t.TempDir() // as the volume of Kubernetes or of another host: any user may write
	if err := os.Chmod(data, 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Dir(data), 0o755); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(top, "examples/flights.yaml")
	sluice := func(url string, args ...string) string {
		t.Helper()
		cmd := exec.Command(binary, args...)
		cmd.Env = append(os.Environ(), "EVENTHUB_CONNECTION_STRING="+connection, "DATABASE_URL="+url)
		text, err := output(cmd)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	for i, user := range users {
		// Files are readable by their owner only, so each user has a database of its own.
		file := fmt.Sprintf("flights-%d.db", i)
		outside := "sqlite:" + filepath.Join(data, file)
		sluice(outside, "send", "--hub", "flights", records)
		options := []string{"--detach", "--volume", config + ":/etc/sluice/flights.yaml:ro", "--volume", data + ":/var/lib/sluice",
			"--env", "EVENTHUB_CONNECTION_STRING=" + connection, "--env", "DATABASE_URL=sqlite:" + file}
		id, err := podman.run(user, options, "run", "/etc/sluice/flights.yaml", "--log-format", "json")
		if err != nil {
			t.Fatal(err)
		}
		id = strings.TrimSpace(id)
		t.Cleanup(func() { _, _ = output(podman.command("rm", "--force", "--time", "0", id)) })
		type row struct {
			Lag   *int64
			Owner string
		}
		state := func() (rows []row) {
			text := sluice(outside, "checkpoints", "list", "--json", "--config", config)
			if err := json.Unmarshal([]byte(text), &rows); err != nil {
				t.Fatalf("%v in %s", err, text)
			}
			return rows
		}
		done := func() bool {
			for _, name := range []string{file, file + "-leases"} {
				if _, err := os.Stat(filepath.Join(data, name)); err != nil {
					return false // the container must create it: only the owner of a file can read it
				}
			}
			rows := state()
			for _, r := range rows {
				if r.Lag == nil || *r.Lag > 0 || r.Owner == "" {
					return false
				}
			}
			return len(rows) == 2
		}
		for deadline := time.Now().Add(2 * time.Minute); !done(); <-time.After(100 * time.Millisecond) {
			if time.Now().After(deadline) {
				log, _ := podman.command("logs", id).CombinedOutput()
				t.Fatalf("as user %s: the pipeline is not caught up:\n%s", user, log)
			}
		}
		began := time.Now()
		if _, err := output(podman.command("stop", "--time", fmt.Sprint(int(stopWithin.Seconds())), id)); err != nil {
			t.Fatal(err)
		}
		took := time.Since(began)
		code, err := output(podman.command("inspect", "--format", "{{.State.ExitCode}} {{.State.OOMKilled}}", id))
		if err != nil || strings.TrimSpace(code) != "0 false" || took >= stopWithin {
			t.Errorf("as user %s: exit code %q after SIGTERM and %v: %v", user, code, took, err)
		}
		for _, r := range state() {
			if r.Lag == nil || *r.Lag != 0 || r.Owner != "" {
				t.Errorf("as user %s: at the end:\n%s", user, sluice(outside, "checkpoints", "list", "--config", config))
				break
			}
		}
		if text := sluice(outside, "audit", "hub", "--config", config); !strings.Contains(text, "Nothing lost, nothing duplicated") {
			t.Errorf("as user %s: %s", user, text)
		}
		t.Logf("as user %s: ended %.1f s after SIGTERM", user, took.Seconds())
	}
}

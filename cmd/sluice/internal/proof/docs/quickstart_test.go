package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/internal/proof/need"
)

// TestQuickStart does what docs/quickstart.md says from the second step on: it writes the files,
// runs each command in the page's order in one shell, and compares what the commands print with the
// page.
func TestQuickStart(t *testing.T) {
	need.RealTime(t)
	list, err := Read(repository(t), "docs/quickstart.md")
	if err != nil {
		t.Fatal(err)
	}
	path := program.Path(t)
	dir := t.TempDir()
	var script strings.Builder
	script.WriteString("set -euo pipefail\ntrap 'kill $(jobs -p); wait' EXIT\n")
	var begun bool
	for _, b := range list {
		file := map[string]string{"json": "orders.ndjson", "yaml": "orders.yaml"}[b.Language]
		switch {
		case strings.Contains(b.Text, "emulator serve"):
			begun = true
			script.WriteString(strings.TrimSpace(b.Text) + " --listen 127.0.0.1:0 >ready &\nuntil grep -q ^ready ready; do sleep 0.1; done\n")
		case !begun: // to build the program, and the demo, which has tests of its own
		case strings.HasPrefix(b.Text, "target:"): // the new end of the file
			script.WriteString("sed -i '/^target:/,$d' orders.yaml\ncat >>orders.yaml <<'END'\n" + b.Text + "END\n")
		case file != "":
			script.WriteString("cat >" + file + " <<'END'\n" + b.Text + "END\n")
		case b.Language == "sh" && strings.Contains(b.Text, "EVENTHUB_CONNECTION_STRING="):
			script.WriteString(b.Text + "export EVENTHUB_CONNECTION_STRING=\"$(sed -n 's/^ready //p' ready)\"\n")
		case strings.Contains(b.Text, "audit hub"): // which cannot decide before each partition was begun
			script.WriteString("until " + strings.TrimSpace(b.Text) + "; do [ $? = 3 ]; sleep 0.2; done\n")
		case b.Language == "sh":
			script.WriteString(b.Text)
		}
	}
	printsInOrder(t, dir, path, []string{
		"4 records acknowledged", "orders.yaml: valid: hub orders",
		`error="column total: body.total: is missing"`, "events=4 dead_letters=1",
		"PARTITION  SEQUENCE  KEY", "A-3", "1 applied, 0 failed again", "no dead letters",
		"2000 records acknowledged", "POSITION  LAG", "Nothing lost, nothing duplicated",
	}, "-c", script.String())
}

// printsInOrder runs bash in a directory, with the program in its path, and checks that it succeeds
// and prints these texts, one after the other.
func printsInOrder(t *testing.T, dir, program string, texts []string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(program)+string(filepath.ListSeparator)+os.Getenv("PATH"))
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v", err)
	}
	rest := string(out)
	for _, want := range texts {
		_, after, found := strings.Cut(rest, want)
		if !found {
			t.Fatalf("%q does not follow in:\n%s", want, out)
		}
		rest = after
	}
}

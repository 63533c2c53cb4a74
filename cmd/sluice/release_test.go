package main_test

import (
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

func TestVersionAsJSON(t *testing.T) {
	t.Parallel()
	var v struct{ Version, Go, OS, Arch string }
	if err := json.Unmarshal([]byte(must(t, "", nil, "version", "--json")), &v); err != nil {
		t.Fatal(err)
	}
	if v.Version == "" || v.Go != runtime.Version() || v.OS != runtime.GOOS || v.Arch != runtime.GOARCH {
		t.Errorf("version --json: %+v", v)
	}
	if text := must(t, "", nil, "version"); text[:len("sluice "+v.Version)] != "sluice "+v.Version || !strings.HasSuffix(text, " "+v.Go+" "+v.OS+"/"+v.Arch+"\n") {
		t.Errorf("version: %q, with --json %+v", text, v)
	}
}

// What a shell offers: files of the right kind, directories, values and stages.
func TestCompletion(t *testing.T) {
	t.Parallel()
	stages, err := filepath.Abs("../../examples/stages.yaml")
	if err != nil {
		t.Fatal(err)
	}
	const noFiles, yaml, anyFile, directory = ":4", "yaml\nyml\n:8", ":0", ":16"
	for line, want := range map[string]string{
		"run |":                                 yaml,
		"run a.yaml |":                          noFiles,
		"autoscale run a.yaml |":                yaml,
		"deadletters list --config |":           yaml,
		"peek |":                                yaml,
		"peek " + stages + " |":                 "clean\nfigures\ntable\n" + noFiles,
		"peek " + stages + " clean |":           noFiles,
		"send --hub h |":                        anyFile,
		"run --web-cert |":                      anyFile,
		"run --web-dir |":                       directory,
		"demo --data |":                         directory,
		"run --log-level |":                     "debug\ninfo\nwarn\nerror\n" + noFiles,
		"run --within |":                        noFiles,
		"version |":                             noFiles,
		"run " + stages + " --stage |":          "clean\nfigures\ntable\n" + noFiles,
		"run " + stages + " --stage c|":         "clean\n" + noFiles,
		"checkpoints list --config x --stage |": noFiles,
	} {
		args := strings.Split(strings.TrimSuffix(line, "|"), " ")
		out := must(t, "", environment("Endpoint=sb://h;SharedAccessKeyName=a;SharedAccessKey=b", "sqlite:a.db"), append([]string{"__complete"}, args...)...)
		if strings.TrimSpace(out) != want {
			t.Errorf("sluice %s completes %q, want %q", line, out, want)
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if script := must(t, "", nil, "completion", shell); !strings.Contains(script, "__complete") {
			t.Errorf("completion %s: %.200s", shell, script)
		}
	}
}

// Each command has a page, each flag is in it, and man can format it.
func TestManualPages(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, "", nil, "man", dir)
	page, err := os.ReadFile(filepath.Join(dir, "sluice-deadletters-list.1"))
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{".TH \"SLUICE-DEADLETTERS-LIST\" 1", "\n.B \\-\\-config PIPELINE.yaml\n", "\n.SH GLOBAL OPTIONS\n", ".BR sluice\\-deadletters (1)"} {
		if !strings.Contains(string(page), text) {
			t.Errorf("the page lacks %q:\n%s", text, page)
		}
	}
	pages, err := fs.Glob(os.DirFS(dir), "*.1")
	if err != nil || len(pages) < 30 {
		t.Fatalf("%d pages: %v", len(pages), err)
	}
	if _, err := exec.LookPath("groff"); err != nil {
		return // the pages were compared above; formatting needs groff
	}
	for _, name := range pages {
		out, err := exec.Command("groff", "-man", "-Tutf8", "-wall", "-z", filepath.Join(dir, name)).CombinedOutput()
		if err != nil || len(out) > 0 {
			t.Errorf("groff %s: %v\n%s", name, err, out)
		}
	}
}

// The dashboard keeps its certificate where --web-dir says; if nothing can be written there, the
// error names the flag.
func TestDashboardDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := start(t, dir, nil, "demo", "--events", "10", "--data", "data", "--web", "127.0.0.1:0", "--web-dir", "certificates")
	dashboardOf(t, p)
	if _, err := os.Stat(filepath.Join(dir, "certificates", "web", "dashboard.pem")); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "data", "web")); err == nil {
		t.Error("a certificate is in the data's directory too")
	}
	p.kill()
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	unwritable := "/sys/sluice" // for root too
	if runtime.GOOS != "linux" {
		return
	}
	p = start(t, dir, nil, "demo", "--events", "10", "--data", "other", "--web", "127.0.0.1:0", "--web-dir", unwritable)
	if code := p.wait(); code != 1 || !strings.Contains(p.err.String(), "--web-dir") {
		t.Errorf("exit code %d: %s", code, p.err.String())
	}
}

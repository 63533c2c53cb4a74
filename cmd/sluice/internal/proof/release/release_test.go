//go:build release

// Package release checks what a release consists of: it makes all of it for this machine, looks
// into the packages and the image, and runs the image without a registry.
package release

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	version  = "0.0.1-test"
	maxImage = 60 << 20
)

// top is the repository, and dist its directory with the files of the release.
var top, dist string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		if top, err = filepath.Abs("../../../../.."); err == nil {
			dist = filepath.Join(top, "dist")
			_, err = output(exec.Command("scripts/release-snapshot", "v"+version))
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}())
}

// output runs a command in the repository, and returns what it prints.
func output(cmd *exec.Cmd) (string, error) {
	var stderr strings.Builder
	if cmd.Dir == "" {
		cmd.Dir = top
	}
	cmd.Stderr = &stderr
	text, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s: %w\n%s%s", strings.Join(cmd.Args, " "), err, text, stderr.String())
	}
	return string(text), err
}

func must(t *testing.T, name string, args ...string) string {
	t.Helper()
	text, err := output(exec.Command(name, args...))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func artifact(suffix string) string {
	return filepath.Join(dist, "sluice_"+version+"_linux_"+runtime.GOARCH+suffix)
}

// one returns the only file that matches.
func one(t *testing.T, pattern string) string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(dist, pattern))
	if err != nil || len(list) != 1 {
		t.Fatalf("%s: %v %v", pattern, list, err)
	}
	return list[0]
}

// installed are the files of both packages, with their modes.
var installed = map[string]string{
	"/usr/bin/sluice":                                  "-rwxr-xr-x",
	"/etc/sluice/README":                               "-rw-r--r--",
	"/usr/lib/systemd/system/sluice@.service":          "-rw-r--r--",
	"/usr/share/man/man1/sluice.1.gz":                  "-rw-r--r--",
	"/usr/share/man/man1/sluice-run.1.gz":              "-rw-r--r--",
	"/usr/share/bash-completion/completions/sluice":    "-rw-r--r--",
	"/usr/share/zsh/vendor-completions/_sluice":        "-rw-r--r--",
	"/usr/share/fish/vendor_completions.d/sluice.fish": "-rw-r--r--",
	"/usr/share/doc/sluice/copyright":                  "-rw-r--r--",
}

func checkModes(t *testing.T, listing string) {
	t.Helper()
	modes := map[string]string{}
	for line := range strings.Lines(listing) {
		fields := strings.Fields(line)
		modes["/"+strings.TrimLeft(fields[len(fields)-1], "./")] = fields[0]
		if !strings.Contains(line, " root") {
			t.Errorf("not root's: %s", line)
		}
	}
	for path, want := range installed {
		if modes[path] != want {
			t.Errorf("%s has the mode %q, want %q", path, modes[path], want)
		}
	}
}

func TestDeb(t *testing.T) {
	deb := one(t, "*.deb")
	checkModes(t, must(t, "dpkg-deb", "--contents", deb))
	if info := must(t, "dpkg-deb", "--info", deb); !strings.Contains(info, "Architecture: "+runtime.GOARCH) || !strings.Contains(info, "Version: 0.0.1~test") {
		t.Errorf("control: %s", info)
	}
	root := t.TempDir()
	must(t, "dpkg-deb", "--extract", deb, root)
	if v := must(t, filepath.Join(root, "usr/bin/sluice"), "version"); !strings.HasPrefix(v, "sluice v"+version) {
		t.Errorf("version: %s", v)
	}
	if os.Getuid() == 0 {
		admin := t.TempDir()
		must(t, "dpkg", "--root="+admin, "--force-not-root", "--force-depends", "--log=/dev/null", "--install", deb)
		must(t, filepath.Join(admin, "usr/bin/sluice"), "help")
		must(t, "dpkg", "--root="+admin, "--log=/dev/null", "--remove", "sluice")
		if _, err := os.Stat(filepath.Join(admin, "usr/bin/sluice")); err == nil {
			t.Error("the binary is still there after the package was removed")
		}
	}
	unit := "usr/lib/systemd/system/sluice@.service"
	must(t, "install", "-D", "-m", "0644", filepath.Join(root, unit), filepath.Join(root, "lib/systemd/system/sluice@flights.service"))
	problems, _ := exec.Command("systemd-analyze", "--man=no", "--recursive-errors=no", "--root="+root, "verify", "sluice@flights.service").CombinedOutput()
	for line := range strings.Lines(string(problems)) {
		if strings.Contains(line, "sluice@") {
			t.Errorf("systemd-analyze verify: %s", line)
		}
	}
	text, err := os.ReadFile(filepath.Join(root, unit))
	if err != nil {
		t.Fatal(err)
	}
	stop, grace := seconds(t, text, `--stop-timeout (\d+)s`), seconds(t, text, `TimeoutStopSec=(\d+)s`)
	if grace < stop+10*time.Second {
		t.Errorf("systemd kills the service after %v; a stop may take %v and then cancels", grace, stop)
	}
}

func seconds(t *testing.T, text []byte, expression string) time.Duration {
	t.Helper()
	found := regexp.MustCompile(expression).FindSubmatch(text)
	if found == nil {
		t.Fatalf("the unit lacks %s", expression)
	}
	d, err := time.ParseDuration(string(found[1]) + "s")
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestRPM(t *testing.T) {
	rpm := one(t, "*.rpm")
	checkModes(t, must(t, "rpm", "-qp", "--nosignature", "--queryformat", "[%{FILEMODES:perms} %{FILEUSERNAME} %{FILENAMES}\n]", rpm))
	if got := must(t, "rpm", "-qp", "--nosignature", "--queryformat", "%{NAME} %{LICENSE} %{VERSION}", rpm); got != "sluice Apache-2.0 0.0.1~test" {
		t.Errorf("rpm: %s", got)
	}
}

func TestArchiveAndChecksums(t *testing.T) {
	listing := must(t, "tar", "--list", "--file", artifact(".tar.gz"))
	for _, name := range []string{"sluice", "LICENSE", "CHANGELOG.md", "completions/sluice.zsh", "man/sluice-run.1.gz"} {
		if !slices.Contains(strings.Split(listing, "\n"), name) {
			t.Errorf("the archive lacks %s:\n%s", name, listing)
		}
	}
	check := exec.Command("sha256sum", "--check", "--strict", "checksums.txt")
	check.Dir = dist
	if _, err := output(check); err != nil {
		t.Error(err)
	}
}

// The SBOM names the modules that the binary was built from.
func TestSBOM(t *testing.T) {
	want := map[string]bool{}
	for line := range strings.Lines(must(t, "go", "version", "-m", filepath.Join(top, "build/release/bin/sluice"))) {
		if fields := strings.Fields(line); len(fields) > 2 && fields[0] == "dep" {
			want[fields[1]] = true
		}
	}
	if len(want) < 50 {
		t.Fatalf("the binary names %d modules", len(want))
	}
	text, err := os.ReadFile(artifact(".cdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	var bom struct {
		BOMFormat  string
		Components []struct{ Name string }
	}
	if err := json.Unmarshal(text, &bom); err != nil || bom.BOMFormat != "CycloneDX" {
		t.Fatalf("the SBOM's format is %q: %v", bom.BOMFormat, err)
	}
	for _, c := range bom.Components {
		delete(want, c.Name)
	}
	if len(want) > 0 {
		t.Errorf("the SBOM lacks %v", want)
	}
}

func TestProvenance(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(dist, "provenance.intoto.json"))
	if err != nil {
		t.Fatal(err)
	}
	var statement struct {
		Type    string `json:"_type"`
		Subject []struct {
			Name   string
			Digest map[string]string
		}
		Predicate struct {
			BuildDefinition struct {
				ResolvedDependencies []struct{ Digest map[string]string }
			}
		}
	}
	if err := json.Unmarshal(text, &statement); err != nil {
		t.Fatal(err)
	}
	sums, err := os.ReadFile(filepath.Join(dist, "checksums.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range statement.Subject {
		if !strings.Contains(string(sums), s.Digest["sha256"]+"  "+s.Name+"\n") {
			t.Errorf("%s is no file of this release", s.Name)
		}
	}
	commit := strings.TrimSpace(must(t, "git", "rev-parse", "HEAD"))
	if d := statement.Predicate.BuildDefinition.ResolvedDependencies; len(statement.Subject) < 4 || len(d) != 1 || d[0].Digest["gitCommit"] != commit {
		t.Errorf("provenance: %s", text)
	}
}

func TestChangelog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "CHANGELOG.md")
	if err := os.WriteFile(path, []byte("# Changelog\n\n## Unreleased\n\n### New\n\n- one\n\n## v1.0.0 - 2026-01-02\n\n- zero\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SLUICE_CHANGELOG", path)
	must(t, "scripts/changelog", "release", "v1.1.0", "2026-02-03")
	for v, want := range map[string]string{"v1.1.0": "### New\n\n- one\n", "v1.0.0": "- zero\n"} {
		if got := must(t, "scripts/changelog", "notes", v); got != want {
			t.Errorf("notes of %s: %q", v, got)
		}
	}
	for _, args := range [][]string{{"notes", "Unreleased"}, {"notes", "v1.0"}, {"release", "v1.0.0"}, {"release", "v1.2.0"}} {
		if text, err := output(exec.Command("scripts/changelog", args...)); err == nil {
			t.Errorf("changelog %v: %s", args, text)
		}
	}
}

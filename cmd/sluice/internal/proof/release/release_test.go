// Package release checks what a release consists of: it makes all of it for this machine, looks
// into the packages and the image, and runs the image without a registry.
package release

import (
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/internal/proof/need"
)

const (
	version  = "0.0.1-test"
	maxImage = 60 << 20
)

// top is the repository, and dist its directory with the files of the release.
var top, dist string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		thing, _ := need.Lookup("release")
		if wanted, _ := need.Demanded(os.Getenv(need.Variable), "release"); !wanted || !thing.Found() {
			return m.Run() // the tests skip or fail
		}
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

func TestArchiveAndChecksums(t *testing.T) {
	need.Release(t)
	listing := must(t, "tar", "--list", "--file", artifact(".tar.gz"))
	for _, name := range []string{"sluice", "LICENSE", "CHANGELOG.md", "completions/sluice.zsh", "man/sluice-run.1.gz"} {
		if !slices.Contains(strings.Split(listing, "\n"), name) {
			t.Errorf("the archive lacks %s:\n%s", name, listing)
		}
	}
	checkLicences(t, must(t, "tar", "--extract", "--to-stdout", "--file", artifact(".tar.gz"), "THIRD_PARTY_LICENSES"))
	check := exec.Command("sha256sum", "--check", "--strict", "checksums.txt")
	check.Dir = dist
	if _, err := output(check); err != nil {
		t.Error(err)
	}
}

// linkedModules returns the versions of the modules that the binary was built from, by their paths.
func linkedModules(t *testing.T) map[string]string {
	t.Helper()
	info, err := buildinfo.ReadFile(filepath.Join(top, "build/release/bin/sluice"))
	if err != nil {
		t.Fatal(err)
	}
	versions := map[string]string{}
	for _, m := range info.Deps {
		versions[m.Path] = m.Version
	}
	if len(versions) < 50 {
		t.Fatalf("the binary names %d modules", len(versions))
	}
	return versions
}

// checkLicences checks that a text has the licence of each module of others that is in the binary,
// and Go's.
func checkLicences(t *testing.T, text string) {
	t.Helper()
	for path, version := range linkedModules(t) {
		if !strings.HasPrefix(path, "github.com/sluice-go/sluice") && !strings.Contains(text, "\n"+path+" "+version+": ") {
			t.Errorf("THIRD_PARTY_LICENSES lacks %s %s", path, version)
		}
	}
	for _, want := range []string{"Go's standard library " + runtime.Version() + ": LICENSE", "Copyright 2009 The Go Authors", "Apache License", "Prometheus instrumentation library"} {
		if !strings.Contains(text, want) {
			t.Errorf("THIRD_PARTY_LICENSES lacks %q", want)
		}
	}
}

// The SBOM names the modules that the binary was built from.
func TestSBOM(t *testing.T) {
	need.Release(t)
	want := linkedModules(t)
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
	need.Release(t)
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
	need.Release(t)
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

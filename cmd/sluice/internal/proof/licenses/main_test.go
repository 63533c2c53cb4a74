package main

import (
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// linkedModule makes a module with these files; the packages in these directories are linked.
func linkedModule(t *testing.T, files map[string]string, dirs ...string) map[module]map[string]bool {
	t.Helper()
	m := module{"example.com/m", "v1.2.3", t.TempDir()}
	for name, text := range files {
		path := filepath.Join(m.Dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	packages := map[string]bool{}
	for _, dir := range dirs {
		packages[filepath.Join(m.Dir, dir)] = true
	}
	return map[module]map[string]bool{m: packages}
}

// What holds for a linked package is printed: its module's, and what lies on the way to it.
func TestWrite(t *testing.T) {
	t.Parallel()
	linked := linkedModule(t, map[string]string{
		"LICENSE.txt": "permitted", "Notice": "carry me", "LICENSES/extra.txt": "extra", "a/COPYRIGHT": "above b", "a/b/LICENSE": "of b",
		"c/LICENSE": "of c", "a/b/notice.go": "package b",
	}, ".", "a/b")
	other := linkedModule(t, map[string]string{"COPYING": "permitted\r\n"}, ".")
	for m, packages := range other {
		m.Path = "example.com/other"
		linked[m] = packages
	}
	var out strings.Builder
	if err := write(&out, linked); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"  example.com/m v1.2.3\n  example.com/other v1.2.3\n", "carry me", "extra", "above b", "of b",
		"example.com/m v1.2.3: LICENSE.txt\nexample.com/other v1.2.3: COPYING\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, &out)
		}
	}
	if text := out.String(); strings.Contains(text, "of c") || strings.Contains(text, "package b") || strings.Count(text, "permitted") != 1 {
		t.Errorf("too much:\n%s", text)
	}
}

func TestWriteRefuses(t *testing.T) {
	t.Parallel()
	for want, linked := range map[string]map[module]map[string]bool{
		"example.com/m v1.2.3 has no licence in":    linkedModule(t, map[string]string{"NOTICE": "carry me", "a/LICENSE": "of a"}, "a"),
		"NOTICE has 1 bytes":                        linkedModule(t, map[string]string{"LICENSE": "permitted", "NOTICE": "\n"}, "."),
		"LICENSE has 1048577 bytes, want 1 to 1048": linkedModule(t, map[string]string{"LICENSE": strings.Repeat("x", maxText+9)}, "."),
		"a linked package lies outside of":          linkedModule(t, map[string]string{"LICENSE": "permitted"}, ".."),
	} {
		if err := write(io.Discard, linked); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// A binary of another Go, or that links a module or a version that is not listed, is refused.
func TestCovers(t *testing.T) {
	t.Parallel()
	linked := map[module]map[string]bool{{Path: "example.com/m", Version: "v1.2.3"}: nil}
	for _, c := range []struct{ golang, path, version, want string }{
		{runtime.Version(), "example.com/m", "v1.2.3", ""},
		{runtime.Version(), ours + "/autoscale", "v0.0.0", ""},
		{runtime.Version(), "example.com/m", "v1.2.4", `links example.com/m v1.2.4, this clone "v1.2.3"`},
		{runtime.Version(), "example.com/n", "v1.2.3", `links example.com/n v1.2.3, this clone ""`},
		{"go1.1", "example.com/m", "v1.2.3", "built by go1.1"},
	} {
		err := covers(linked, &debug.BuildInfo{GoVersion: c.golang, Deps: []*debug.Module{{Path: c.path, Version: c.version}}})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v", c, err)
		}
	}
}

// The modules are those of each platform of a release.
func TestPlatforms(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../../../.goreleaser.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var release struct {
		Builds []struct{ Goos, Goarch []string }
	}
	if err := yaml.Unmarshal(text, &release); err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{}
	for _, b := range release.Builds {
		for _, system := range b.Goos {
			for _, processor := range b.Goarch {
				want[system+"/"+processor] = true
			}
		}
	}
	if got := slices.Sorted(slices.Values(platforms)); !slices.Equal(got, slices.Sorted(maps.Keys(want))) {
		t.Errorf("platforms %v, .goreleaser.yaml has %v", got, want)
	}
}

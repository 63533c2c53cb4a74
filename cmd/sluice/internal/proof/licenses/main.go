// Command licenses prints the licences and notices of what is linked into sluice, on any platform
// that it is released for: Go's own, and those of each module, with its version. It fails if a
// module has none, or if a binary links a module or a version that is not among them.
//
//	go run ./cmd/sluice/internal/proof/licenses [BINARY]
package main

import (
	"bytes"
	"cmp"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
)

const (
	program = "github.com/sluice-go/sluice/cmd/sluice"
	ours    = "github.com/sluice-go/sluice"
	// maxText bounds one file of a module in bytes.
	maxText = 1 << 20
)

// platforms are those of .goreleaser.yaml: some modules are linked on one of them alone.
var platforms = []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64", "windows/amd64", "windows/arm64"}

var (
	// licence is the name of a file, or of its directory in the module, that permits something.
	licence = regexp.MustCompile(`(?i)^(un)?licen[cs]e|^copying`)
	// legal is the name of a file with licences or notices, or of a directory of them. It
	// matches too much rather than too little.
	legal = regexp.MustCompile(`(?i)licen[cs]e|copying|copyright|notice|patents|third.?party|3rd`)
	// source is the name of a file that has another purpose, such as notice_response.go.
	source = regexp.MustCompile(`\.(go|s|sh|py|ya?ml|json)$`)
)

// module is what has licences of its own: a module, or Go's standard library.
type module struct{ Path, Version, Dir string }

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "licenses:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return fmt.Errorf("go env GOROOT: %w", err)
	}
	standard := module{"Go's standard library", runtime.Version(), strings.TrimSpace(string(root))}
	linked := map[module]map[string]bool{}
	for _, platform := range platforms {
		if err := list(platform, standard, linked); err != nil {
			return err
		}
	}
	if len(args) > 0 {
		info, err := buildinfo.ReadFile(args[0])
		if err != nil {
			return fmt.Errorf("%w: make build makes bin/sluice", err)
		}
		if err := covers(linked, info); err != nil {
			return err
		}
	}
	return write(out, linked)
}

// list adds the modules that are linked on a platform, each with the directories of its linked
// packages.
func list(platform string, standard module, linked map[module]map[string]bool) error {
	cmd := exec.Command("go", "list", "-deps", "-json=Dir,Standard,Module", program)
	system, processor, _ := strings.Cut(platform, "/")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+system, "GOARCH="+processor)
	cmd.Stderr = os.Stderr
	text, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("go list for %s: %w: run it in a clone, with the modules that go.mod names", platform, err)
	}
	for packages := json.NewDecoder(bytes.NewReader(text)); ; {
		var p struct {
			Dir      string
			Standard bool
			Module   *module
		}
		if err := packages.Decode(&p); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("go list for %s: %w", platform, err)
		}
		m := standard
		if !p.Standard {
			m = *p.Module
		}
		if isOurs(m.Path) {
			continue
		}
		if linked[m] == nil {
			linked[m] = map[string]bool{}
		}
		linked[m][p.Dir] = true
	}
}

func isOurs(path string) bool { return path == ours || strings.HasPrefix(path, ours+"/") }

// covers checks that a binary links nothing but these modules, in these versions.
func covers(linked map[module]map[string]bool, info *buildinfo.BuildInfo) error {
	if info.GoVersion != runtime.Version() {
		return fmt.Errorf("the binary is built by %s, this is %s: build it with this one", info.GoVersion, runtime.Version())
	}
	versions := map[string]string{}
	for m := range linked {
		versions[m.Path] = m.Version
	}
	for _, m := range info.Deps {
		if !isOurs(m.Path) && versions[m.Path] != m.Version {
			return fmt.Errorf("the binary links %s %s, this clone %q: build it from this clone", m.Path, m.Version, versions[m.Path])
		}
	}
	return nil
}

// write prints each text once, below the modules that it belongs to.
func write(out io.Writer, linked map[module]map[string]bool) error {
	modules := slices.SortedFunc(maps.Keys(linked), func(a, b module) int { return cmp.Compare(a.Path, b.Path) })
	owners, texts := map[string][]string{}, []string{}
	fmt.Fprint(out, "Licences and notices of what is linked into sluice, on at least one platform:\n\n")
	for _, m := range modules {
		files, err := licenceFiles(m, linked[m])
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "  %s %s\n", m.Path, m.Version)
		for _, file := range files {
			text, err := read(filepath.Join(m.Dir, file))
			if err != nil {
				return fmt.Errorf("%s %s: %w", m.Path, m.Version, err)
			}
			if owners[text] == nil {
				texts = append(texts, text)
			}
			owners[text] = append(owners[text], fmt.Sprintf("%s %s: %s", m.Path, m.Version, filepath.ToSlash(file)))
		}
	}
	for _, text := range texts {
		line := strings.Repeat("=", 80)
		if _, err := fmt.Fprintf(out, "\n%s\n%s\n%s\n\n%s\n", line, strings.Join(owners[text], "\n"), line, text); err != nil {
			return err
		}
	}
	return nil
}

// licenceFiles returns the files with licences and notices that hold for the linked packages of a
// module: those in their directories and above, up to the module's own, which must have a licence.
func licenceFiles(m module, dirs map[string]bool) ([]string, error) {
	found := map[string]bool{}
	for dir := range dirs {
		for ; dir != m.Dir; dir = filepath.Dir(dir) {
			if len(dir) < len(m.Dir) {
				return nil, fmt.Errorf("%s %s: a linked package lies outside of %s", m.Path, m.Version, m.Dir)
			}
			if err := find(m, dir, found); err != nil {
				return nil, err
			}
		}
	}
	if err := find(m, m.Dir, found); err != nil {
		return nil, err
	}
	files := slices.Sorted(maps.Keys(found))
	if !slices.ContainsFunc(files, licence.MatchString) {
		return nil, fmt.Errorf("%s %s has no licence in %s: without one it may not be passed on, so don't link it", m.Path, m.Version, m.Dir)
	}
	return files, nil
}

// find adds the files of a directory, and of directories of licences in it, by paths below the
// module's.
func find(m module, dir string, found map[string]bool) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("%s %s: %w: go mod download fetches it again", m.Path, m.Version, err)
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		below, err := filepath.Rel(m.Dir, path)
		if err != nil {
			return err
		}
		switch {
		case !legal.MatchString(e.Name()) || source.MatchString(e.Name()):
		case !e.IsDir():
			found[below] = true
		case dir == m.Dir && e.Name() != "third_party": // which has packages, with licences beside them
			files, err := os.ReadDir(path)
			if err != nil {
				return err
			}
			for _, f := range files {
				if !f.IsDir() {
					found[filepath.Join(below, f.Name())] = true
				}
			}
		}
	}
	return nil
}

// read returns the text of a file, which must have some.
func read(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxText+1))
	if err != nil {
		return "", err
	}
	if trimmed := strings.TrimSpace(strings.ReplaceAll(string(text), "\r\n", "\n")); trimmed != "" && len(text) <= maxText {
		return trimmed, nil
	}
	return "", fmt.Errorf("%s has %d bytes, want 1 to %d: check the file", path, len(text), maxText)
}

// Package links checks the links between the pages of the documentation.
package links

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	fence  = regexp.MustCompile("(?ms)^```.*?^```")
	code   = regexp.MustCompile("`[^`\n]*`")
	link   = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	head   = regexp.MustCompile(`(?m)^#+ (.*)$`)
	marked = regexp.MustCompile("[^a-z0-9 _-]")
)

// TestLinks: the file that a link names is there, and has the heading.
func TestLinks(t *testing.T) {
	found := 0
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".dev" || d.Name() == ".git" || d.Name() == "node_modules"):
			return filepath.SkipDir
		case filepath.Ext(path) == ".md":
			found += check(t, path)
		}
		return nil
	})
	if err != nil || found < 50 {
		t.Errorf("%d links, %v", found, err)
	}
}

// check checks the links of a page, and returns how many there are to other files.
func check(t *testing.T, path string) (found int) {
	t.Helper()
	for _, match := range link.FindAllStringSubmatch(code.ReplaceAllString(text(t, path), ""), -1) {
		file, heading, _ := strings.Cut(match[1], "#")
		if strings.Contains(file, ":") {
			continue
		}
		found++
		to := path
		if file != "" {
			to = filepath.Join(filepath.Dir(path), file)
		}
		if _, err := os.Stat(to); err != nil {
			t.Errorf("%s links to %s, which is missing", path, match[1])
		} else if heading != "" && !headings(text(t, to))[heading] {
			t.Errorf("%s links to %s, and there is no such heading", path, match[1])
		}
	}
	return found
}

func text(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return fence.ReplaceAllString(string(data), "")
}

// headings are the anchors that GitHub makes of a page's headings.
func headings(page string) map[string]bool {
	anchors := make(map[string]bool)
	for _, match := range head.FindAllStringSubmatch(page, -1) {
		anchors[strings.ReplaceAll(marked.ReplaceAllString(strings.ToLower(match[1]), ""), " ", "-")] = true
	}
	return anchors
}

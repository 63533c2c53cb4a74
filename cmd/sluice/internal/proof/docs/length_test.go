package docs

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The most words that pages have: all of them without docs/reference, and CHANGELOG.md alone. Who
// adds a paragraph shortens another one.
const (
	allWords       = 40_000
	changelogWords = 600
)

// TestLength keeps the documentation short enough to be read.
func TestLength(t *testing.T) {
	root := repository(t)
	pages, err := Pages(root)
	if err != nil {
		t.Fatal(err)
	}
	sum, counted := 0, 0
	for _, page := range append(pages, "DESIGN.md", "CONTRIBUTING.md", "CHANGELOG.md") {
		if strings.HasPrefix(page, "docs/reference/") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, page))
		if err != nil {
			t.Fatal(err)
		}
		n := len(bytes.Fields(text))
		if page == "CHANGELOG.md" && n > changelogWords {
			t.Errorf("%s has %d words, at most %d: shorten a line of it", page, n, changelogWords)
		}
		sum, counted = sum+n, counted+1
	}
	if sum > allWords {
		t.Errorf("the pages have %d words, at most %d: shorten one", sum, allWords)
	}
	if counted < 40 {
		t.Errorf("only %d pages were counted", counted)
	}
	t.Logf("%d pages, %d words", counted, sum)
}

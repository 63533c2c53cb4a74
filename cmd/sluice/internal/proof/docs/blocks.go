// Package docs checks the code blocks of README.md and of the pages below docs/: each is compiled,
// parsed or run, or is of a language that the package names as not checked. It exports what its
// tests use.
//
// An indented block holds shell commands. A fenced block names its language; text is output, an
// address or another thing that nobody runs.
package docs

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Block is a code block of a page.
type Block struct {
	File     string // relative to the repository
	Line     int    // of its first line of code
	Heading  string // the heading above it
	Language string // as the fence names it; indented blocks, bash and shell have sh
	Text     string
}

// String returns the block's place.
func (b Block) String() string { return fmt.Sprintf("%s:%d", b.File, b.Line) }

// Pages returns the pages of a repository, relative to it.
func Pages(root string) (pages []string, err error) {
	pages = []string{"README.md"}
	err = filepath.WalkDir(filepath.Join(root, "docs"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.HasSuffix(path, ".md") {
			page, relErr := filepath.Rel(root, path)
			pages, err = append(pages, filepath.ToSlash(page)), relErr
		}
		return err
	})
	return pages, err
}

// Read returns the blocks of a page of a repository.
func Read(root, page string) ([]Block, error) {
	text, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		return nil, err
	}
	return Parse(page, string(text))
}

var (
	fence   = regexp.MustCompile("^( *)(```+|~~~+) *([^ `]*)")
	heading = regexp.MustCompile(`^#+ +(.*)`)
	item    = regexp.MustCompile(`^ {0,3}([-*+]|[0-9]+[.)]) +`)
)

// Parse returns the blocks of a page's text. Below an item of a list an indented block begins four
// columns after the item's text begins.
func Parse(page, text string) (blocks []Block, err error) {
	var (
		above   string
		open    string // the fence of the block that is open
		indent  int    // of the fence, or of an indented block
		list    int    // where the text of the present item of a list begins
		inside  bool   // an indented block
		blank   = true // the line before
		current []string
		start   Block
	)
	end := func() {
		for len(current) > 0 && strings.TrimSpace(current[len(current)-1]) == "" {
			current = current[:len(current)-1]
		}
		start.Text = strings.Join(current, "\n") + "\n"
		blocks, current, open, inside = append(blocks, start), nil, "", false
	}
	for i, line := range strings.Split(text, "\n") {
		spaces := len(line) - len(strings.TrimLeft(line, " "))
		switch {
		case open != "":
			if strings.TrimSpace(line) == open {
				end()
			} else {
				current = append(current, line[min(spaces, indent):])
			}
			continue
		case inside && (spaces >= indent || strings.TrimSpace(line) == ""):
			current = append(current, line[min(spaces, indent):])
			continue
		case inside:
			end()
		}
		if m := fence.FindStringSubmatch(line); m != nil {
			open, indent = m[2], len(m[1])
			start = Block{File: page, Line: i + 2, Heading: above, Language: m[3]}
			switch {
			case m[3] == "bash", m[3] == "shell":
				start.Language = "sh"
			case m[3] == "" && strings.HasPrefix(page, "docs/reference/"): // what the program prints
				start.Language = "text"
			case m[3] == "":
				return nil, fmt.Errorf("%s:%d: the fence names no language", page, i+1)
			}
			blank = false
			continue
		}
		if m := heading.FindStringSubmatch(line); m != nil {
			above, list = m[1], 0
		}
		if m := item.FindString(line); m != "" {
			list = len(m)
		} else if blank && strings.TrimSpace(line) != "" && spaces == 0 {
			list = 0
		}
		if blank && spaces >= 4+list && strings.TrimSpace(line) != "" && item.FindString(line) == "" {
			inside, indent = true, 4+list
			start = Block{File: page, Line: i + 1, Heading: above, Language: "sh"}
			current = append(current, line[indent:])
		}
		blank = strings.TrimSpace(line) == ""
	}
	if open != "" {
		return nil, fmt.Errorf("%s:%d: the block has no end", page, start.Line)
	}
	if inside {
		end()
	}
	return blocks, nil
}

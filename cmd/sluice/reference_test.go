package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

// made are the pages and schemas that are made from the program itself.
func made() map[string][]byte {
	list := map[string][]byte{"docs/reference/cli.md": commandPage((&app{}).root())}
	for _, r := range references {
		list["docs/reference/"+r.schema+".md"] = r.file().Markdown("`UPDATE=1 go test ./cmd/sluice -run TestMadePagesAreCurrent`")
		list["docs/schema/"+r.schema+".json"] = r.file().Schema()
	}
	return list
}

func TestMadePagesAreCurrent(t *testing.T) {
	for name, want := range made() {
		path := filepath.Join("..", "..", name)
		if os.Getenv("UPDATE") != "" {
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, want, 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not what the program makes (%v): run UPDATE=1 go test ./cmd/sluice -run TestMadePagesAreCurrent", name, err)
		}
	}
}

func TestHelpOfFilesFitsATerminal(t *testing.T) {
	for _, r := range references {
		names, _ := r.file().Sections()
		for _, section := range append(names, "") {
			text, ok := r.file().Text(section, helpWidth)
			if !ok {
				t.Errorf("%s has no section %s", r.topic, section)
			}
			for line := range strings.SplitSeq(text, "\n") {
				if utf8.RuneCountInString(line) > helpWidth && !strings.Contains(line, "Example: ") {
					t.Errorf("%s: %d characters: %s", section, utf8.RuneCountInString(line), line)
				}
			}
		}
	}
}

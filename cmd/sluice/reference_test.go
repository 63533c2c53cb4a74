package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestCommandPageIsCurrent(t *testing.T) {
	const path = "../../docs/reference/cli.md"
	want := commandPage((&app{}).root())
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(path, want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is not what the program makes (%v): run UPDATE=1 go test ./cmd/sluice -run TestCommandPageIsCurrent", path, err)
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

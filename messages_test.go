package sluice_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// messagesPage explains what operators meet.
const messagesPage = "docs/reference/messages.md"

func TestMessagesAreExplained(t *testing.T) {
	page := source(t, messagesPage)
	explained := func(what, text string) {
		t.Helper()
		if !strings.Contains(page, "`"+text+"`") {
			t.Errorf("%s does not explain the %s %q", messagesPage, what, text)
		}
	}
	lines := regexp.MustCompile(`slog\.Level(?:Warn|Error), "([^"]+)"|throttledText = "([^"]+)"`).FindAllStringSubmatch(source(t, "logobserver.go"), -1)
	if len(lines) < 10 {
		t.Fatalf("found %d log lines", len(lines))
	}
	for _, m := range lines {
		explained("log line", m[1]+m[2])
	}
	kinds := regexp.MustCompile(`Warning\w+ +(?:WarningKind )?= "([^"]+)"`).FindAllStringSubmatch(source(t, "health/watcher.go"), -1)
	if len(kinds) < 5 {
		t.Fatalf("found %d warnings", len(kinds))
	}
	for _, m := range kinds {
		explained("warning", m[1])
	}
	names := regexp.MustCompile(`Kind\w+: "([^"]+)"`).FindAllStringSubmatch(source(t, "observer.go"), -1)
	if len(names) < 20 {
		t.Fatalf("found %d kinds of observation", len(names))
	}
	for _, m := range names {
		explained("observation", m[1])
	}
	sentinel := regexp.MustCompile(`(?m)^(?:var |\t)Err\w+ += errors\.New\("([^":]+)`)
	n := 0
	for _, in := range []string{".", "driver", "eventhub", "kafka", "pgstore", "sqlstore", "blobstore", "cosmos", "sender", "webhook"} {
		files, err := filepath.Glob(filepath.Join(in, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			for _, m := range sentinel.FindAllStringSubmatch(source(t, file), -1) {
				n++
				explained("error of "+file, m[1])
			}
		}
	}
	if n < 20 {
		t.Errorf("found %d errors", n)
	}
}

func source(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/cmd/sluice/internal/newfile"
	"github.com/sluice-go/sluice/cmd/sluice/internal/term"
	"github.com/sluice-go/sluice/cmd/sluice/internal/usage"
)

func TestInitWritesAFileOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "flights.yaml")
	run := func(args ...string) (string, error) {
		var out bytes.Buffer
		a := &app{out: &out}
		cmd := a.initCommand()
		cmd.SetArgs(append([]string{path}, args...))
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		err := cmd.Execute()
		return out.String(), err
	}
	text, err := run("--target", "http", "--source", "kafka", "--database", "sqlite", "--partitions", "balanced")
	if err != nil || !strings.Contains(text, "sluice check "+path+" --connect") || !strings.Contains(text, "export KAFKA_BROKERS") {
		t.Fatal(text, err)
	}
	if file, err := os.ReadFile(path); err != nil || !strings.Contains(string(file), "partitions: balanced") {
		t.Fatalf("%s %v", file, err)
	}
	all := []string{"--target", "insert", "--source", "eventhub", "--database", "sqlite", "--partitions", "all"}
	if _, err := run(all...); err == nil || !strings.Contains(err.Error(), "--force") {
		t.Fatalf("a second time: %v", err)
	}
	if _, err := run(append(all, "--force")...); err != nil {
		t.Fatal(err)
	}
	if _, err := run("--target", "table", "--source", "kafka"); err == nil || !strings.Contains(err.Error(), "--target table: write one of insert") {
		t.Fatalf("a wrong word: %v", err)
	}
	for _, wrong := range []string{"0", "-2", "two"} {
		if _, err := run("--force", "--partitions", wrong); err == nil || !strings.Contains(err.Error(), "--partitions "+wrong+": write a number, or one of all, balanced") {
			t.Errorf("partitions %s: %v", wrong, err)
		}
	}
}

func TestInitAsks(t *testing.T) {
	for _, c := range []struct {
		name, input string
		given       []string
		want        []string // nil: an error
		questions   int
		errs        string
	}{
		{"defaults", "\n\n\n\n", make([]string, 4), []string{"eventhub", "insert", "sqlite", "all"}, 4, ""},
		{"answers", "kafka\n http \npostgres\nbalanced\n", make([]string, 4), []string{"kafka", "http", "postgres", "balanced"}, 4, ""},
		{"flags are not asked for", "\nbalanced\n", []string{"kafka", "", "mysql", ""}, []string{"kafka", "insert", "mysql", "balanced"}, 2, ""},
		{"a wrong answer, then a right one", "kafak\nkafka\n\n\n\n", make([]string, 4), []string{"kafka", "insert", "sqlite", "all"}, 5, "--source kafak: write one of eventhub, kafka"},
		{"a wrong answer to each", "x\nkafka\nx\nhttp\nx\nmysql\nx\n\n", make([]string, 4), []string{"kafka", "http", "mysql", "all"}, 8, ""},
		{"two wrong answers", "kafak\nkafka?\n\n\n\n", make([]string, 4), nil, 2, "--source kafka?: write one of eventhub, kafka"},
		{"no answer", "", make([]string, 4), nil, 1, "no answer: nothing was written"},
		{"the end within an answer", "kafka", make([]string, 4), nil, 1, "no answer: nothing was written"},
		{"the end after a wrong answer", "kafak\n", make([]string, 4), nil, 2, "no answer: nothing was written"},
		{"a wrong flag", "", []string{"kafak", "", "", ""}, nil, 0, "--source kafak: write one of eventhub, kafka"},
	} {
		screen, err := os.Create(filepath.Join(t.TempDir(), "screen"))
		if err != nil {
			t.Fatal(err)
		}
		err = (&app{screen: term.NewScreen(screen)}).answer(c.given, strings.NewReader(c.input))
		text, readErr := os.ReadFile(screen.Name())
		if closing := screen.Close(); readErr != nil || closing != nil {
			t.Fatal(readErr, closing)
		}
		if (err == nil) != (c.want != nil) || err == nil && !slices.Equal(c.given, c.want) {
			t.Errorf("%s: %q, %v", c.name, c.given, err)
		}
		if all := string(text) + fmt.Sprint(err); strings.Count(all, "? (") != c.questions || !strings.Contains(all, c.errs) {
			t.Errorf("%s: %s", c.name, all)
		}
		if wrong := strings.HasPrefix(c.errs, "--"); err != nil && errors.As(err, new(*usage.Error)) != wrong {
			t.Errorf("%s: exit code of usage: %v", c.name, err)
		}
	}
}

// What init writes is valid for sluice check, for each combination that it offers, with the
// variables that it names.
func TestWhatInitWritesIsValid(t *testing.T) {
	const hub = "Endpoint=sb://%s.servicebus.windows.net/;SharedAccessKeyName=k;SharedAccessKey=aw=="
	for name, value := range map[string]string{
		"EVENTHUB_CONNECTION_STRING": fmt.Sprintf(hub, "one"), "NEXT_CONNECTION_STRING": fmt.Sprintf(hub, "two"), "SERVICEBUS_CONNECTION_STRING": fmt.Sprintf(hub, "three"),
		"KAFKA_BROKERS": "one:9092", "NEXT_BROKERS": "two:9092", "COSMOS_ENDPOINT": "https://contoso.documents.azure.com:443/", "COSMOS_KEY": "aw==", "TARGET_URL": "https://example.com/events",
	} {
		t.Setenv(name, value)
	}
	urls := map[string]string{"sqlite": "", "postgres": "postgres://app:x@db/flights", "mysql": "mysql://app:x@db:3306/flights", "sqlserver": "sqlserver://app:x@db:1433?database=flights"}
	screen, err := os.Create(filepath.Join(t.TempDir(), "screen"))
	if err != nil {
		t.Fatal(err)
	}
	defer screen.Close()
	run := func(args ...string) (string, error) {
		var out bytes.Buffer
		a := &app{out: &out, screen: term.NewScreen(screen)}
		root := a.root()
		root.SetArgs(args)
		err := root.Execute()
		return out.String(), err
	}
	combinations := 0
	for _, source := range newfile.Sources {
		for _, target := range newfile.Targets {
			for _, database := range newfile.Databases {
				t.Setenv("DATABASE_URL", urls[database])
				for _, partitions := range append(slices.Clone(newfile.Partitions), "2") {
					combinations++
					path := filepath.Join(t.TempDir(), "flights.yaml")
					if out, err := run("init", path, "--source", source, "--target", target, "--database", database, "--partitions", partitions); err != nil {
						t.Fatal(out, err)
					}
					if out, err := run("check", path); err != nil {
						t.Errorf("%s to %s, %s, %s: %v\n%s", source, target, database, partitions, err, out)
					}
				}
			}
		}
	}
	if combinations < 100 {
		t.Errorf("tried %d combinations", combinations)
	}
}

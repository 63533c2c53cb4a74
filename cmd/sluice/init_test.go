package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
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
	if err != nil || !strings.Contains(text, "sluice validate "+path) || !strings.Contains(text, "export KAFKA_BROKERS") {
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
}

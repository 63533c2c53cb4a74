package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/cmd/sluice/internal/term"
)

// TestDurationsInLog: both formats of the log have durations with their unit.
func TestDurationsInLog(t *testing.T) {
	for format, want := range map[string]string{"text": "lasted=1m30.5s", "json": `"lasted":"1m30.5s"`} {
		f, err := os.Create(filepath.Join(t.TempDir(), "log"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		a := &app{screen: term.NewScreen(f)}
		if err := a.setLog(format, "info"); err != nil {
			t.Fatal(err)
		}
		a.log.Info("partition stalled", "lasted", 90*time.Second+500*time.Millisecond)
		text, err := os.ReadFile(f.Name())
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s: got %s, %v; want %s", format, text, err, want)
		}
	}
}

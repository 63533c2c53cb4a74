package sluice_test

import (
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/driver"

	"github.com/sluice-go/sluice"
)

// A start that is understood reads the same as it was written.
func FuzzParseStart(f *testing.F) {
	for _, s := range []string{
		"", "earliest", " latest ", "2026-01-02T03:04:05.6+02:00", "0000-01-01T00:00:00+23:59", "24h ago", "1.5h30m  ago", "-1h ago",
		"sequence 42", "sequence 42 or so", "sequence -1", "sequence 99999999999999999999", "offset 4096", "offset ", "offset a b",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		start, err := sluice.ParseStart(text)
		if err != nil {
			if strings.ContainsAny(err.Error(), "\r\n") {
				t.Fatalf("an error of several lines: %q", err)
			}
			return
		}
		again, err := sluice.ParseStart(start.String())
		if start.Kind == driver.StartTime && start.Time.Equal(again.Time) {
			again.Time, start.Time = time.Time{}, time.Time{}
		}
		if err != nil || again != start {
			t.Fatalf("%q became %q, which is %+v, %v", text, start, again, err)
		}
		// What does not count in a start does not belong into its text.
		if words := len(strings.Fields(text)); start.Kind != driver.StartOffset && words > 2 {
			t.Fatalf("%q has %d words, and is taken for %q", text, words, start)
		}
	})
}

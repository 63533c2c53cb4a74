package telemetry_test

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/cmd/sluice/internal/telemetry"
)

// TestReport writes what is found where sampling begins and a fifth is lost. With REPORT_DIR it
// leaves the files there to be looked at.
func TestReport(t *testing.T) {
	s, err := telemetry.NewSeries(24*time.Hour, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 22 {
		n, weight, sdk := 5000+float64(i*31%100), 1.0, "dotnet:2.21.0"
		if i >= 14 {
			n, weight, sdk = n*0.8/4, 4, "dotnet:2.22.0"
		}
		if i == 18 {
			n /= 2
		}
		if err := s.Add(stored(time.Date(2025, 4, 7+i, 0, 0, 0, 0, time.UTC), math.Floor(n), weight, sdk)); err != nil {
			t.Fatal(err)
		}
	}
	r, err := s.Evaluate(nil)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(r.Explain(), "\n")
	for _, want := range []string{
		"About 25.2 % of the events are missing (99 % interval ", "; sampling explains the rest of the change (from 100 % to 25 % on 2025-04-21).",
		"The recorded sampling rate went from 100 % to 25 % on 2025-04-21 (-75 %). SDK dotnet:2.22.0 came that day, in place of dotnet:2.21.0.",
		"The weighted sum changed by -25.2 % on 2025-04-21 (99 % interval ", "2025-04-25 differs from its weekday by -37 %: if it was a holiday, leave it out with --holiday 2025-04-25.",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	var page, plain bytes.Buffer
	if err := r.WriteHTML(&page, "flights <imported>"); err != nil {
		t.Fatal(err)
	}
	if s := page.String(); strings.Count(s, "<svg") != 3 || strings.Contains(s, "<imported>") || !strings.Contains(s, "Mon 2025-04-21") {
		t.Errorf("the page has %d drawings and says\n%.2000s", strings.Count(s, "<svg"), s)
	}
	if err := r.WriteJSON(&plain); err != nil {
		t.Fatal(err)
	}
	var back struct {
		Verdict string
		Days    []struct{ Day string }
		Changes []struct{ Day string } `json:"rate_changes"`
	}
	if err := json.Unmarshal(plain.Bytes(), &back); err != nil || back.Verdict != "both" || len(back.Days) != 22 || len(back.Changes) != 1 {
		t.Errorf("%v: %+v", err, back)
	}
	for _, c := range telemetry.Charts {
		var b bytes.Buffer
		if err := r.Draw(&b, c); err != nil {
			t.Fatal(err)
		}
		if dir := os.Getenv("REPORT_DIR"); dir != "" {
			if err := os.WriteFile(filepath.Join(dir, string(c)+".svg"), b.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if !strings.Contains(b.String(), c.Title()) {
			t.Errorf("%s is\n%.2000s", c, b.String())
		}
	}
	if dir := os.Getenv("REPORT_DIR"); dir != "" {
		if err := os.WriteFile(filepath.Join(dir, "report.html"), page.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestChartsGoByTheZonesDays draws the same days in two zones.
func TestChartsGoByTheZonesDays(t *testing.T) {
	draw := func(name string) string {
		t.Helper()
		zone, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		s, err := telemetry.NewSeries(24*time.Hour, zone)
		if err != nil {
			t.Fatal(err)
		}
		for d := range 5 {
			at := time.Date(2025, 7, 1+d, 12, 0, 0, 0, zone)
			if err := s.Add(stored(at, 10, 1, "")); err != nil {
				t.Fatal(err)
			}
		}
		r, err := s.Evaluate(nil)
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := r.Draw(&b, telemetry.ChartRaw); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	if there, utc := draw("Pacific/Auckland"), draw("UTC"); there != utc || !strings.Contains(utc, "2 Jul") {
		t.Errorf("in Auckland\n%s\nand in UTC\n%s", there, utc)
	}
}

package telemetry_test

import (
	"bytes"
	"encoding/json"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/cmd/sluice/internal/telemetry"
)

// TestReport writes the published case. With REPORT_DIR it leaves the files
// there to be looked at.
func TestReport(t *testing.T) {
	r := published{volume: 50_000, spread: 0.05, sampled: true, loss: 0.2, holiday: 18}.judge(t, 7, false)
	text := strings.Join(r.Explain(), "\n")
	for _, want := range []string{
		"% of the events are missing (99.5 % interval ", "; sampling explains the rest of the change.",
		"from 100 % to 30 % on 2025-04-21", "SDK dotnet:2.22.0 came that day, in place of dotnet:2.21.0.",
		"The weighted sum fell by", "2025-04-25 is left out of the verdict: stands out alone",
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
	if err := json.Unmarshal(plain.Bytes(), &back); err != nil || back.Verdict != "both" || len(back.Days) != setDays || len(back.Changes) != 1 {
		t.Errorf("%v: %+v", err, back)
	}
	for _, c := range telemetry.Charts {
		var b bytes.Buffer
		if err := r.Draw(&b, c, "png"); err != nil {
			t.Fatal(err)
		}
		if dir := os.Getenv("REPORT_DIR"); dir != "" {
			if err := os.WriteFile(filepath.Join(dir, string(c)+".png"), b.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := png.Decode(&b); err != nil {
			t.Errorf("%s: %v", c, err)
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
			if err := s.Add(telemetry.Item{Time: at, Items: 10, Raw: 10, Weight: 10, Weighted: 10}); err != nil {
				t.Fatal(err)
			}
		}
		r, err := s.Evaluate(nil)
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := r.Draw(&b, telemetry.ChartRaw, "svg"); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	if there, utc := draw("Pacific/Auckland"), draw("UTC"); there != utc || !strings.Contains(utc, "2 Jul") {
		t.Errorf("in Auckland\n%s\nand in UTC\n%s", there, utc)
	}
}

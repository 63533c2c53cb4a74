package main_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// export writes an export of 28 days of a steady 600 items, kept from day 15
// on at so many percent, of which a share is lost.
func export(t *testing.T, dir string, rate int, loss float64) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("timestamp,name,itemCount,customMeasurements,customDimensions,sdkVersion\n")
	for day := range 28 {
		at := time.Date(2026, 1, 5+day, 0, 0, 0, 0, time.UTC)
		items, weight, sdk := 600+day*7%20, 1, "dotnet:2.21.0"
		if day >= 14 {
			items, weight, sdk = int(float64(items*rate/100)*(1-loss)), 100/rate, "dotnet:2.22.0"
		}
		for i := range items {
			fmt.Fprintf(&b, "%s,imported,%d,\"{\"\"flights\"\": 10}\",,%s\n", at.Add(time.Duration(i)*24*time.Hour/time.Duration(items)).Format(time.RFC3339), weight, sdk)
		}
	}
	name := filepath.Join(dir, "export.csv")
	if err := os.WriteFile(name, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestAuditTelemetry(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	out := must(t, dir, nil, "audit", "telemetry", export(t, dir, 25, 0), "--event", "imported", "--measurement", "flights", "--html", "r.html", "--png", "charts")
	for _, want := range []string{
		"Sampling explains the drop; a loss of ", " % or more is excluded.", "from 100 % to 25 % on 2026-01-19", "SDK dotnet:2.22.0 came that day, in place of dotnet:2.21.0",
		"Mon 2026-01-05          600          6,000  100.0 %          6,000",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	for _, name := range []string{"r.html", "charts/raw.png", "charts/rate.svg", "charts/weighted.svg"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() < 1000 {
			t.Errorf("%s: %v", name, err)
		}
	}
	code, out, _ := invoke(t, dir, nil, "audit", "telemetry", export(t, dir, 25, 0.2), "--json")
	var report struct{ Verdict string }
	if err := json.Unmarshal([]byte(out), &report); err != nil || code != 1 || report.Verdict != "both" {
		t.Errorf("exit code %d, %v: %+v", code, err, report)
	}
	reference := filepath.Join(dir, "hub.csv")
	var days strings.Builder
	days.WriteString("day,count\n")
	for day := range 28 {
		fmt.Fprintf(&days, "%s,%d\n", time.Date(2026, 1, 5+day, 0, 0, 0, 0, time.UTC).Format(time.DateOnly), 1000)
	}
	if err := os.WriteFile(reference, []byte(days.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	code, out, errs := invoke(t, dir, nil, "audit", "telemetry", export(t, dir, 100, 0), "--reference", reference)
	if code != 1 || !strings.Contains(out, "Against the reference the weighted sum is short by 39.") || !strings.Contains(errs, "sluice: events are missing") {
		t.Errorf("exit code %d:\n%s%s", code, out, errs)
	}
}

// TestTelemetryWorkbook: the workbook needs no telemetry, and has the names.
func TestTelemetryWorkbook(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, dir, nil, "audit", "telemetry", "--event", `im"ported`, "--measurement", "flights", "--workbook", "w.json")
	text, err := os.ReadFile(filepath.Join(dir, "w.json"))
	var book struct{ Version string }
	if err != nil || json.Unmarshal(text, &book) != nil || book.Version != "Notebook/1.0" || !strings.Contains(string(text), `Name == \"im\\\"ported\"`) {
		t.Errorf("%v: %s", err, text)
	}
}

func TestAuditTelemetryMistakes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := export(t, dir, 50, 0)
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "the input is missing: pass a FILE, - for standard input, --workspace ID, or --workbook FILE"},
		{[]string{"--workbook", "w.json", "--html", "x.html"}, "--json, --html, --png and --reference are for a report: pass a FILE"},
		{[]string{file, "--workspace", "x"}, "a FILE and --workspace exclude each other"},
		{[]string{file, "--query", "x"}, "--query needs --workspace"},
		{[]string{file, "--zone", "Mars"}, "--zone Mars: not a time zone"},
		{[]string{file, "--bin", "7h"}, "--bin: bins of 7h0m0s: take a length from 1m to 24h that divides a day"},
		{[]string{file, "--holiday", "Easter"}, "--holiday Easter: write a day such as 2026-01-31"},
		{[]string{file, "--tolerance", "5"}, "--tolerance 5: must be between 0 and 1"},
		{[]string{"none.csv"}, "sluice: none.csv: cannot be read: no such file or directory"},
		{[]string{"."}, "sluice: .: cannot be read: is a directory"},
		{[]string{file, "--event", "other"}, "no item counts: look at the names of event and measurement"},
		{[]string{file, "--reference", file}, "export.csv: row 1: "},
	} {
		code, _, errs := invoke(t, dir, nil, append([]string{"audit", "telemetry"}, c.args...)...)
		wanted := 3 // it cannot decide
		if strings.Contains(errs, "; see sluice audit") {
			wanted = 2 // wrong usage
		}
		if code != wanted || !strings.Contains(errs, c.want) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%v: exit code %d: %s", c.args, code, errs)
		}
	}
}

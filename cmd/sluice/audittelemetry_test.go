package main_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// export writes an export of 28 days of a steady 4,000 items, kept from day 15
// on at so many percent, of which a share is lost. Rates are exact.
func export(t *testing.T, dir string, rate int, loss float64) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("timestamp,name,itemCount,customMeasurements,customDimensions,sdkVersion\n")
	for day := range 28 {
		at := time.Date(2026, 1, 5+day, 0, 0, 0, 0, time.UTC)
		items, weight, share, sdk := 4000+day*7%20, 1, 100, "dotnet:2.21.0"
		if day >= 14 {
			items, weight, share, sdk = int(float64(items*rate/100)*(1-loss)), 100/rate, rate, "dotnet:2.22.0"
		}
		for i := range items {
			fmt.Fprintf(&b, "%s,imported,%d,\"{\"\"flights\"\": 10}\",\"{\"\"microsoft.sample_rate\"\": %d}\",%s\n", at.Add(time.Duration(i)*24*time.Hour/time.Duration(items)).Format(time.RFC3339), weight, share, sdk)
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
	out := must(t, dir, nil, "audit", "telemetry", export(t, dir, 25, 0), "--event", "imported", "--measurement", "flights", "--html", "r.html", "--svg", "charts")
	for _, want := range []string{
		"Sampling explains the drop (from 100 % to 25 % on 2026-01-19); a loss of ", " % or more is excluded.", "(-75 %). SDK dotnet:2.22.0 came that day, in place of dotnet:2.21.0",
		"Mon 2026-01-05        4,000         40,000  100.0 %         40,000",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	for _, name := range []string{"r.html", "charts/raw.svg", "charts/rate.svg", "charts/weighted.svg"} {
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
		fmt.Fprintf(&days, "%s,%d\n", time.Date(2026, 1, 5+day, 0, 0, 0, 0, time.UTC).Format(time.DateOnly), 6600)
	}
	if err := os.WriteFile(reference, []byte(days.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	code, out, errs := invoke(t, dir, nil, "audit", "telemetry", export(t, dir, 100, 0), "--reference", reference)
	if code != 1 || !strings.Contains(out, "Against the reference the weighted sum differs by -39.") || !strings.Contains(errs, "sluice: events are missing") {
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
	items := filepath.Join(dir, "items.csv")
	if err := os.WriteFile(items, []byte("timestamp,name,itemCount\n2026-01-01T00:00:00Z,imported,1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "the input is missing: pass a FILE, - for standard input, --workspace ID, or --workbook FILE"},
		{[]string{"--workbook", "w.json", "--html", "x.html"}, "--json, --html, --svg and --reference are for a report: pass a FILE"},
		{[]string{file, "--workspace", "x"}, "a FILE and --workspace exclude each other"},
		{[]string{file, "--png", "charts"}, "--png charts: charts are SVG: name the directory with --svg"},
		{[]string{file, "--query", "x"}, "--query needs --workspace"},
		{[]string{file, "--zone", "Mars"}, "--zone Mars: not a time zone"},
		{[]string{file, "--bin", "7h"}, "--bin: bins of 7h0m0s: take a length from 1m to 24h that divides a day"},
		{[]string{file, "--holiday", "Easter"}, "--holiday Easter: write a day such as 2026-01-31"},
		{[]string{file, "--tolerance", "5"}, "--tolerance 5: must be between 0 and 1"},
		{[]string{"none.csv"}, "sluice: none.csv: cannot be read: no such file or directory"},
		{[]string{"."}, "sluice: .: cannot be read: is a directory"},
		{[]string{file, "--event", "other"}, "no item counts: look at the names of event and measurement"},
		{[]string{file, "--reference", file}, "export.csv: larger than 1048576 bytes: a reference has one line for each day"},
		{[]string{file, "--reference", items}, "items.csv: row 1: "},
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

// story writes the export of a service whose SDK begins to sample on 2017-05-20, at 30 %, with so
// many days before and after that date. No event is lost. Exact items have their rate, others only
// itemCount, a whole number.
func story(t *testing.T, dir string, before, after int, exact bool) string {
	t.Helper()
	r := rand.New(rand.NewPCG(uint64(before), uint64(after)))
	var b strings.Builder
	b.WriteString("timestamp,name,itemCount,customDimensions,sdkVersion\n")
	change := time.Date(2017, 5, 20, 0, 0, 0, 0, time.UTC)
	for day := -before; day < after; day++ {
		start := change.AddDate(0, 0, day)
		events := 2000 * (1 + 0.03*r.NormFloat64())
		if start.Weekday() == time.Saturday || start.Weekday() == time.Sunday {
			events *= 0.3
		}
		rate, count, sdk := 100, 1, "dotnet:2.1.0"
		if day >= 0 {
			rate, count, sdk = 30, 3, "dotnet:2.3.0"
		}
		for range int(events) {
			if r.IntN(100) >= rate {
				continue
			}
			properties := ""
			if exact {
				properties = fmt.Sprintf(`"{""microsoft.sample_rate"": %d}"`, rate)
			}
			at := start.Add(time.Duration(r.IntN(86400)) * time.Second)
			fmt.Fprintf(&b, "%s,imported,%d,%s,%s\n", at.Format(time.RFC3339), count, properties, sdk)
		}
	}
	name := filepath.Join(dir, fmt.Sprintf("story-%d-%d-%v.csv", before, after, exact))
	if err := os.WriteFile(name, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestAuditTelemetrySaysWhatTheRateWas: a change of the recorded rate is said however few days
// follow it, and accuses nobody, neither with exact rates nor with itemCount 3 for a rate of 30 %.
func TestAuditTelemetrySaysWhatTheRateWas(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, days := range [][2]int{{14, 2}, {14, 3}, {14, 8}} {
		for _, exact := range []bool{true, false} {
			code, out, errs := invoke(t, dir, nil, "audit", "telemetry", story(t, dir, days[0], days[1], exact))
			said := "to 30 % on 2017-05-20"
			if !exact {
				said = "to 33.3 % on 2017-05-20"
			}
			if code == 1 || strings.Contains(out, "steady") || !strings.Contains(out, said) || !strings.Contains(out, "dotnet:2.3.0 came that day, in place of dotnet:2.1.0") {
				t.Errorf("%v days, exact %v: exit code %d\n%s%s", days, exact, code, out, errs)
			}
		}
	}
}

// TestAuditTelemetryCannotWrite: exit code 1 says that events are missing, so a file that cannot be
// written has another.
func TestAuditTelemetryCannotWrite(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := export(t, dir, 25, 0)
	for _, flag := range []string{"--workbook", "--html", "--svg"} {
		if code, _, errs := invoke(t, dir, nil, "audit", "telemetry", file, flag, filepath.Join(file, "x")); code != 3 || strings.Count(errs, "\n") != 1 {
			t.Errorf("%s: exit code %d: %s", flag, code, errs)
		}
	}
	if code, _, errs := invoke(t, dir, nil, "audit", "telemetry", "--workbook", filepath.Join(file, "x")); code != 3 {
		t.Errorf("a workbook alone: exit code %d: %s", code, errs)
	}
}

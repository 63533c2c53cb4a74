package audit_test

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/audit"
	"github.com/sluice-go/sluice/sluicetest"
)

// TestReports writes an account with faults. With REPORT_FILE it leaves the
// page there to be looked at.
func TestReports(t *testing.T) {
	hub := sluicetest.NewHub(group, 2)
	b := &memoryLedger{checkpoint: map[string]int64{"0": 29, "1": 9}, entries: map[string][]audit.Entry{}}
	for n := range int64(40) {
		hub.Append("0", sluicetest.Bodies("x")...)
		hub.Append("1", sluicetest.Bodies("x")...)
		if n < 30 && n/3 != 4 {
			b.entries["0"] = append(b.entries["0"], audit.Entry{Sequence: n, DeadLetter: n%7 == 0})
		}
		if n == 20 {
			b.entries["0"] = append(b.entries["0"], audit.Entry{Sequence: n})
		}
	}
	r, err := audit.Run(t.Context(), hub, b, group, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := r.Headline(), "Not exact: 13 lost, 1 duplicated, of 80 events."; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	var page, plain bytes.Buffer
	if err := r.WriteHTML(&page); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Not exact: 13 lost", `<td class="bad">lost</td><td>0</td><td>12</td><td>14</td><td>3</td>`, "Audit of hub, consumer group g"} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("%s is not in the page", want)
		}
	}
	if name := os.Getenv("REPORT_FILE"); name != "" {
		if err := os.WriteFile(name, page.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.WriteJSON(&plain); err != nil {
		t.Fatal(err)
	}
	var back struct {
		Exact  bool
		Total  struct{ Held, Written, Waiting, Missing int64 }
		Faults []struct {
			Kind        string
			First, Last int64
		}
	}
	if err := json.Unmarshal(plain.Bytes(), &back); err != nil || back.Exact || back.Total.Held != 80 || back.Total.Missing != 13 || len(back.Faults) != 3 || back.Faults[0].Last != 14 {
		t.Errorf("%v: %+v", err, back)
	}
}

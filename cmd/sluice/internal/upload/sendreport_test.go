package upload

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/cmd/sluice/internal/records"
	"github.com/sluice-go/sluice/sender"
)

// reported makes an input, and a report of it that was killed after these lines.
func reported(t *testing.T, lines string) (input, path string) {
	t.Helper()
	dir := t.TempDir()
	input, path = filepath.Join(dir, "in.ndjson"), filepath.Join(dir, "report")
	if err := os.WriteFile(input, []byte(strings.Repeat("{}\n", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := createReport(path, &Destination{Connection: "Endpoint=sb://x;SharedAccessKey=c2VjcmV0", Hub: "flights"}, []string{input})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.file.WriteString(lines); err != nil {
		t.Fatal(err)
	}
	if err := r.close(); err != nil { // as a kill does
		t.Fatal(err)
	}
	return input, path
}

// A record that an earlier run could not send may be stored by a later one that was killed.
func TestRejectedByEarlierRun(t *testing.T) {
	var k known
	open, err := k.read([]byte(`{"outcome":"sending","records":"1-256"}
{"outcome":"rejected","records":"2","at":"in.ndjson: line 2","reason":"too large"}
{"outcome":"sent","records":"1,3-256"}
{"end":{"complete":false}}
{"begin":{}}
{"outcome":"sending","records":"2-257"}
{"outcome":"rejected","records":"257","at":"in.ndjson: line 257","reason":"too large"}
`))
	if err != nil || !open || k.unknown.count != 1 || !k.unknown.has(2) {
		t.Errorf("open %v, %d unknown: %v, %v", open, k.unknown.count, k.unknown.list(), err)
	}
}

// What is known after a kill: a record that was going to be sent, and of which nothing else is
// known, has an unknown outcome. A line that was cut is dropped.
func TestReportAfterKill(t *testing.T) {
	lines := `{"outcome":"sending","records":"1-256"}
{"outcome":"sent","records":"1-99/2"}
{"outcome":"rejected","records":"2","at":"in.ndjson: line 2","reason":"too large"}
{"outcome":"sent","records":"100-2`
	input, path := reported(t, lines)
	to, names, err := ReadReport(path)
	if err != nil || to.Hub != "flights" || to.Connection != Withheld || len(names) != 1 || names[0] != input {
		t.Fatalf("read %+v, %v, %v", to, names, err)
	}
	for round := range 2 {
		r, err := resumeReport(path, to, names)
		if err != nil {
			t.Fatal(err)
		}
		if r.sent.count != 50 || !r.sent.has(99) || r.sent.has(100) || r.unknown.count != 256-50-1 || r.unknown.has(2) || !r.unknown.has(4) || r.unknown.has(257) {
			t.Errorf("round %d: %d sent, %d unknown", round, r.sent.count, r.unknown.count)
		}
		if err := r.finish(&places{}, &sender.Report{}, 2, true, errors.New("no\nsuch hub")); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`{"outcome":"unknown","records":"4-98/2,100-256","reason":"the process ended before the outcome was known"}` + "\n" + `{"end":`,
		`{"outcome":"not sent","records":"2-","reason":"no such hub"}` + "\n" + `{"end":`,
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	if strings.Contains(string(text), "c2VjcmV0") || strings.Contains(string(text), `"100-2`+"\n") {
		t.Errorf("the report is\n%s", text)
	}
}

// A run that ended has said what is unknown: what it was going to send counts no more.
func TestReportAfterEnd(t *testing.T) {
	input, path := reported(t, `{"outcome":"sending","records":"1-256"}
{"outcome":"unknown","records":"5-6"}
{"outcome":"end"}
`)
	if _, err := resumeReport(path, &Destination{}, []string{input}); err == nil || !strings.Contains(err.Error(), `line 4: unknown outcome "end"`) && !strings.Contains(err.Error(), "line 4: not a list") {
		t.Errorf("a line that is none: %v", err)
	}
	input, path = reported(t, `{"outcome":"sending","records":"1-256"}
{"outcome":"unknown","records":"5-6"}
{"end":{"time":"2026-01-02T03:04:05Z","complete":false}}
`)
	r, err := resumeReport(path, &Destination{}, []string{input})
	if err != nil {
		t.Fatal(err)
	}
	if r.unknown.count != 2 || r.sent.count != 0 {
		t.Errorf("%d sent, %d unknown", r.sent.count, r.unknown.count)
	}
	if err := r.close(); err != nil {
		t.Fatal(err)
	}
}

func TestReportOfAnotherInput(t *testing.T) {
	input, path := reported(t, "")
	if err := os.WriteFile(input, []byte(strings.Repeat("{}\n", 999)+"[]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, names := range map[string][]string{
		"not the file that the report is of":   {input},
		"the report is of 1 files, and not of": {input, input},
		"cannot be read: no such file":         {input + "s"},
	} {
		if _, err := resumeReport(path, &Destination{}, names); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if _, err := createReport(path, &Destination{}, []string{input}); err == nil || !strings.Contains(err.Error(), "the file exists: choose another name, or continue with --resume") {
		t.Errorf("created over a report: %v", err)
	}
	if _, _, err := ReadReport(input); err == nil || !strings.Contains(err.Error(), "not a report of sluice send --report") {
		t.Errorf("read an input as report: %v", err)
	}
}

// Two processes must not send what is missing in the same report.
func TestReportInUse(t *testing.T) {
	input, path := reported(t, "")
	first, err := resumeReport(path, &Destination{}, []string{input})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := resumeReport(path, &Destination{}, []string{input}); err == nil || !strings.Contains(err.Error(), "another sluice send writes it: wait until that has ended") {
		t.Errorf("continued by two: %v", err)
	}
	if err := first.finish(&places{}, &sender.Report{}, 1, true, nil); err != nil {
		t.Fatal(err)
	}
	again, err := resumeReport(path, &Destination{}, []string{input})
	if err != nil {
		t.Fatalf("continued after the first: %v", err)
	}
	if err := again.finish(&places{}, &sender.Report{}, 1, true, nil); err != nil {
		t.Fatal(err)
	}
}

// Records that follow each other in the input have one line.
func TestFinishedReport(t *testing.T) {
	input, path := reported(t, "")
	r, err := resumeReport(path, &Destination{}, []string{input})
	if err != nil {
		t.Fatal(err)
	}
	var p places
	for i := range 10 { // records 1 to 5 and 8 to 12
		number := int64(i + 1)
		if i >= 5 {
			number += 2
		}
		p.add(records.Place{File: "in", Unit: "line", Number: int(2 * number)}, number)
	}
	if got := formatNumbers(p.numbers(ranges(0, 3, 7, 7))); got != "1-4,10" {
		t.Errorf("indices 0 to 3 and 7 are %s", got)
	}
	p = places{}
	for _, number := range []int64{1, 2, 3, 6, 7} {
		p.add(records.Place{File: "in", Unit: "line", Number: int(number)}, number)
	}
	if err := r.finish(&p, &sender.Report{Unknown: ranges(1, 3), Unsent: ranges(4, 4)}, p.next(), true, errors.New("cut")); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	want := `{"outcome":"unknown","records":"2-3","at":"in: line 2","reason":"cut"}
{"outcome":"unknown","records":"6","at":"in: line 6","reason":"cut"}
{"outcome":"not sent","records":"7","at":"in: line 7","reason":"cut"}
{"outcome":"not sent","records":"8-","reason":"cut"}
{"end":`
	if err != nil || !strings.Contains(string(text), want) {
		t.Errorf("the report is\n%s", text)
	}
}

// A compressed input has more records than bytes.
func TestReportOfManyRecords(t *testing.T) {
	var k known
	if _, err := k.read([]byte(`{"outcome":"rejected","records":"1","at":"in.gz: line 1","reason":"too large"}
{"outcome":"sending","records":"5000000-5000255"}
{"outcome":"sent","records":"5000000-5000100"}
`)); err != nil || k.sent.count != 101 || k.unknown.count != 155 {
		t.Errorf("%d sent, %d unknown: %v", k.sent.count, k.unknown.count, err)
	}
	for _, line := range []string{
		`{"outcome":"sending","records":"1-9000000000000"}`, `{"outcome":"sent","records":"1"}`, `{"outcome":"unknown","records":"1-9000000000000"}`,
		`{"outcome":"sending","records":"9000000000000"}` + "\n" + `{"outcome":"sent","records":"1-9000000000000"}`,
	} {
		if _, err := new(known).read([]byte(line)); err == nil {
			t.Errorf("no error for %s", line)
		}
	}
}

// Whatever a report holds, it says no more than was announced, or it is refused.
func FuzzReport(f *testing.F) {
	f.Add([]byte(`{"outcome":"sending","records":"1-256"}` + "\n" + `{"outcome":"sent","records":"1-99/2"}`))
	f.Add([]byte(`{"end":{}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var k known
		if _, err := k.read(text); err != nil {
			return
		}
		most := int64(announceAhead * len(text))
		if k.sent.count > most || k.unknown.count > most {
			t.Fatalf("%q says of %d records that they are sent, and of %d that they are unknown", text, k.sent.count, k.unknown.count)
		}
		for _, r := range k.unknown.list() {
			for i := r.First; i <= r.Last; i++ {
				if k.sent.has(i) {
					t.Fatalf("%q: record %d is sent and unknown", text, i)
				}
			}
		}
	})
}

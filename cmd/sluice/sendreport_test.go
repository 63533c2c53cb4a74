package main_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/emulator"
)

// numbered makes n records {"n":1}, {"n":2} and so on, with more fields.
func numbered(n int) []string {
	lines := make([]string, n)
	for i := range lines {
		lines[i] = fmt.Sprintf(`{"n":%d,"key":"k%d"}`, i+1, i%7)
	}
	return lines
}

// copies is how often each record is in the hub. If they were sent with their keys, it checks that
// the records of a key are in order, apart from copies.
func copies(t *testing.T, connection string, n int, keyed bool) []int {
	t.Helper()
	times, last := make([]int, n+1), map[string]int{}
	for _, body := range lookAt(t, connection).bodies() {
		var r struct {
			N   int
			Key string
		}
		decode(t, body, &r)
		if times[r.N]++; times[r.N] == 1 {
			if keyed && r.N < last[r.Key] {
				t.Fatalf("record %d of key %s comes after %d", r.N, r.Key, last[r.Key])
			}
			last[r.Key] = r.N
		}
	}
	return times
}

// reportLine is a line of a report, as docs/send.md describes it.
type reportLine struct {
	Outcome, Records, At, Reason string
	End                          *struct{ Complete bool }
}

func reportLines(t *testing.T, path string) (list []reportLine) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var l reportLine
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		list = append(list, l)
	}
	return list
}

// recordsWith are the records of the lines with an outcome, up to n.
func recordsWith(t *testing.T, path, outcome string, n int) map[int]bool {
	t.Helper()
	set := map[int]bool{}
	for _, l := range reportLines(t, path) {
		if l.Outcome != outcome {
			continue
		}
		for entry := range strings.SplitSeq(l.Records, ",") {
			from, to, ranged := strings.Cut(entry, "-")
			to, by, stepped := strings.Cut(to, "/")
			number := func(text string, otherwise int) int {
				if text == "" {
					return otherwise
				}
				i, err := strconv.Atoi(text)
				if err != nil {
					t.Fatalf("records %q", l.Records)
				}
				return i
			}
			first, step := number(from, 0), 1
			last := first
			if ranged {
				last = number(to, n)
			}
			if stepped {
				step = number(by, 1)
			}
			for i := first; i <= min(last, n); i += step {
				set[i] = true
			}
		}
	}
	return set
}

func TestSendReport(t *testing.T) {
	t.Parallel()
	_, connection := serve(t, 2)
	report := filepath.Join(t.TempDir(), "report")
	lines := append(numbered(50), fmt.Sprintf(`{"n":51,"key":"a","pad":%q}`, strings.Repeat("x", 2<<20)), `{"n":52,"key":"a"}`, `{"n":53}`, `{"n":54,"key":"a"}`)
	input := writeLines(t, lines)
	env := []string{"EVENTHUB_CONNECTION_STRING=" + connection}
	code, out, errs := invoke(t, "", env, "send", "--hub", "flights", "--key-field", "key", "--report", report, input)
	if code != 1 || !strings.HasPrefix(out, "52 records acknowledged") || !strings.Contains(errs, "line 53: key field key is missing") || !strings.Contains(errs, "send --resume") {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
	check := func(complete bool) {
		t.Helper()
		list := reportLines(t, report)
		sent := recordsWith(t, report, "sent", 54)
		if end := list[len(list)-1].End; len(sent) != 52 || sent[51] || sent[53] || !sent[54] || end == nil || end.Complete != complete {
			t.Errorf("%d sent, the end is %+v", len(sent), end)
		}
		large, keyless := false, false
		for _, l := range list {
			large = large || l.Outcome == "rejected" && l.Records == "51" && strings.HasSuffix(l.At, ".ndjson: line 51") && strings.HasPrefix(l.Reason, "too large (")
			keyless = keyless || l.Outcome == "rejected" && l.Records == "53" && strings.HasSuffix(l.At, ".ndjson: line 53") && l.Reason == "key field key is missing"
		}
		if !large || !keyless {
			t.Errorf("the report is %+v", list)
		}
	}
	check(false)
	// Again: nothing is sent twice, and the rejected records are tried again.
	code, out, errs = invoke(t, "", env, "send", "--resume", report)
	if code != 1 || !strings.HasPrefix(out, "0 records acknowledged") || strings.Count(errs, "line 51: too large") != 1 || !strings.Contains(errs, "line 53: key field") {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
	check(false)
	for i, times := range copies(t, connection, 54, true) {
		if want := i >= 1 && i != 51 && i != 53; (times == 1) != want || times > 1 {
			t.Errorf("record %d is there %d times", i, times)
		}
	}
	if info, err := os.Stat(report); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("report: %v, %v", info.Mode(), err)
	}
}

// TestSendResume sends an input in four runs: one is killed, in one the hub goes away, one is
// interrupted, and one ends. Each record arrives, and only those whose outcome was unknown more
// than once.
func TestSendResume(t *testing.T) {
	t.Parallel()
	for name, keys := range map[string][]string{"keys": {"--key-field", "key"}, "spread": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const n = 20_000
			dir := t.TempDir()
			report, input := filepath.Join(dir, "report"), writeLines(t, numbered(n))
			hubs, cfg := []emulator.Hub{{Name: "flights", Partitions: 3, ConsumerGroups: []string{"sluice-audit"}}}, &emulator.Config{Dir: filepath.Join(dir, "hub")}
			serve := func() (*emulator.Server, string) {
				srv, err := emulator.Start(hubs, cfg)
				if err != nil {
					t.Fatal(err)
				}
				return srv, srv.ConnectionString()
			}
			srv, connection := serve()
			defer func() { srv.Close() }()
			partly := func() {
				t.Helper()
				before := srv.IncomingStats("flights").Bytes
				await(t, "a part", func() bool { return srv.IncomingStats("flights").Bytes > before+60_000 })
			}
			send := func(args ...string) *process {
				return start(t, "", nil, append([]string{"send", "--to", connection, "--rate", "4000"}, args...)...)
			}
			p := send(append([]string{"--hub", "flights", "--report", report, input}, keys...)...)
			partly()
			p.kill()

			p = send("--resume", report)
			partly()
			srv.Close()
			if code := p.wait(); code != 1 || !strings.Contains(p.err.String(), "not all records were sent") {
				t.Errorf("exit code %d: %s", code, p.err.String())
			}
			srv, connection = serve()

			p = send("--resume", report, input)
			partly()
			p.signal(os.Interrupt)
			if code := p.wait(); code != 1 || !strings.Contains(p.err.String(), "interrupted") {
				t.Errorf("exit code %d: %s", code, p.err.String())
			}
			unknown := recordsWith(t, report, "unknown", n)
			if len(unknown) == 0 || !strings.Contains(p.err.String(), "may be stored twice") {
				t.Errorf("%d unknown: %s", len(unknown), p.err.String())
			}
			if rest := recordsWith(t, report, "not sent", n); !rest[n] || rest[1] {
				t.Errorf("%d not sent", len(rest))
			}
			must(t, "", nil, "send", "--to", connection, "--resume", report)
			list := reportLines(t, report)
			if end := list[len(list)-1].End; end == nil || !end.Complete || len(recordsWith(t, report, "sent", n)) != n {
				t.Errorf("%d sent, the end is %+v", len(recordsWith(t, report, "sent", n)), end)
			}
			twice, first := 0, true
			for i, times := range copies(t, connection, n, keys != nil) {
				switch {
				case i == 0:
				case times == 0:
					t.Fatalf("record %d is missing", i)
				case times > 1 && !unknown[i] && first:
					t.Errorf("record %d is there %d times, but was not unknown", i, times)
					first = false
				case times > 1:
					twice++
				}
			}
			t.Logf("%d unknown, %d of them sent twice", len(unknown), twice)
			if twice >= n/2 {
				t.Errorf("%d sent twice", twice)
			}
			// Once more, of which nothing is left.
			if out := must(t, "", nil, "send", "--to", connection, "--resume", report); !strings.HasPrefix(out, "0 records acknowledged") {
				t.Errorf("it says %s", out)
			}
		})
	}
}

func TestSendReportMisused(t *testing.T) {
	t.Parallel()
	_, connection := serve(t, 1)
	dir := t.TempDir()
	input, report := writeLines(t, numbered(3)), filepath.Join(dir, "report")
	must(t, "", nil, "send", "--to", connection, "--hub", "flights", "--report", report, input)
	other := writeLines(t, numbered(4))
	for args, want := range map[string]string{
		"--hub flights --report " + report + " " + input: "the file exists: choose another name, or continue with --resume",
		"--hub flights --report " + report:               "--report needs files",
		"--hub flights --report x -":                     "--report needs files",
		"--hub flights --report= " + input:               "--report: must not be empty",
		"--hub flights --report x --generate 5":          "--report: generated documents have no report",
		"--report x --resume " + report + " " + input:    "--report and --resume exclude each other",
		"--hub flights --resume " + report:               "--hub: --resume takes it from the report",
		"--key-field key --resume " + report:             "--key-field: --resume takes it from the report",
		"--resume " + report + " " + input + " " + input: "the report is of 1 files, and not of 2",
	} {
		code, out, errs := invoke(t, dir, nil, append([]string{"send", "--to", connection}, strings.Fields(args)...)...)
		if code != 2 || out != "" || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, want) {
			t.Errorf("%s: exit code %d: %s%s", args, code, out, errs)
		}
	}
	for want, args := range map[string][]string{
		"not the file that the report is of":   {"--to", connection, "--resume", report, other},
		"not a report of sluice send --report": {"--to", connection, "--resume", input},
		"report: open":                         {"--to", connection, "--resume", filepath.Join(dir, "none")},
		"does not hold the connection string":  {"--resume", report},
	} {
		if code, out, errs := invoke(t, dir, nil, append([]string{"send"}, args...)...); code == 0 || out != "" || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, want) {
			t.Errorf("%s: exit code %d: %s%s", args, code, out, errs)
		}
	}
}

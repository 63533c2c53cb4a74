//go:build unix

package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/internal/proof/need"
	"github.com/sluice-go/sluice/proof/workspace"
)

// planted are tests that fail the first time that they run, each in another way.
const planted = `package planted

import (
	"os"
	"testing"
)

func first(name string) bool {
	_, err := os.Stat(name)
	if err != nil {
		os.WriteFile(name, nil, 0o644)
	}
	return err != nil
}

func TestVirtualTime(t *testing.T) {
	if first("virtual") {
		t.Error("planted")
	}
}

func TestRealTime(t *testing.T) {
	t.Run("part", func(t *testing.T) {
		t.Attr("need", "realtime")
		if first("real") {
			t.Error("planted")
		}
	})
}

func TestVerdict(t *testing.T) {
	t.Attr("need", "postgres")
	t.Attr("verdict", "true")
	if first("verdict") {
		t.Error("planted")
	}
}

func TestAlways(t *testing.T) {
	t.Attr("need", "realtime")
	t.Error("planted")
}
`

const plantedPanic = `package crash

import (
	"os"
	"testing"
)

func TestPanics(t *testing.T) {
	t.Attr("need", "realtime")
	if _, err := os.Stat("panicked"); err != nil {
		os.WriteFile("panicked", nil, 0o644)
		panic("planted")
	}
}

func TestAfter(t *testing.T) {}
`

const plantedFatal = `package fatal

import (
	"os"
	"runtime/debug"
	"testing"
)

func forEver(n int) int { return forEver(n+1) + n }

func TestFatal(t *testing.T) {
	t.Attr("need", "realtime")
	if _, err := os.Stat("fatal"); err != nil {
		os.WriteFile("fatal", nil, 0o644)
		debug.SetMaxStack(1 << 16)
		forEver(0)
	}
}
`

// A failure in real time is flaky if the test passes alone. One in virtual time, a verdict, and one
// that comes again are red.
func TestWhatIsRepeated(t *testing.T) {
	need.RealTime(t)
	dir := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module planted\n\ngo 1.26.0\n", "planted_test.go": planted, "crash/crash_test.go": plantedPanic, "fatal/fatal_test.go": plantedFatal} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	var out, log bytes.Buffer
	r := &run{tier: "proof", whole: true, began: time.Now(), out: &out, flakes: &history{}, results: map[string]map[string]testRecord{}}
	s := stage{name: "planted", env: []string{"GOWORK=off"}, budget: time.Minute}
	o := &outcome{}
	r.goTest(t.Context(), s, o, &log, []string{"go", "test", "./..."})

	if len(o.flaky) != 2 || o.flaky[0].Test != "TestRealTime" || o.flaky[1].Test != "TestPanics" {
		slices.SortFunc(o.flaky, func(a, b flake) int { return strings.Compare(a.Test, b.Test) })
		t.Errorf("flaky: %+v; want TestPanics and TestRealTime", o.flaky)
	}
	want := []string{"TestAlways", "TestVerdict", "TestVirtualTime", "fatal error: stack overflow"}
	if len(o.red) != len(want) {
		t.Errorf("red: %q; want %q", o.red, want)
	}
	for _, name := range want {
		if !strings.Contains(strings.Join(o.red, "\n"), name) {
			t.Errorf("red: %q; want %s", o.red, name)
		}
	}
	if r.results["planted/crash"]["TestAfter"].Result != "pass" {
		t.Errorf("TestAfter, behind the test that panics: %+v; want that it runs in a second process", r.results["planted/crash"])
	}
	if t.Failed() {
		t.Logf("%s\n%s", &out, &log)
	}
}

// Each package with tests is in make test or in make proof, and one whose tests may need more than
// Go in make proof.
func TestEveryTestIsInATier(t *testing.T) {
	need.RealTime(t) // go list
	t.Chdir("../..")
	r := &run{tier: "proof"}
	inTier := map[string][]string{}
	for _, tier := range []string{"test", "proof"} {
		for _, s := range tiers[tier] {
			for _, c := range s.commands {
				if c[0] != "go" || c[1] != "test" || slices.Contains(c, "-run") {
					continue
				}
				_, packages, err := r.expand(t.Context(), stage{}, c)
				if err != nil {
					t.Fatal(err)
				}
				inTier[tier] = append(inTier[tier], packages...)
			}
		}
	}
	packages, err := workspace.Packages(".")
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("go", append([]string{"list", "-f", "{{.ImportPath}} {{join .TestImports \" \"}} {{join .XTestImports \" \"}}"}, packages...)...).Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line)
		if len(words) < 2 {
			continue
		}
		if !slices.Contains(slices.Concat(inTier["test"], inTier["proof"]), words[0]) {
			t.Errorf("%s is in no tier: add it to a stage in stages.go", words[0])
		}
		if slices.ContainsFunc(words[1:], func(path string) bool { return strings.HasSuffix(path, "/internal/proof/need") }) && !slices.Contains(inTier["proof"], words[0]) {
			t.Errorf("%s has tests with needs and is in no stage of make proof", words[0])
		}
	}
}

func TestStageNeedsAreThings(t *testing.T) {
	for tier, stages := range tiers {
		for _, s := range stages {
			for _, name := range s.needs {
				if _, known := need.Lookup(name); !known {
					t.Errorf("%s of make %s needs %q, which package need does not know", s.name, tier, name)
				}
			}
			if s.budget == 0 {
				t.Errorf("%s of make %s has no budget", s.name, tier)
			}
		}
	}
}

func TestSecondFlakeIsRed(t *testing.T) {
	now := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	f := flake{Package: module + "/kafka", Test: "TestX"}
	h := &history{Runs: []pastRun{{Flaky: []flake{f}}}}
	for range rememberedRuns - 2 {
		h.Runs = append(h.Runs, pastRun{})
	}
	if again := h.repeated([]flake{f}, now); !slices.Equal(again, []string{"kafka.TestX"}) {
		t.Errorf("flaky again within %d runs: %q", rememberedRuns, again)
	}
	h.Runs = append(h.Runs, pastRun{})
	if again := h.repeated([]flake{f}, now); len(again) != 0 {
		t.Errorf("flaky again after %d runs: %q", rememberedRuns, again)
	}
}

func TestFlakyTwiceInOneRunIsRed(t *testing.T) {
	f := flake{Package: module, Test: "TestX"}
	if again := (&history{}).repeated([]flake{f, f}, time.Now()); len(again) != 1 {
		t.Errorf("flaky twice in one run: %q", again)
	}
}

// The race detector's word is a verdict, whichever part of the test it names.
func TestDataRaceIsNotRepeated(t *testing.T) {
	rs := results{}
	for _, e := range []event{
		{Action: "attr", Package: "p", Test: "TestX", Key: need.Attribute, Value: "realtime"},
		{Action: "output", Package: "p", Test: "TestX", Output: "    testing.go:1: race detected during execution of test\n"},
		{Action: "fail", Package: "p", Test: "TestX"},
		{Action: "fail", Package: "p"},
	} {
		rs.add(e, io.Discard, func(string, *packageResult) {})
	}
	if rs["p"].repeatable("TestX") {
		t.Error("a data race would be repeated")
	}
}

func TestOutputKeepsTheEnd(t *testing.T) {
	var o output
	for range 10_000 {
		o.add("a line that says little\n")
	}
	o.add("the end\n")
	if len(o) > 3*keptOutput || !strings.HasSuffix(o.String(), "the end\n") {
		t.Errorf("%d bytes are kept", len(o))
	}
}

func TestQuarantine(t *testing.T) {
	now := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	q := quarantined{test: "kafka.TestX", reason: "a broker's bug", lastDay: "2026-12-01"}
	if !inQuarantine([]quarantined{q}, q.test, now) || inQuarantine([]quarantined{q}, q.test, now.AddDate(0, 0, 1)) {
		t.Error("quarantine holds until the end of its day")
	}
	for what, list := range map[string][]quarantined{
		"no reason":         {{test: "a", lastDay: "2026-12-02"}},
		"more than 14 days": {{test: "a", reason: "b", lastDay: "2026-12-20"}},
		"no day":            {{test: "a", reason: "b"}},
		"eleven tests":      slices.Repeat([]quarantined{q}, 11),
	} {
		if checkQuarantine(list, now) == nil {
			t.Errorf("accepted: %s", what)
		}
	}
	if err := checkQuarantine([]quarantined{q}, now); err != nil {
		t.Error(err)
	}
}

// Only what passed without needing anything is left out of make proof, and only by a name that no
// test has that is still to run.
func TestWhatIsLeftOut(t *testing.T) {
	rec := &record{Packages: map[string]map[string]testRecord{
		"a": {"TestPure": {Result: "pass"}, "TestServer": {Result: "skip", Needs: []string{"kafka"}}, "TestPartly": {Result: "pass", Needs: []string{"kafka"}}, "TestTwin": {Result: "pass"}},
		"b": {"TestTwin": {Result: "skip"}},
	}}
	if got := rec.passed([]string{"a", "b"}); got != "^(TestPure)$" {
		t.Errorf("left out: %s", got)
	}
	if got := rec.passed([]string{"a", "c"}); got != "" {
		t.Errorf("left out beside a package that is not recorded: %s", got)
	}
}

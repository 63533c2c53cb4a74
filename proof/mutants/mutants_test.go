package mutants

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/internal/proof/need"
)

// servers are what the tests of mutants need.
var servers = map[string]func(testing.TB){"postgres": need.Postgres, "mariadb": need.MariaDB, "sqlserver": need.SQLServer, "azurite": need.Azurite}

// TestMutants runs the quick mutants, whose tests need Go alone. With SLUICE_MUTANTS=all it runs
// all of them, and prints a table; with parts of names, separated by |, those
// with one of the parts. The texts of all of them must be in the source in any case.
func TestMutants(t *testing.T) {
	root, err := Root(mustGetwd(t))
	if err != nil {
		t.Fatal(err)
	}
	which := os.Getenv("SLUICE_MUTANTS")
	named := func(name string) bool {
		return slices.ContainsFunc(strings.Split(which, "|"), func(part string) bool { return strings.Contains(name, part) })
	}
	var outcomes []Outcome
	for i := range table {
		m := &table[i]
		t.Run(m.Name, func(t *testing.T) {
			if _, err := m.Source(root); err != nil {
				t.Fatal(err)
			}
			if which == "all" || which != "" && named(m.Name) || which == "" && m.Quick {
				if m.Needs != "" {
					servers[m.Needs](t)
				}
				o, err := m.Run(t.Context(), root, t.TempDir())
				outcomes = append(outcomes, o)
				if err != nil {
					t.Fatal(err)
				}
				t.Logf("noticed by %s after %.0f s", o.FailedTest, o.Took.Seconds())
			}
		})
	}
	if which != "" {
		fmt.Printf("%d of %d mutants:\n\n%s\n", len(outcomes), len(table), Table(outcomes))
	}
}

func mustGetwd(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestPageIsCurrent checks that docs/reference/mistakes.md lists the mutants. With UPDATE=1 it
// writes the page.
func TestPageIsCurrent(t *testing.T) {
	root, err := Root(mustGetwd(t))
	if err != nil {
		t.Fatal(err)
	}
	var page strings.Builder
	page.WriteString("# Mistakes that the tests notice\n\nEach row is a mistake in the source, and the test that notices it. `make mutants` makes them all, one at a time.\n\n| what is broken | file | noticed by |\n|---|---|---|\n")
	for _, m := range table {
		test, _, _ := strings.Cut(m.Test[2], "/")
		fmt.Fprintf(&page, "| %s | `%s` | `%s` |\n", m.Name, m.File, strings.Trim(test, "^$"))
	}
	path := filepath.Join(root, "docs/reference/mistakes.md")
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(path, []byte(page.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if found, err := os.ReadFile(path); err != nil || string(found) != page.String() {
		t.Errorf("%s does not list the mutants (%v): run UPDATE=1 go test ./proof/mutants -run TestPageIsCurrent", path, err)
	}
}

// TestRead reads what failed runs print: a violation, panics of a world, a world without an
// end, and a test outside the simulation.
func TestRead(t *testing.T) {
	for _, c := range []struct {
		output string
		want   Outcome
	}{
		{"=== RUN   TestStreams\n    sim_test.go:125: caught after 55 seeds: event 3/17 lost\n--- FAIL: TestStreams (0.41s)\nFAIL\n",
			Outcome{FailedTest: "TestStreams", Seeds: "55", Finding: "event 3/17 lost"}},
		{"=== RUN   TestChains\n--- FAIL: TestChains (0.41s)\npanic: deadlock: all goroutines in bubble are blocked\nrepeat: SLUICE_SIM_CHAIN=4 go test ./proof/sim -run TestChains -v\n",
			Outcome{FailedTest: "TestChains", Seeds: "4", Finding: "panic: deadlock: all goroutines in bubble are blocked"}},
		{"=== RUN   TestStreams\npanic: runtime error\n\ngoroutine 7 [running, synctest bubble 1] {replay: \"SLUICE_SIM_STREAM=9 go test ./proof/sim -run TestStreams -v\"}:\n",
			Outcome{FailedTest: "TestStreams", Seeds: "9", Finding: "panic: runtime error"}},
		{"=== RUN   TestTurns\n--- PASS: TestTurns (0.1s)\n=== RUN   TestTurnsTaken\npanic: test timed out after 5m0s\n", Outcome{FailedTest: "TestTurnsTaken"}},
		{"=== RUN   TestTxStore\n=== RUN   TestTxStore/fence\n--- FAIL: TestTxStore (0.1s)\n    --- FAIL: TestTxStore/fence (0.1s)\n", Outcome{FailedTest: "TestTxStore"}},
	} {
		var got Outcome
		got.read(c.output)
		if got.FailedTest != c.want.FailedTest || got.Seeds != c.want.Seeds || got.Finding != c.want.Finding {
			t.Errorf("got %q, %q, %q of %q, want %q, %q, %q", got.FailedTest, got.Seeds, got.Finding, c.output, c.want.FailedTest, c.want.Seeds, c.want.Finding)
		}
	}
}

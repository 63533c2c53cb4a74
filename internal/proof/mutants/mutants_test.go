package mutants

import (
	"bufio"
	"bytes"
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
// all of them, and prints the table of docs/guarantees.md; with parts of names, separated by |, those
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
				t.Logf("noticed by %s after %.0f s", o.By, o.Took.Seconds())
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

// TestDocumented checks that the table of docs/guarantees.md has a row for each mutant, and
// names a test that notices it.
func TestDocumented(t *testing.T) {
	root, err := Root(mustGetwd(t))
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(root, "docs/guarantees.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := bytes.Cut(page, []byte("\n## Mistakes that the tests notice\n"))
	if !found {
		t.Fatal("docs/guarantees.md has no section of mistakes that the tests notice")
	}
	section, _, _ = bytes.Cut(section, []byte("\n## "))
	documented := map[string]bool{}
	for lines := bufio.NewScanner(bytes.NewReader(section)); lines.Scan(); {
		if cells := strings.Split(lines.Text(), " | "); len(cells) > 2 && strings.HasPrefix(cells[2], "`Test") {
			documented[strings.TrimPrefix(cells[0], "| ")+cells[1]] = true
		}
	}
	for _, m := range table {
		if row := m.Name + "`" + m.File + "`"; !documented[row] {
			t.Errorf("no row with the test that notices %q in %s: run SLUICE_MUTANTS=%q go test ./internal/proof/mutants -v", m.Name, m.File, m.Name)
		} else {
			delete(documented, row)
		}
	}
	for row := range documented {
		t.Errorf("a row of %q, which is no mutant of the table", row)
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
			Outcome{By: "TestStreams", Seeds: "55", Finding: "event 3/17 lost"}},
		{"=== RUN   TestChains\n--- FAIL: TestChains (0.41s)\npanic: deadlock: all goroutines in bubble are blocked\nrepeat: SLUICE_SIM_CHAIN=4 go test ./internal/proof/sim -run TestChains -v\n",
			Outcome{By: "TestChains", Seeds: "4", Finding: "panic: deadlock: all goroutines in bubble are blocked"}},
		{"=== RUN   TestStreams\npanic: runtime error\n\ngoroutine 7 [running, synctest bubble 1] {replay: \"SLUICE_SIM_STREAM=9 go test ./internal/proof/sim -run TestStreams -v\"}:\n",
			Outcome{By: "TestStreams", Seeds: "9", Finding: "panic: runtime error"}},
		{"=== RUN   TestTurns\n--- PASS: TestTurns (0.1s)\n=== RUN   TestTurnsTaken\npanic: test timed out after 5m0s\n", Outcome{By: "TestTurnsTaken"}},
		{"=== RUN   TestTxStore\n=== RUN   TestTxStore/fence\n--- FAIL: TestTxStore (0.1s)\n    --- FAIL: TestTxStore/fence (0.1s)\n", Outcome{By: "TestTxStore"}},
	} {
		var got Outcome
		got.read(c.output)
		if got.By != c.want.By || got.Seeds != c.want.Seeds || got.Finding != c.want.Finding {
			t.Errorf("got %q, %q, %q of %q, want %q, %q, %q", got.By, got.Seeds, got.Finding, c.output, c.want.By, c.want.Seeds, c.want.Finding)
		}
	}
}

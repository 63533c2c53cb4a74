package mutants

import (
	"os"
	"strings"
	"testing"
)

// TestMutants runs the quick mutants. With SLUICE_MUTANTS=all it runs all of them, and
// prints the table of docs/guarantees.md; with a part of a name, those with that part. The
// texts of all of them must be in the source in any case.
func TestMutants(t *testing.T) {
	root, err := Root(mustGetwd(t))
	if err != nil {
		t.Fatal(err)
	}
	which := os.Getenv("SLUICE_MUTANTS")
	var outcomes []Outcome
	for i := range table {
		m := &table[i]
		t.Run(m.Name, func(t *testing.T) {
			if _, err := m.Source(root); err != nil {
				t.Fatal(err)
			}
			if which == "all" || which != "" && strings.Contains(m.Name, which) || which == "" && m.Quick {
				o, err := m.Run(t.Context(), root, t.TempDir())
				if err != nil {
					t.Fatal(err)
				}
				t.Logf("noticed by %s after %.0f s", o.By, o.Took.Seconds())
				outcomes = append(outcomes, o)
			}
		})
	}
	if which != "" {
		t.Logf("%d of %d mutants:\n%s", len(outcomes), len(table), Table(outcomes))
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

package sqlstore

import (
	"flag"
	"os"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the statements that Babelfish parses at its start")

// TestParsedStatements: the Babelfish of package sqlservertest knows the statements for SQL Server.
func TestParsedStatements(t *testing.T) {
	const file = "../internal/proof/sqlservertest/statements.sql"
	texts := mssqlSent(t)
	slices.Sort(texts)
	want := strings.Join(slices.Compact(texts), "\nGO\n") + "\nGO\n"
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil || string(got) != want {
		t.Errorf("%s is not what a store sends: run go test ./sqlstore -run %s -update (error %v)", file, t.Name(), err)
	}
}

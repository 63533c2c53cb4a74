//go:build interop

package sqlstore

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Statements that sqlfluff's grammars lack; the tests on Babelfish and MariaDB execute them.
var (
	mssqlUnparsed = regexp.MustCompile(`^KILL %d$`)
	mysqlUnparsed = regexp.MustCompile(`^(SAVEPOINT|RELEASE SAVEPOINT|ROLLBACK TO SAVEPOINT|LOAD DATA) `)
)

// TestTSQLGrammar: every statement for SQL Server is T-SQL by the grammar of sqlfluff, so that none
// depends on what Babelfish accepts beside it.
func TestTSQLGrammar(t *testing.T) {
	mustParse(t, "tsql", slices.DeleteFunc(mssqlSent(t), mssqlUnparsed.MatchString))
	mustNotParse(t, "tsql",
		mssqlStatements.Lock+" FOR UPDATE", mssqlStatements.Read+" LIMIT 1", mssqlStatements.Epoch+")",
		strings.Replace(mssqlStatements.Park, "END CATCH", "", 1), strings.Replace(mssqlStatements.Held, "GROUP BY", "GROUP", 1),
		"INSERT INTO t (a) VALUES (1) ON CONFLICT DO NOTHING", "SELECT a || b FROM t", "CREATE TABLE t (a bigint AUTO_INCREMENT)")
}

// TestMySQLGrammar: every statement for MySQL and MariaDB is MySQL's SQL, so that none depends on what
// MariaDB alone accepts.
func TestMySQLGrammar(t *testing.T) {
	parsable := func(query string) string { return strings.ReplaceAll(query, "?", "NULL") } // a placeholder is no literal for sqlfluff
	var texts []string
	for _, text := range slices.DeleteFunc(mysqlSent(t), mysqlUnparsed.MatchString) {
		texts = append(texts, parsable(text))
	}
	mustParse(t, "mysql", texts)
	mustNotParse(t, "mysql",
		parsable(mysqlStatements.Epoch)+" RETURNING epoch", parsable(mysqlStatements.Move)+")", "INSERT INTO t (a) VALUES (1) ON CONFLICT DO NOTHING",
		"SELECT a FROM t FOR JSON PATH")
}

func mustParse(t *testing.T, dialect string, texts []string) {
	t.Helper()
	t.Logf("%d statements", len(texts))
	for i, problem := range grammar(t, dialect, texts) {
		if problem != "" {
			t.Errorf("%s: %.1000s", problem, texts[i])
		}
	}
}

func mustNotParse(t *testing.T, dialect string, texts ...string) {
	t.Helper()
	for i, problem := range grammar(t, dialect, texts) {
		if problem == "" {
			t.Errorf("the grammar accepts: %s", texts[i])
		}
	}
}

// grammar returns what sqlfluff finds wrong in each statement.
func grammar(t *testing.T, dialect string, texts []string) []string {
	t.Helper()
	job, err := json.Marshal(map[string]any{"dialect": dialect, "statements": texts})
	if err != nil {
		t.Fatal(err)
	}
	python, err := filepath.Abs("../.dev/sqlfluff/venv/bin/python")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(python); err != nil {
		t.Fatal("sqlfluff is not installed: run scripts/install-sqlfluff, or leave these tests out by leaving out -tags interop")
	}
	cmd := exec.CommandContext(t.Context(), python, filepath.Join("testdata", "grammar", "parse.py"))
	cmd.Stdin, cmd.Stderr = bytes.NewReader(job), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var problems []string
	if err := json.Unmarshal(out, &problems); err != nil || len(problems) != len(texts) {
		t.Fatalf("%d answers for %d statements, %v", len(problems), len(texts), err)
	}
	return problems
}

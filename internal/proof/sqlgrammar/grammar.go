// Package sqlgrammar parses SQL statements with grammars that nobody here wrote, those of sqlfluff,
// and finds the statements of a package: what it sends to a [Recorder], and the literals of its
// source.
package sqlgrammar

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/internal/proof/need"
	"github.com/sluice-go/sluice/internal/proof/testserver"
)

//go:embed parse.py
var program string

// MustParse fails the test for each statement that is not of a dialect of sqlfluff, such as tsql.
func MustParse(t *testing.T, dialect string, texts []string) {
	t.Helper()
	t.Logf("%d statements", len(texts))
	for i, problem := range problems(t, dialect, texts) {
		if problem != "" {
			t.Errorf("%s: %.1000s", problem, texts[i])
		}
	}
}

// MustNotParse fails the test for each statement that is of a dialect.
func MustNotParse(t *testing.T, dialect string, texts ...string) {
	t.Helper()
	for i, problem := range problems(t, dialect, texts) {
		if problem == "" {
			t.Errorf("the grammar accepts: %s", texts[i])
		}
	}
}

// MySQL returns a statement as the grammar takes it, for which a placeholder is no literal. Of what
// MySQL's manual has, it does not know STRAIGHT_JOIN between two tables, and the columns of a
// CREATE TABLE … AS SELECT.
func MySQL(text string) string {
	return strings.NewReplacer("?", "NULL", " STRAIGHT_JOIN ", " JOIN ", " (sluice_row INT NOT NULL PRIMARY KEY) ENGINE = InnoDB AS ", " AS ").Replace(text)
}

// problems returns what sqlfluff finds wrong in each statement.
func problems(t *testing.T, dialect string, texts []string) []string {
	t.Helper()
	need.SQLFluff(t)
	job, err := json.Marshal(map[string]any{"dialect": dialect, "statements": texts})
	if err != nil {
		t.Fatal(err)
	}
	root, err := testserver.Repository()
	if err != nil {
		t.Fatal(err)
	}
	python := filepath.Join(root, ".dev/sqlfluff/venv/bin/python")
	cmd := exec.CommandContext(t.Context(), python, "-c", program)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(job), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	if err := json.Unmarshal(out, &list); err != nil || len(list) != len(texts) {
		t.Fatalf("%d answers for %d statements, %v", len(list), len(texts), err)
	}
	return list
}

package sqlgrammar

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// statementHead begins a literal of the source that is a statement or has one inside.
var statementHead = regexp.MustCompile(`(?m)^\s*(SELECT|INSERT|UPDATE|DELETE|IF|DECLARE|EXEC|WITH|MERGE|BEGIN|SET|CREATE|REPLACE|SAVEPOINT|RELEASE|ROLLBACK|LOAD|DO|KILL)\b`)

// place is where a literal of the source has something else in a statement.
var place = regexp.MustCompile("\\{[^}]*\\}|\\?|%(?:\\[\\d+\\])?[a-z]|@p\\d+|`?partition`?")

// MustHaveAll checks that no statement in the source files that a pattern matches is missing among
// texts. A literal that is one of the others is no statement.
func MustHaveAll(t *testing.T, pattern string, texts []string, others ...string) {
	t.Helper()
	all := strings.Join(texts, "\n")
	names, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			literal, ok := n.(*ast.BasicLit)
			if !ok || literal.Kind != token.STRING {
				return true
			}
			text, _ := strconv.Unquote(literal.Value)
			if slices.Contains(others, text) || !statementHead.MatchString(text) || !strings.Contains(strings.TrimSpace(text), " ") {
				return true
			}
			found++
			for _, part := range place.Split(text, -1) {
				if part = strings.TrimSpace(part); !strings.Contains(all, part) {
					t.Errorf("%s: a statement that is not checked: have the test bring it about: %s", name, fmt.Sprintf("%.300s", part))
				}
			}
			return true
		})
	}
	if found == 0 {
		t.Errorf("no statement in %s", pattern)
	}
}

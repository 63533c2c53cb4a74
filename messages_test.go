package sluice_test

import (
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// messagesPage explains what operators meet.
const messagesPage = "docs/reference/messages.md"

func TestMessagesAreExplained(t *testing.T) {
	var first strings.Builder // the first cells of all rows: another row may refer to a message
	for line := range strings.Lines(source(t, messagesPage)) {
		if cells, ok := strings.CutPrefix(line, "| "); ok {
			cell, _, _ := strings.Cut(cells, " | ")
			first.WriteString(cell + "\n")
		}
	}
	page := first.String()
	explained := func(what, text string) {
		t.Helper()
		if !strings.Contains(page, "`"+text+"`") {
			t.Errorf("%s does not explain the %s %q", messagesPage, what, text)
		}
	}
	lines := logLines(t)
	if len(lines) < 50 {
		t.Fatalf("found %d log lines", len(lines))
	}
	for text, place := range lines {
		explained("log line of "+place, text)
	}
	failed := regexp.MustCompile(`ActionFailed +RecordKind = "(\w+)"`).FindStringSubmatch(source(t, "autoscale/record.go"))
	if failed == nil {
		t.Fatal("no kind of record for a failed action")
	}
	explained("log line of the decision log", failed[1])
	kinds := regexp.MustCompile(`Warning\w+ +(?:WarningKind )?= "([^"]+)"`).FindAllStringSubmatch(source(t, "health/watcher.go"), -1)
	if len(kinds) < 5 {
		t.Fatalf("found %d warnings", len(kinds))
	}
	for _, m := range kinds {
		explained("warning", m[1])
	}
	names := regexp.MustCompile(`Kind\w+: "([^"]+)"`).FindAllStringSubmatch(source(t, "driver/observation.go"), -1)
	if len(names) < 20 {
		t.Fatalf("found %d kinds of observation", len(names))
	}
	for _, m := range names {
		explained("observation", m[1])
	}
	sentinel := regexp.MustCompile(`(?m)^(?:var |\t)Err\w+ += errors\.New\("([^":]+)`)
	n := 0
	for _, in := range []string{".", "driver", "stamp", "eventhub", "kafka", "pgstore", "sqlstore", "blobstore", "cosmos", "sender", "webhook", "autoscale", "audit", "pipeline", "pipeline/web", "pipeline/internal/rollup"} {
		files, err := filepath.Glob(filepath.Join(in, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			for _, m := range sentinel.FindAllStringSubmatch(source(t, file), -1) {
				n++
				explained("error of "+file, m[1])
			}
		}
	}
	if n < 20 {
		t.Errorf("found %d errors", n)
	}
}

// logLines finds the messages of all log lines at the levels warn and error in the product's
// source, with the place of each.
func logLines(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	files := token.NewFileSet()
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != "." && (strings.HasPrefix(d.Name(), ".") || slices.Contains([]string{"proof", "testdata", "examples", "docs", "sluicetest", "storetest", "autoscaletest"}, d.Name())):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			text := logLine(n)
			if name, ok := text.(*ast.Ident); ok {
				text = constantIn(file, name.Name)
			}
			if literal, ok := text.(*ast.BasicLit); ok {
				found[constant.StringVal(constant.MakeFromLiteral(literal.Value, token.STRING, 0))] = path
			} else if text != nil {
				t.Errorf("%s: the message of a log line is not a constant, and cannot be searched for", files.Position(n.Pos()))
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// logLine returns the message of a node that logs at warn or error, or that returns such a level
// and a message; nil for other nodes.
func logLine(n ast.Node) ast.Expr {
	var values []ast.Expr
	switch n := n.(type) {
	case *ast.ReturnStmt:
		values = n.Results
	case *ast.CallExpr:
		call, ok := n.Fun.(*ast.SelectorExpr)
		if !ok || !isLog(call.X) {
			return nil
		}
		values = n.Args
		switch name := call.Sel.Name; {
		case len(values) > 1 && isText(values[1], "kind"): // a warning, which its kind explains
			return nil
		case name == "Warn" || name == "Error":
			return values[0]
		case name == "WarnContext" || name == "ErrorContext":
			return values[1]
		case name == "Log" && isVariable(values[1]):
			if text, ok := values[2].(*ast.BasicLit); ok { // else it is returned with its level
				return text
			}
		}
	}
	for i, v := range values[:max(len(values)-1, 0)] {
		if level, ok := v.(*ast.SelectorExpr); ok && (level.Sel.Name == "LevelWarn" || level.Sel.Name == "LevelError") {
			return values[i+1]
		}
	}
	return nil
}

func isText(x ast.Expr, text string) bool {
	literal, ok := x.(*ast.BasicLit)
	return ok && literal.Value == strconv.Quote(text)
}

// isVariable reports whether a level is decided elsewhere: it may be that of a warning.
func isVariable(level ast.Expr) bool {
	_, ok := level.(*ast.Ident)
	return ok
}

// isLog reports whether an expression is a logger, by its name.
func isLog(x ast.Expr) bool {
	switch x := x.(type) {
	case *ast.Ident:
		return strings.EqualFold(x.Name, "log") || x.Name == "slog" || x.Name == "logger"
	case *ast.SelectorExpr:
		return isLog(x.Sel)
	}
	return false
}

// constantIn returns the value of a constant of a file, nil if it has none of that name.
func constantIn(file *ast.File, name string) ast.Expr {
	for _, d := range file.Decls {
		if d, ok := d.(*ast.GenDecl); ok && d.Tok == token.CONST {
			for _, spec := range d.Specs {
				if spec := spec.(*ast.ValueSpec); spec.Names[0].Name == name && len(spec.Values) == 1 {
					return spec.Values[0]
				}
			}
		}
	}
	return &ast.Ident{Name: name}
}

func source(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

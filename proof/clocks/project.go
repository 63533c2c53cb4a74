package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// project is the tests of all packages, with what they can reach.
type project struct {
	fset     *token.FileSet
	nodes    map[name][]*node // several have one name: methods, and files for different systems
	tests    []*node
	problems []string // random choices, which are refused wherever they are
}

// name names a declaration in a directory. A method's begins with a dot, and lacks its type.
type name struct{ dir, name string }

// node is a function, a method, a type, or a variable with its value.
type node struct {
	name
	receiver string    // a method's type
	mentions []name    // declarations that it may reach; many name nothing
	findings []finding // what needs real time
	marked   bool      // calls package need or synctest.Test
}

// finding is a place that needs real time.
type finding struct {
	position token.Position
	what     string
}

func newProject() *project {
	return &project{fset: token.NewFileSet(), nodes: map[name][]*node{}}
}

var testName = regexp.MustCompile(`^(Test|Fuzz)([^a-z]|$)`)

// add adds a file. Of a file that is no test, it adds the functions that take a testing.TB.
func (p *project) add(file string, source []byte) error {
	test := strings.HasSuffix(file, "_test.go")
	if !test && !bytes.Contains(source, []byte(`"testing"`)) {
		return nil
	}
	parsed, err := parser.ParseFile(p.fset, file, source, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	r := &reader{project: p, dir: path.Dir(file), imports: imports(parsed)}
	for _, decl := range parsed.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			if !test && !r.takesTesting(decl.Type) {
				continue
			}
			n := r.function(decl)
			if test && decl.Recv == nil && testName.MatchString(decl.Name.Name) && decl.Name.Name != "TestMain" {
				p.tests = append(p.tests, n)
			}
		case *ast.GenDecl:
			for _, spec := range decl.Specs {
				r.spec(spec)
			}
		}
	}
	return nil
}

// imports maps the names of a file's imports to their paths.
func imports(file *ast.File) map[string]string {
	list := map[string]string{}
	for _, spec := range file.Imports {
		to, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue // the parser has accepted it
		}
		local := path.Base(to)
		if strings.HasPrefix(local, "v") && len(local) == 2 { // math/rand/v2
			local = path.Base(path.Dir(to))
		}
		if spec.Name != nil {
			local = spec.Name.Name
		}
		list[local] = to
	}
	return list
}

// check returns the violations, sorted. An exception is a name whose findings are allowed.
func (p *project) check(exceptions map[name]string) []string {
	problems := slices.Clone(p.problems)
	used := map[name]bool{}
	for _, test := range p.tests {
		found, marked := p.reach(test, exceptions, used)
		if marked || found == nil {
			continue
		}
		problems = append(problems, fmt.Sprintf("%s:%d: %s %s: begin it with need.RealTime(t), or wait for a condition, or run it in synctest.Test",
			found.position.Filename, found.position.Line, test.name.name, found.what))
	}
	for exception := range exceptions {
		if !used[exception] {
			problems = append(problems, fmt.Sprintf("%s: the exception %s is not needed: delete it from proof/clocks", exception.dir, exception.name))
		}
	}
	slices.Sort(problems)
	return slices.Compact(problems)
}

// reach returns the first finding in what a test reaches, and whether any of that is marked.
func (p *project) reach(test *node, exceptions map[name]string, used map[name]bool) (found *finding, marked bool) {
	p.walk(test, func(n *node) {
		marked = marked || n.marked
		if _, excepted := exceptions[n.name]; excepted && len(n.findings) > 0 {
			used[n.name] = true
		} else if found == nil && len(n.findings) > 0 {
			found = &n.findings[0]
		}
	})
	return found, marked
}

// walk visits what a test reaches: what is mentioned, methods only if their type is mentioned, too.
func (p *project) walk(test *node, visit func(*node)) {
	mentioned := map[name]bool{}
	waiting := map[name][]*node{} // methods, by their types
	for queue := []*node{test}; len(queue) > 0; queue = queue[1:] {
		visit(queue[0])
		for _, mention := range queue[0].mentions {
			if mentioned[mention] {
				continue
			}
			mentioned[mention] = true
			for _, next := range p.nodes[mention] {
				receiver := name{next.dir, next.receiver}
				if next.receiver == "" || mentioned[receiver] {
					queue = append(queue, next)
				} else {
					waiting[receiver] = append(waiting[receiver], next)
				}
			}
			queue = append(queue, waiting[mention]...)
		}
	}
}

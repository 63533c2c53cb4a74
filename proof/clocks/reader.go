package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"slices"
	"strings"
)

// reader reads the declarations of one file.
type reader struct {
	project *project
	dir     string
	imports map[string]string
	elapsed map[string]bool // the variables of a declaration that hold elapsed time
	moments map[string]bool // those that hold the time at some moment
}

// processes are the functions that start one.
var processes = map[string][]string{"os/exec": {"Command", "CommandContext"}, "os": {"StartProcess"}}

// steady are the functions of package need that mark nothing.
var steady = []string{"Seed", "Rand", "Verdict", "Check", "Demanded", "Lookup", "Names"}

// generators make a source of random numbers from a seed.
var generators = []string{"New", "NewPCG", "NewChaCha8", "NewSource", "NewZipf"}

// function adds a function or method to the project.
func (r *reader) function(decl *ast.FuncDecl) *node {
	if decl.Recv == nil {
		return r.read(decl.Name.Name, "", decl)
	}
	receiver := ""
	contains(decl.Recv.List[0].Type, func(at ast.Node) bool { // the first identifier: *T, T[P]
		ident, is := at.(*ast.Ident)
		if is {
			receiver = ident.Name
		}
		return is
	})
	return r.read("."+decl.Name.Name, receiver, decl)
}

// spec adds variables, or a type.
func (r *reader) spec(spec ast.Spec) {
	switch spec := spec.(type) {
	case *ast.TypeSpec:
		r.read(spec.Name.Name, "", spec)
	case *ast.ValueSpec:
		for _, ident := range spec.Names {
			r.read(ident.Name, "", spec)
		}
	}
}

// read adds a declaration to the project.
func (r *reader) read(as, receiver string, decl ast.Node) *node {
	n := &node{name: name{r.dir, as}, receiver: receiver}
	r.elapsed, r.moments = map[string]bool{}, map[string]bool{}
	var visit func(ast.Node) bool
	visit = func(at ast.Node) bool {
		switch at := at.(type) {
		case *ast.AssignStmt:
			r.assign(at.Lhs, at.Rhs)
		case *ast.ValueSpec:
			names := make([]ast.Expr, len(at.Names))
			for i, ident := range at.Names {
				names[i] = ident
			}
			r.assign(names, at.Values)
		case *ast.Ident:
			n.mentions = append(n.mentions, name{r.dir, at.Name})
		case *ast.SelectorExpr:
			if !r.selector(n, at) {
				n.mentions = append(n.mentions, name{r.dir, "." + at.Sel.Name})
				ast.Inspect(at.X, visit)
			}
			return false // the name alone is no mention
		case *ast.CallExpr:
			r.call(n, at)
		case *ast.ExprStmt:
			if received, is := at.X.(*ast.UnaryExpr); is && r.pauses(received.X, "After") { // <-time.After(d)
				r.find(n, at, "sleeps")
			}
		case *ast.CommClause:
			if received, is := at.Comm.(*ast.ExprStmt); is { // one of several events: no pause
				ast.Inspect(received.X, visit)
				for _, statement := range at.Body {
					ast.Inspect(statement, visit)
				}
				return false
			}
		case *ast.BinaryExpr:
			r.compare(n, at)
		}
		return true
	}
	ast.Inspect(decl, visit)
	r.project.nodes[n.name] = append(r.project.nodes[n.name], n)
	return n
}

// compare looks for elapsed time that is compared with anything but a limit.
func (r *reader) compare(n *node, at *ast.BinaryExpr) {
	ordered := slices.Contains([]token.Token{token.LSS, token.LEQ, token.GTR, token.GEQ}, at.Op)
	if ordered && (r.isElapsed(at.X) || r.isElapsed(at.Y)) && !r.isLimit(at.X) && !r.isLimit(at.Y) {
		r.find(n, at, "compares elapsed time")
	}
}

func (r *reader) find(n *node, at ast.Node, what string) {
	n.findings = append(n.findings, finding{r.project.fset.Position(at.Pos()), what})
}

// selector reads x.Name, and reports whether x is an import, not a value.
func (r *reader) selector(n *node, at *ast.SelectorExpr) bool {
	from, to := r.imported(at)
	switch {
	case from == module+"/internal/proof/need":
		n.marked = n.marked || !slices.Contains(steady, to)
	case from == "testing/synctest" && to == "Test":
		n.marked = true
	case slices.Contains(processes[from], to):
		r.find(n, at, "starts a process")
	case from == module || strings.HasPrefix(from, module+"/"):
		n.mentions = append(n.mentions, name{path.Join(".", strings.TrimPrefix(strings.TrimPrefix(from, module), "/")), to})
	}
	return from != ""
}

// imported returns the import and the name that a selector stands for, if it does.
func (r *reader) imported(of ast.Expr) (from, name string) {
	selector, is := of.(*ast.SelectorExpr)
	if !is {
		return "", ""
	}
	x, is := selector.X.(*ast.Ident)
	if !is {
		return "", ""
	}
	return r.imports[x.Name], selector.Sel.Name
}

// pauses reports whether an expression calls a function of package time with more than a
// millisecond, which lets others run.
func (r *reader) pauses(of ast.Expr, function string) bool {
	call, is := of.(*ast.CallExpr)
	if !is || len(call.Args) != 1 {
		return false
	}
	from, to := r.imported(call.Fun)
	unit, amount := r.imported(call.Args[0])
	return from == "time" && to == function && !(unit == "time" && amount == "Millisecond")
}

// call looks for pauses, for dice, and for min and max of elapsed time.
func (r *reader) call(n *node, at *ast.CallExpr) {
	if ident, is := at.Fun.(*ast.Ident); is && (ident.Name == "min" || ident.Name == "max") && slices.ContainsFunc(at.Args, r.isElapsed) {
		r.find(n, at, "compares elapsed time")
	}
	if r.pauses(at, "Sleep") {
		r.find(n, at, "sleeps")
	}
	from, to := r.imported(at.Fun)
	if from != "math/rand" && from != "math/rand/v2" {
		return
	}
	switch {
	case !slices.Contains(generators, to):
		r.refuse(at, "rand."+to+" draws from a seed that differs in each run")
	case slices.ContainsFunc(at.Args, r.isClock):
		r.refuse(at, "the clock is the seed")
	}
}

func (r *reader) refuse(at ast.Node, what string) {
	if r.dir == "internal/proof/need" {
		return // it is what the others use
	}
	position := r.project.fset.Position(at.Pos())
	r.project.problems = append(r.project.problems, fmt.Sprintf("%s:%d: %s: use need.Rand(t) or need.Seed(t)", position.Filename, position.Line, what))
}

// assign notes the variables that hold elapsed time, and refuses seeds that are the clock's.
func (r *reader) assign(to, values []ast.Expr) {
	for i, variable := range to {
		of := values
		if len(to) == len(values) {
			of = values[i : i+1]
		}
		ident, is := variable.(*ast.Ident)
		if !is {
			continue
		}
		if slices.ContainsFunc(of, r.isElapsed) {
			r.elapsed[ident.Name] = true
		}
		if len(of) == 1 && contains(of[0], r.isNow) {
			r.moments[ident.Name] = true
		}
		if strings.Contains(strings.ToLower(ident.Name), "seed") && slices.ContainsFunc(of, r.isClock) {
			r.refuse(variable, "the clock is the seed")
		}
	}
}

// isElapsed reports whether an expression is a time that has passed, or is made from one.
func (r *reader) isElapsed(of ast.Expr) bool {
	return contains(of, func(at ast.Node) bool {
		switch at := at.(type) {
		case *ast.Ident:
			return r.elapsed[at.Name]
		case *ast.SelectorExpr:
			from, to := r.imported(at)
			return from == "time" && to == "Since" || at.Sel.Name == "Sub" && contains(at.X, r.isNow)
		}
		return false
	})
}

// isLimit reports whether an expression is minutes or hours: a limit that a machine may take its
// time to reach, not a measurement.
func (r *reader) isLimit(of ast.Expr) bool {
	return contains(of, func(at ast.Node) bool {
		selector, is := at.(*ast.SelectorExpr)
		if !is {
			return false
		}
		from, to := r.imported(selector)
		return from == "time" && (to == "Minute" || to == "Hour")
	})
}

// isClock reports whether an expression has the number of a moment.
func (r *reader) isClock(of ast.Expr) bool {
	return contains(of, func(at ast.Node) bool {
		selector, is := at.(*ast.SelectorExpr)
		return is && strings.HasPrefix(selector.Sel.Name, "Unix") && contains(selector.X, r.isNow)
	})
}

// isNow reports whether a part of an expression is time.Now, or a variable that was set to it.
func (r *reader) isNow(at ast.Node) bool {
	switch at := at.(type) {
	case *ast.Ident:
		return r.moments[at.Name]
	case *ast.SelectorExpr:
		from, to := r.imported(at)
		return from == "time" && to == "Now"
	}
	return false
}

// contains reports whether a part of an expression fulfils a condition, functions in it aside.
func contains(of ast.Node, condition func(ast.Node) bool) (found bool) {
	ast.Inspect(of, func(at ast.Node) bool {
		if _, is := at.(*ast.FuncLit); is {
			return false
		}
		found = found || at != nil && condition(at)
		return !found
	})
	return found
}

// takesTesting reports whether a function has a parameter of testing's types.
func (r *reader) takesTesting(of *ast.FuncType) bool {
	return slices.ContainsFunc(of.Params.List, func(field *ast.Field) bool {
		return contains(field.Type, func(at ast.Node) bool {
			selector, is := at.(*ast.SelectorExpr)
			if !is {
				return false
			}
			from, to := r.imported(selector)
			return from == "testing" && (to == "T" || to == "TB" || to == "B" || to == "F")
		})
	})
}

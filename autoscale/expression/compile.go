package expression

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/conf"
	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/parser"
	"github.com/expr-lang/expr/vm"

	"github.com/sluice-go/sluice/internal/humanize"
)

// Bounds of an expression.
const (
	maxSource = 4 << 10
	maxNodes  = 500
	maxSpan   = 24 * time.Hour
)

// kind is the type of result that an expression must have.
type kind int

const (
	condition kind = iota
	number
)

// program is a compiled expression.
type program struct {
	vm         *vm.Program
	metrics    []string // all that it may use: its environment
	lookBack   time.Duration
	thresholds map[string][]float64 // by metric: the constants that it is compared with
	largest    float64              // value that it can have; infinite if that is not known
}

// Reserved reports whether a name has a meaning in expressions, so that no metric can
// have it.
func Reserved(name string) bool {
	_, function := functions(&evaluation{})[name]
	return function || slices.Contains([]string{
		"instances", "since_action", "abs", "ceil", "floor", "round",
		"true", "false", "nil", "and", "or", "not", "in", "if", "else", "let", "matches", "contains", "startsWith", "endsWith",
	}, name)
}

func compile(source string, kind kind, metrics []string) (*program, *Error) {
	if len(source) > maxSource {
		return nil, &Error{Reason: fmt.Sprintf("longer than %d bytes", maxSource)}
	}
	if !utf8.ValidString(source) {
		return nil, &Error{Reason: "not UTF-8"}
	}
	language := []expr.Option{
		expr.Env(environment(&evaluation{}, metrics)),
		expr.DisableAllBuiltins(),
		expr.EnableBuiltin("abs"), expr.EnableBuiltin("ceil"), expr.EnableBuiltin("floor"), expr.EnableBuiltin("round"),
		expr.DisableIfOperator(),
		expr.MaxNodes(maxNodes),
	}
	// Check the tree before anything is rewritten, so that errors name what the user
	// has written.
	check := &checker{metrics: metrics}
	tree, err := parse(source, language)
	if err != nil {
		return nil, withOffset(source, err)
	}
	ast.Walk(&tree.Node, check)
	if check.fault != nil {
		return nil, check.fault.locate(source)
	}
	largest := largest(tree.Node) // before anything is rewritten
	as := expr.AsFloat64()
	if kind == condition {
		as = expr.AsBool()
	}
	compiled, err := build(source, append(language, as, expr.Patch(&rewriter{metrics})))
	if err != nil {
		return nil, withOffset(source, err)
	}
	return &program{vm: compiled, metrics: metrics, lookBack: check.lookBack, thresholds: check.thresholds, largest: largest}, nil
}

// largest returns the largest value of a number, or of a condition that chooses between
// numbers; +Inf for anything else.
func largest(n ast.Node) float64 {
	switch n := n.(type) {
	case *ast.IntegerNode:
		return float64(n.Value)
	case *ast.FloatNode:
		return n.Value
	case *ast.ConditionalNode:
		return max(largest(n.Exp1), largest(n.Exp2))
	}
	return math.Inf(1)
}

// parse and build turn a panic of the library into an error: expressions are
// untrusted input.
func parse(source string, language []expr.Option) (tree *parser.Tree, err error) {
	defer recoverAsError(&err)
	c := conf.CreateNew()
	for _, option := range language {
		option(c)
	}
	return parser.ParseWithConfig(source, c)
}

func build(source string, options []expr.Option) (p *vm.Program, err error) {
	defer recoverAsError(&err)
	return expr.Compile(source, options...)
}

func recoverAsError(err *error) {
	if panicked := recover(); panicked != nil {
		*err = fmt.Errorf("cannot be parsed: %v", panicked)
	}
}

// withOffset converts the library's error, and takes its position over.
func withOffset(source string, err error) *Error {
	if e, ok := errors.AsType[*file.Error](err); ok {
		return (&fault{e.From, plainMessage(e.Message)}).locate(source)
	}
	return &Error{Reason: plainMessage(err.Error())}
}

// plainMessage returns the first line of a message of the library, with the Go types
// replaced by what a user of the language knows.
func plainMessage(message string) string {
	message, _, _ = strings.Cut(message, "\n")
	return strings.NewReplacer("float64", "a number", "bool", "a condition", "func(string, ...string) a number", "a function", ", but got ", ", but this is ").Replace(message)
}

// fault is an error at a rune, which is what the library counts.
type fault struct {
	rune   int
	reason string
}

func (f *fault) locate(source string) *Error {
	offset, n := len(source), 0
	for i := range source {
		if n == f.rune {
			offset = i
			break
		}
		n++
	}
	return &Error{Offset: offset, Reason: f.reason}
}

// checker refuses whatever the library parses but the language does not have.
type checker struct {
	metrics    []string
	lookBack   time.Duration
	thresholds map[string][]float64
	fault      *fault
}

func (c *checker) fail(n ast.Node, format string, args ...any) {
	if c.fault == nil {
		c.fault = &fault{n.Location().From, fmt.Sprintf(format, args...)}
	}
}

// Visit implements [ast.Visitor]. Children are visited before their parents.
func (c *checker) Visit(node *ast.Node) {
	switch n := (*node).(type) {
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.UnaryNode, *ast.ConditionalNode:
	case *ast.StringNode: // an argument, or the types don't fit
	case *ast.IdentifierNode:
		c.identifier(n)
	case *ast.BinaryNode:
		if !slices.Contains([]string{"+", "-", "*", "/", "**", "^", "==", "!=", "<", ">", "<=", ">=", "&&", "||", "and", "or"}, n.Operator) {
			c.fail(n, "%s is not an operator of this language", n.Operator)
		}
		c.noteThreshold(n)
	case *ast.BuiltinNode:
		c.call(n, n.Name, n.Arguments)
	case *ast.CallNode:
		callee, ok := n.Callee.(*ast.IdentifierNode)
		if !ok {
			c.fail(n, "only functions can be called")
			return
		}
		c.call(n, callee.Value, n.Arguments)
	default:
		c.fail(n, "this is not part of the language of rules")
	}
}

// noteThreshold keeps the constant that a metric or a statistic of it is compared
// with.
func (c *checker) noteThreshold(n *ast.BinaryNode) {
	if !strings.ContainsAny(n.Operator, "<>=") {
		return
	}
	for _, sides := range [][2]ast.Node{{n.Left, n.Right}, {n.Right, n.Left}} {
		metric, threshold := metricOf(sides[0]), 0.0
		switch number := sides[1].(type) {
		case *ast.IntegerNode:
			threshold = float64(number.Value)
		case *ast.FloatNode:
			threshold = number.Value
		default:
			continue
		}
		if slices.Contains(c.metrics, metric) {
			if c.thresholds == nil {
				c.thresholds = map[string][]float64{}
			}
			c.thresholds[metric] = append(c.thresholds[metric], threshold)
		}
	}
}

// valueFunctions are the functions whose result is in the metric's own unit.
var valueFunctions = []string{"avg", "max", "min", "percentile"}

// metricOf returns the metric in whose unit an expression is, "" if there is none.
func metricOf(n ast.Node) string {
	call, ok := n.(*ast.CallNode)
	if !ok {
		metric, _ := metricArgument(n)
		return metric
	}
	callee, ok := call.Callee.(*ast.IdentifierNode)
	if !ok || len(call.Arguments) == 0 || !slices.Contains(valueFunctions, callee.Value) {
		return ""
	}
	metric, _ := metricArgument(call.Arguments[0])
	return metric
}

func (c *checker) identifier(n *ast.IdentifierNode) {
	if Reserved(n.Value) || slices.Contains(c.metrics, n.Value) {
		return
	}
	known := append([]string{"instances", "since_action"}, c.metrics...)
	known = slices.AppendSeq(known, maps.Keys(functions(&evaluation{})))
	slices.Sort(known)
	if near := humanize.Nearest(n.Value, known); near != "" {
		c.fail(n, "unknown metric %s: did you mean %s?", n.Value, near)
		return
	}
	c.fail(n, "unknown metric %s: the metrics are %s", n.Value, strings.Join(c.metrics, ", "))
}

func (c *checker) call(n ast.Node, name string, arguments []ast.Node) {
	if slices.Contains([]string{"abs", "ceil", "floor", "round"}, name) {
		if len(arguments) != 1 {
			c.fail(n, "%s takes one number", name)
		}
		return
	}
	if _, known := functions(&evaluation{})[name]; !known {
		c.fail(n, "unknown function %s: the functions are abs, avg, ceil, count, floor, max, min, missing, percentile, rate, round, sum, trunc", name)
		return
	}
	if !isWindowCall(name, arguments, c.metrics) {
		if windowFunctions[name] && name != "max" && name != "min" {
			c.fail(n, "the first argument of %s is a metric: the metrics are %s", name, strings.Join(c.metrics, ", "))
		}
		return
	}
	if metric, _ := metricArgument(arguments[0]); !slices.Contains(c.metrics, metric) {
		c.fail(arguments[0], "unknown metric %q: the metrics are %s", metric, strings.Join(c.metrics, ", "))
		return
	}
	for _, a := range arguments[1:] {
		text, ok := a.(*ast.StringNode)
		if !ok {
			continue // a number, or the types don't fit
		}
		d, err := time.ParseDuration(text.Value)
		if err != nil || d <= 0 || d > maxSpan {
			c.fail(a, "%q: write a duration up to %v, such as \"10m\"", text.Value, maxSpan)
			return
		}
		c.lookBack = max(c.lookBack, d)
	}
}

// windowFunctions are the functions over a metric's values. max and min are also
// functions of numbers.
var windowFunctions = map[string]bool{"avg": true, "max": true, "min": true, "sum": true, "count": true, "rate": true, "percentile": true, "missing": true}

// isWindowCall distinguishes max(backlog, "10m") from max(1, backlog).
func isWindowCall(name string, arguments []ast.Node, metrics []string) bool {
	if !windowFunctions[name] || len(arguments) == 0 {
		return false
	}
	metric, quoted := metricArgument(arguments[0])
	if metric == "" || !quoted && !slices.Contains(metrics, metric) {
		return false
	}
	if name != "max" && name != "min" {
		return true
	}
	if len(arguments) == 1 {
		return true
	}
	_, text := arguments[1].(*ast.StringNode)
	return text
}

// metricArgument returns the metric that an argument names, and whether in quotes.
func metricArgument(n ast.Node) (name string, quoted bool) {
	switch n := n.(type) {
	case *ast.IdentifierNode:
		return n.Value, false
	case *ast.StringNode:
		return n.Value, true
	}
	return "", false
}

// windowSuffix distinguishes the window functions max and min from those of numbers,
// once rewritten. No user can write it.
const windowSuffix = " of a window"

// rewriter passes the metric's name to window functions, in place of its value.
type rewriter struct{ metrics []string }

// Visit implements [ast.Visitor].
func (r *rewriter) Visit(node *ast.Node) {
	n, ok := (*node).(*ast.CallNode)
	if !ok {
		return
	}
	callee, ok := n.Callee.(*ast.IdentifierNode)
	if !ok || !isWindowCall(callee.Value, n.Arguments, r.metrics) {
		return
	}
	metric, quoted := metricArgument(n.Arguments[0])
	if !quoted {
		ast.Patch(&n.Arguments[0], &ast.StringNode{Value: metric})
	}
	if callee.Value == "max" || callee.Value == "min" {
		ast.Patch(&n.Callee, &ast.IdentifierNode{Value: callee.Value + windowSuffix})
	}
}

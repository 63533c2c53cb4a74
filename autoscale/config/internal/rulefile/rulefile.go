// Package rulefile reads the rule in an autoscaler's file. It is a package of its own
// so that it can be fuzzed fast, without the SDKs that sources and targets import.
package rulefile

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-go/sluice/autoscale"
	"github.com/sluice-go/sluice/autoscale/expression"
	"github.com/sluice-go/sluice/internal/config/strictyaml"
)

// Read reads a rule that may use these metrics, and the limits next to it, which get
// their defaults. It adds problems to the file, and then returns nil.
func Read(n strictyaml.Node, metrics []string, l *autoscale.Limits) (rule autoscale.Rule) {
	thresholds := &thresholdRule{}
	expressions := &ruleExpressions{nodes: map[string]strictyaml.Node{}}
	ok := n.Object(strictyaml.Keys{
		"upper":    func(n strictyaml.Node) { thresholds.upper = readNumber(n) },
		"lower":    func(n strictyaml.Node) { thresholds.lower = readNumber(n) },
		"metric":   func(n strictyaml.Node) { thresholds.metric = &n },
		"up":       expressions.read("up", &expressions.spec.Up),
		"down":     expressions.read("down", &expressions.spec.Down),
		"target":   expressions.read("target", &expressions.spec.Target),
		"step":     expressions.readStep,
		"min":      func(n strictyaml.Node) { readMin(n, l) },
		"max":      func(n strictyaml.Node) { n.Int(&l.Max, 1, autoscale.MaxInstances) },
		"cooldown": func(n strictyaml.Node) { readCooldown(n, l) },
		"points":   func(n strictyaml.Node) { n.Int(&l.MinPoints, 1, autoscale.MaxValues) },
		"window":   func(n strictyaml.Node) { n.Duration(&l.Window) },
		"stale":    func(n strictyaml.Node) { n.Duration(&l.StaleAfter) },
	})
	if !ok {
		return nil
	}
	switch hasExpressions := expressions.spec != (expression.Spec{}); {
	case hasExpressions && thresholds.given():
		n.Fail("has both thresholds (upper, lower) and expressions (up, down, target): write one of them")
		return nil
	case hasExpressions:
		rule = expressions.compile(n, metrics, l)
	case thresholds.given():
		rule = thresholds.make(n, metrics)
	default:
		n.Fail("has no rule: write upper and lower, or up and down, or target")
		return nil
	}
	if rule == nil {
		return nil
	}
	limits, err := l.WithDefaults()
	if err != nil {
		n.Fail("%w", err)
		return nil
	}
	*l = limits
	return rule
}

// thresholdRule holds the keys of the published rule that were read.
type thresholdRule struct {
	upper, lower *float64
	metric       *strictyaml.Node
}

func (p *thresholdRule) given() bool { return p.upper != nil || p.lower != nil || p.metric != nil }

func (p *thresholdRule) make(n strictyaml.Node, metrics []string) autoscale.Rule {
	switch {
	case p.upper == nil || p.lower == nil:
		n.Fail("needs both upper and lower")
		return nil
	case *p.lower > *p.upper:
		n.Fail("lower %s is above upper %s: it must be at most as high", autoscale.FormatNumber(*p.lower), autoscale.FormatNumber(*p.upper))
		return nil
	case p.metric == nil && len(metrics) != 1:
		n.Fail("needs metric: one of %s", strings.Join(metrics, ", "))
		return nil
	}
	metric := ""
	if p.metric == nil {
		metric = metrics[0]
	} else if !p.metric.OneOf(&metric, metrics...) {
		return nil
	}
	return autoscale.ThresholdRule{Metric: metric, Upper: *p.upper, Lower: *p.lower}
}

func readNumber(n strictyaml.Node) *float64 {
	var text string
	if !n.Text(&text) {
		return nil
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
		n.Fail("%s: write a number", n.Shown())
		return nil
	}
	return &f
}

func readMin(n strictyaml.Node, l *autoscale.Limits) {
	if n.Int(&l.Min, 0, autoscale.MaxInstances) && l.Min == 0 {
		l.Min = -1 // in autoscale.Limits, 0 is the default
	}
}

func readCooldown(n strictyaml.Node, l *autoscale.Limits) {
	if !n.IsMapping() {
		readOptionalDuration(n, &l.CooldownUp)
		l.CooldownDown = l.CooldownUp
		return
	}
	n.Object(strictyaml.Keys{
		"up":   func(n strictyaml.Node) { readOptionalDuration(n, &l.CooldownUp) },
		"down": func(n strictyaml.Node) { readOptionalDuration(n, &l.CooldownDown) },
	})
}

// readOptionalDuration reads a duration that may be 0, which becomes -1.
func readOptionalDuration(n strictyaml.Node, to *time.Duration) {
	var text string
	if !n.Text(&text) {
		return
	}
	if text == "0" || text == "0s" {
		*to = -1
		return
	}
	n.Duration(to)
}

// ruleExpressions holds the expressions of a rule, and their places in the file.
type ruleExpressions struct {
	spec  expression.Spec
	both  bool // one step was given for both directions
	nodes map[string]strictyaml.Node
}

func (w *ruleExpressions) read(field string, to *string) func(strictyaml.Node) {
	return func(n strictyaml.Node) {
		w.nodes[field] = n
		n.Verbatim(to)
	}
}

func (w *ruleExpressions) readStep(n strictyaml.Node) {
	if n.IsMapping() {
		n.Object(strictyaml.Keys{
			"up":   w.read("step.up", &w.spec.StepUp),
			"down": w.read("step.down", &w.spec.StepDown),
		})
		return
	}
	var text string
	if n.Verbatim(&text) {
		w.spec.StepUp, w.spec.StepDown, w.both = text, text, true
		w.nodes["step.up"], w.nodes["step.down"] = n, n
	}
}

// compile compiles the rule, or adds its errors to the file at their places. It sets
// the window to what the rule needs, or checks that it is long enough.
func (w *ruleExpressions) compile(n strictyaml.Node, metrics []string, l *autoscale.Limits) autoscale.Rule {
	text := w.spec
	if w.both && text.Up == "" { // a common step is valid with only one direction
		text.StepUp = ""
	}
	if w.both && text.Down == "" {
		text.StepDown = ""
	}
	rule, err := expression.New(text, metrics)
	if err != nil {
		for _, one := range unjoin(err) {
			var fault *expression.Error
			if errors.As(one, &fault) {
				w.nodes[fault.Field].FailAt(fault.Offset, "%s", fault.Reason)
			} else {
				n.Fail("%w", one)
			}
		}
		return nil
	}
	longest := max(rule.LookBack(), 10*time.Minute)
	switch {
	case l.Window == 0:
		l.Window = longest
	case l.Window < rule.LookBack():
		n.Fail("the rule needs values of the last %v, but the window is %v: make it longer", rule.LookBack(), l.Window)
		return nil
	}
	return rule
}

// unjoin returns the errors that were joined into one.
func unjoin(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return []error{err}
}

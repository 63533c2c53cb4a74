// Package rulefile reads the rule of an autoscaler's file. It is apart from the
// rest of the file, which brings along the SDKs of sources and targets, so that
// it can be fuzzed at speed.
package rulefile

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-go/sluice/autoscale"
	"github.com/sluice-go/sluice/autoscale/expression"
	"github.com/sluice-go/sluice/internal/strictyaml"
)

// Read reads a rule over these metrics, and the limits beside it, which get
// their defaults. What is wrong is noted in the file; the rule is nil then.
func Read(n strictyaml.Node, metrics []string, l *autoscale.Limits) (rule autoscale.Rule) {
	thresholds := &thresholdRule{}
	expressions := &ruleExpressions{at: map[string]strictyaml.Node{}}
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
		n.Fail("says nothing: write upper and lower, or up and down, or target")
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

// thresholdRule is the published rule, as far as it was read.
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
		n.Fail("lower %s is above upper %s: between them nothing is to be done", autoscale.FormatNumber(*p.lower), autoscale.FormatNumber(*p.upper))
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
		l.Min = -1 // which is how limits say it
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

// readOptionalDuration reads a length of time that may be none.
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

// ruleExpressions are the expressions of a rule, and where they stand.
type ruleExpressions struct {
	spec expression.Spec
	both bool // one step was given for both directions
	at   map[string]strictyaml.Node
}

func (w *ruleExpressions) read(field string, to *string) func(strictyaml.Node) {
	return func(n strictyaml.Node) {
		w.at[field] = n
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
		w.at["step.up"], w.at["step.down"] = n, n
	}
}

// compile makes the rule, or notes its faults where they are; and sees that the
// window is as long as the rule looks back.
func (w *ruleExpressions) compile(n strictyaml.Node, metrics []string, l *autoscale.Limits) autoscale.Rule {
	text := w.spec
	if w.both && text.Up == "" { // it may stand beside one direction alone
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
				w.at[fault.Field].FailAt(fault.Offset, "%s", fault.Reason)
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
		n.Fail("looks back by %v, beyond the window of %v", rule.LookBack(), l.Window)
		return nil
	}
	return rule
}

// unjoin are the errors that were joined into one.
func unjoin(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return []error{err}
}

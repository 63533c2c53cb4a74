// Package expression compiles rules of an autoscaler from expressions:
//
//	up:   avg(backlog, "10m") > 500
//	down: max(a, "10m") == 0 && max(b, "10m") == 0
//
// or a target, such as ceil(backlog / 1000).
//
// # The language
//
// An expression has arithmetic (+ - * / **), comparisons, && || ! (also and, or,
// not), and condition ? this : that, over numbers and:
//
//   - a metric's name: its newest value;
//   - avg, max, min, sum, count, rate (m, "5m"): a statistic of the metric's values
//     of the last five minutes, or of its whole window without the second argument;
//     rate is per second; percentile(m, 95, "5m"). A metric name that is not an
//     identifier is written in quotes;
//   - missing(m): whether the metric does not count now;
//   - instances: the present number of instances;
//   - since_action: seconds since the last action succeeded;
//   - abs, ceil, floor, round, trunc (x), and max, min of numbers.
//
// A statistic of a metric that does not count (failed, disabled, stale, too few
// values) is NaN: each comparison with it is false, and a target computed from it
// changes nothing.
//
// There are no loops, no variables and no text, so the time of an evaluation is
// bounded by the length of the expression.
package expression

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/sluice-go/sluice/autoscale"
)

// Spec holds the expressions of a rule: either Target, or Up or Down or both.
type Spec struct {
	Up, Down         string // conditions
	StepUp, StepDown string // how many instances at once; 1 if empty
	Target           string // the number of instances, rounded up
}

// Error says what is wrong in an expression.
type Error struct {
	Field  string // of Spec, as it is written in files: up, down, step.up, step.down, target
	Offset int    // where in the expression, in bytes from 0
	Reason string
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s: at byte %d: %s", e.Field, e.Offset+1, e.Reason)
}

// Rule is an [autoscale.Rule] compiled from expressions. It is safe for concurrent
// use.
type Rule struct {
	spec     Spec
	programs map[string]*program
	lookBack time.Duration
}

// New compiles a rule that may use these metrics. It returns all errors joined;
// those in an expression are of type [*Error].
func New(text Spec, metrics []string) (*Rule, error) {
	r := &Rule{spec: text, programs: map[string]*program{}}
	var errs []error
	add := func(field, source string, kind kind) {
		if source == "" {
			return
		}
		p, err := compile(source, kind, metrics)
		if err != nil {
			err.Field = field
			errs = append(errs, err)
			return
		}
		r.programs[field] = p
		r.lookBack = max(r.lookBack, p.lookBack)
	}
	add("up", text.Up, condition)
	add("down", text.Down, condition)
	add("step.up", text.StepUp, number)
	add("step.down", text.StepDown, number)
	add("target", text.Target, number)
	switch {
	case len(errs) > 0:
	case text.Target != "" && text != Spec{Target: text.Target}:
		errs = append(errs, errors.New("write either target, or up and down"))
	case text.Target == "" && text.Up == "" && text.Down == "":
		errs = append(errs, errors.New("write up and down, or target"))
	case text.Up == "" && text.StepUp != "" || text.Down == "" && text.StepDown != "":
		errs = append(errs, errors.New("step.up needs up, and step.down needs down"))
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return r, nil
}

// LookBack returns the longest period that the rule names, such as "10m". The window
// must be at least that long.
func (r *Rule) LookBack() time.Duration { return r.lookBack }

// Thresholds returns the constants that up and down compare the metric with, for
// plots.
func (r *Rule) Thresholds(metric string) []float64 {
	var list []float64
	for _, field := range []string{"up", "down"} {
		if p := r.programs[field]; p != nil {
			list = append(list, p.thresholds[metric]...)
		}
	}
	return list
}

// String returns the expressions with their names.
func (r *Rule) String() string {
	var parts []string
	for _, f := range []struct{ name, text string }{
		{"up", r.spec.Up}, {"down", r.spec.Down}, {"step up", r.spec.StepUp}, {"step down", r.spec.StepDown}, {"target", r.spec.Target},
	} {
		if f.text != "" {
			parts = append(parts, f.name+": "+strings.Join(strings.Fields(f.text), " "))
		}
	}
	return strings.Join(parts, "; ")
}

// Propose implements [autoscale.Rule].
func (r *Rule) Propose(s autoscale.Situation) autoscale.Proposal {
	e := &evaluation{situation: s}
	wanted, why := r.propose(e)
	if len(e.observed) > 0 {
		why += ": " + strings.Join(e.observed, ", ")
	}
	return autoscale.Proposal{Instances: wanted, Reason: why}
}

func (r *Rule) propose(e *evaluation) (wanted int, why string) {
	now := e.situation.Instances
	if r.spec.Target != "" {
		f, err := r.programs["target"].number(e)
		switch {
		case err != nil:
			return now, "target: " + err.Error()
		case math.IsNaN(f):
			return now, "target is not a number (a metric is missing, or 0 / 0), no change"
		}
		return whole(math.Ceil(f)), "target " + autoscale.FormatNumber(f)
	}
	for _, condition := range []struct{ field, text string }{{"up", r.spec.Up}, {"down", r.spec.Down}} { // up has priority
		field := condition.field
		p := r.programs[field]
		if p == nil {
			continue
		}
		holds, err := p.holds(e)
		if err != nil {
			return now, field + ": " + err.Error()
		}
		if !holds {
			continue
		}
		step, err := r.step("step."+field, e)
		if err != nil {
			return now, "step " + field + ": " + err.Error()
		}
		if field == "down" {
			step = -step
		}
		return now + step, fmt.Sprintf("%s is true (%s)", field, shown(condition.text))
	}
	return now, "neither up nor down is true"
}

// maxShown is the length in runes of a condition in a reason.
const maxShown = 200

// shown returns a condition as one line of bounded length.
func shown(condition string) string {
	line := []rune(strings.Join(strings.Fields(condition), " "))
	if len(line) > maxShown {
		return string(line[:maxShown]) + "…"
	}
	return string(line)
}

func (r *Rule) step(field string, e *evaluation) (int, error) {
	p := r.programs[field]
	if p == nil {
		return 1, nil
	}
	f, err := p.number(e)
	switch {
	case err != nil:
		return 0, err
	case math.IsNaN(f) || f < 1:
		return 0, fmt.Errorf("%s is not a step: it must be at least 1", autoscale.FormatNumber(f))
	}
	return whole(f), nil
}

// MaxSteps implements [autoscale.StepLimiter]. A step is bounded if it is a number, or
// a condition that chooses between numbers.
func (r *Rule) MaxSteps() (up, down int) { return r.maxStep("up"), r.maxStep("down") }

func (r *Rule) maxStep(direction string) int {
	switch p := r.programs["step."+direction]; {
	case r.spec.Target != "":
		return 0
	case p == nil:
		return 1
	case math.IsInf(p.largest, 1):
		return 0
	default:
		return max(whole(p.largest), 1)
	}
}

func whole(f float64) int { return int(min(max(f, 0), autoscale.MaxInstances)) }

// evaluation is one evaluation of a rule: its input, and the values it has used, as
// text for the reason.
type evaluation struct {
	situation autoscale.Situation
	observed  []string
}

// note adds a value to the reason, once, and returns it.
func (e *evaluation) note(what string, f float64) float64 {
	text := what + " = " + autoscale.FormatNumber(f)
	if math.IsNaN(f) {
		text = what + " is unknown"
	}
	if !slices.Contains(e.observed, text) {
		e.observed = append(e.observed, text)
	}
	return f
}

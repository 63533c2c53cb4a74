// Package expression makes rules of an autoscaler from expressions:
//
//	up:   avg(backlog, "10m") > 500
//	down: max(a, "10m") == 0 && max(b, "10m") == 0
//
// or a target, such as ceil(backlog / 1000).
//
// # The language
//
// An expression is arithmetic (+ - * / **), comparisons, && || ! (also and, or,
// not), and condition ? this : that, over numbers and:
//
//   - a metric's name: its newest value;
//   - avg, max, min, sum, count, rate (m, "5m"): over a metric's values of the
//     last while, or of the whole window without it; rate is per second;
//     percentile(m, 95, "5m"). A name that is not a word is put in quotes;
//   - missing(m): whether the metric does not count now;
//   - instances: how many there are; since_action: seconds since the last action;
//   - abs, ceil, floor, round, trunc (x), and max, min of numbers.
//
// Figures of a metric that does not count (too few values, stale, disabled) are
// not numbers: each comparison with one is false, and a target made of one is
// none.
//
// There are no loops, no variables and no text; so an evaluation takes no
// longer than the expression is long.
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

// Spec is a rule in words. Either Target is given, or Up and Down, or one of
// these.
type Spec struct {
	Up, Down         string // conditions
	StepUp, StepDown string // by how many; 1 if not given
	Target           string // how many there should be; rounded up
}

// Error is a fault in an expression.
type Error struct {
	Field  string // of Text, as it is written in files: up, down, step.up, step.down, target
	Offset int    // where in the expression, in bytes
	Reason string
}

func (e *Error) Error() string { return fmt.Sprintf("%s: at %d: %s", e.Field, e.Offset+1, e.Reason) }

// Rule is an [autoscale.Rule] made of expressions. It is safe for concurrent use.
type Rule struct {
	spec     Spec
	programs map[string]*program
	lookBack time.Duration
}

// New makes a rule over these metrics. The error is an [*Error], or several
// joined.
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
		errs = append(errs, errors.New("a target stands alone, without up and down"))
	case text.Target == "" && text.Up == "" && text.Down == "":
		errs = append(errs, errors.New("a rule needs up and down, or a target"))
	case text.Up == "" && text.StepUp != "" || text.Down == "" && text.StepDown != "":
		errs = append(errs, errors.New("a step without its condition"))
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return r, nil
}

// LookBack is the longest while that the rule looks back by name; the window
// must be at least that long.
func (r *Rule) LookBack() time.Duration { return r.lookBack }

// Thresholds are the numbers that up and down compare a metric's values with.
func (r *Rule) Thresholds(metric string) []float64 {
	var list []float64
	for _, field := range []string{"up", "down"} {
		if p := r.programs[field]; p != nil {
			list = append(list, p.thresholds[metric]...)
		}
	}
	return list
}

// String gives the rule's words.
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
			return now, "no target: it is not a number, as where a metric does not count, or of 0 / 0"
		}
		return whole(math.Ceil(f)), "target " + autoscale.FormatNumber(f)
	}
	for _, field := range []string{"up", "down"} { // if both hold, up
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
		return now + step, field + " holds"
	}
	return now, "neither up nor down holds"
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
		return 0, fmt.Errorf("%s is not a step: must be at least 1", autoscale.FormatNumber(f))
	}
	return whole(f), nil
}

func whole(f float64) int { return int(min(max(f, 0), autoscale.MaxInstances)) }

// evaluation is one evaluation: the situation, and the figures looked at.
type evaluation struct {
	situation autoscale.Situation
	observed  []string
}

// note keeps a figure for the reason, once.
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

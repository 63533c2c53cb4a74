package expression

import (
	"fmt"
	"maps"
	"math"
	"strings"
	"time"

	"github.com/expr-lang/expr"

	"github.com/sluice-go/sluice/autoscale"
)

// environment returns the values and functions that an expression may name.
func environment(e *evaluation, metrics []string) map[string]any {
	env := map[string]any{
		"instances":    float64(e.situation.Instances),
		"since_action": e.situation.SinceAction.Seconds(),
	}
	if e.situation.SinceAction == autoscale.Never {
		env["since_action"] = math.Inf(1)
	}
	maps.Copy(env, functions(e))
	for _, m := range metrics {
		if _, taken := env[m]; !taken {
			env[m] = e.span(m).Newest()
		}
	}
	return env
}

// functions returns the functions of an evaluation, by name.
func functions(e *evaluation) map[string]any {
	window := func(name string, statistic func(autoscale.Span) float64) func(string, ...string) float64 {
		return func(metric string, last ...string) float64 {
			return e.note(call(name, metric, last...), statistic(e.span(metric, last...)))
		}
	}
	average, maximum, minimum := window("avg", autoscale.Span.Average), window("max", autoscale.Span.Max), window("min", autoscale.Span.Min)
	return map[string]any{
		"avg":                average,
		"max" + windowSuffix: maximum,
		"min" + windowSuffix: minimum,
		"sum":                window("sum", nanIfEmpty(autoscale.Span.Sum)),
		"count":              window("count", func(s autoscale.Span) float64 { return float64(len(s)) }),
		"rate":               window("rate", autoscale.Span.Rate),
		"percentile": func(metric string, p float64, last ...string) float64 {
			return e.note(call("percentile "+autoscale.FormatNumber(p), metric, last...), e.span(metric, last...).Percentile(p))
		},
		"missing": func(metric string) bool { return e.situation.Windows[metric] == nil },
		"max":     func(a float64, more ...float64) float64 { return fold(math.Max, a, more) },
		"min":     func(a float64, more ...float64) float64 { return fold(math.Min, a, more) },
		"trunc":   math.Trunc,
	}
}

// nanIfEmpty returns statistic, but NaN for a span without values.
func nanIfEmpty(statistic func(autoscale.Span) float64) func(autoscale.Span) float64 {
	return func(s autoscale.Span) float64 {
		if len(s) == 0 {
			return math.NaN()
		}
		return statistic(s)
	}
}

func fold(better func(a, b float64) float64, best float64, more []float64) float64 {
	for _, f := range more {
		best = better(best, f)
	}
	return best
}

// call returns a call as text for the reason.
func call(name, metric string, last ...string) string {
	return name + "(" + strings.Join(append([]string{metric}, last...), ", ") + ")"
}

// span returns a metric's values of the last period, or all of them; none if the
// metric does not count.
func (e *evaluation) span(metric string, last ...string) autoscale.Span {
	w := e.situation.Windows[metric]
	if w == nil {
		return nil
	}
	if len(last) == 0 {
		return w.All()
	}
	d, err := time.ParseDuration(last[0]) // the compiler has checked it
	if err != nil {
		return nil
	}
	return w.Last(e.situation.Now, d)
}

func (p *program) run(e *evaluation) (out any, err error) {
	defer recoverAsError(&err)
	out, err = expr.Run(p.vm, environment(e, p.metrics))
	if err != nil {
		return nil, fmt.Errorf("evaluation failed: %s", plainMessage(err.Error()))
	}
	return out, nil
}

func (p *program) holds(e *evaluation) (bool, error) {
	out, err := p.run(e)
	if err != nil {
		return false, err
	}
	holds, ok := out.(bool)
	if !ok {
		return false, fmt.Errorf("%v is not a condition", out)
	}
	return holds, nil
}

func (p *program) number(e *evaluation) (float64, error) {
	out, err := p.run(e)
	if err != nil {
		return 0, err
	}
	f, ok := out.(float64)
	if !ok {
		return 0, fmt.Errorf("%v is not a number", out)
	}
	return f, nil
}

package expression_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/autoscale"
	"github.com/sluice-go/sluice/autoscale/expression"
)

var noon = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

// window has values a minute apart, the last at noon.
func window(values ...float64) *autoscale.Window {
	w := &autoscale.Window{}
	for i, v := range values {
		w.Add(autoscale.Point{Time: noon.Add(time.Duration(i-len(values)+1) * time.Minute), Value: v})
	}
	return w
}

var metrics = []string{"backlog", "a", "b", "orders-billing-backlog", "gone"}

func situation() autoscale.Situation {
	return autoscale.Situation{
		Now: noon,
		Windows: map[string]*autoscale.Window{
			"backlog":                window(100, 200, 300, 400, 500, 600),
			"a":                      window(0, 0, 0, 0, 0),
			"b":                      window(0, 0, 0, 0, 7),
			"orders-billing-backlog": window(1, 2, 3, 4, 5),
		},
		Missing:     map[string]string{"gone": "no value"},
		Instances:   4,
		SinceAction: autoscale.Never,
	}
}

// TestExpressions evaluates expressions whose values were computed by hand.
func TestExpressions(t *testing.T) {
	for source, want := range map[string]bool{
		`backlog == 600`:                                             true,
		`avg(backlog) == 350`:                                        true,
		`avg(backlog, "2m") == 500`:                                  true, // a value exactly two minutes old counts
		`avg(backlog, "1m59s") == 550`:                               true,
		`max(backlog, "1h") == 600`:                                  true,
		`min(backlog, "3m") == 300`:                                  true,
		`sum(backlog, "1m") == 1100`:                                 true,
		`count(backlog) == 6`:                                        true,
		`rate(backlog) * 60 == 100`:                                  true,
		`percentile(backlog, 50) == 300`:                             true,
		`percentile(backlog, 100, "1m") == 600`:                      true,
		`max(a, "10m") == 0 && max(b, "10m") == 0`:                   false,
		`max(a, "10m") == 0 || max(b, "10m") == 0`:                   true,
		`max(a, "3m") == 0 and not (b == 0)`:                         true,
		`max("orders-billing-backlog", "10m") == 5`:                  true,
		`max(a, b) == 7`:                                             true, // of their newest values
		`max(1, 2, backlog) == 600`:                                  true,
		`min(instances, 3) == 3`:                                     true,
		`avg(backlog) > (instances >= 8 ? 60 : 30) * 10`:             true,
		`avg(backlog) > (instances >= 4 ? 60 : 30) * 10`:             false,
		`since_action > 1e9`:                                         true,
		`trunc(backlog / 7) == 85 && backlog / 7 > 85.7`:             true,
		`gone > 0 || gone < 0 || gone == 0`:                          false,
		`max(gone, "5m") < 1`:                                        false,
		`missing(gone) && !missing(backlog)`:                         true,
		`backlog > 0 || gone > 0`:                                    true,
		`abs(-2) + ceil(1.2) + floor(1.9) + round(1.5) + 2**3 == 15`: true,
		"backlog > 500 // the threshold":                             true,
		"avg(backlog,\n  \"10m\")\n  > 300":                          true,
	} {
		r, err := expression.New(expression.Spec{Up: source}, metrics)
		if err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		p := r.Propose(situation())
		if got := p.Instances == 5; got != want {
			t.Errorf("%s: got %v, want %v (%s)", source, got, want, p.Reason)
		}
	}
}

func TestProposals(t *testing.T) {
	for _, c := range []struct {
		text   expression.Spec
		want   int
		reason string
	}{
		{expression.Spec{Up: `avg(backlog, "10m") > 300`, Down: `max(backlog, "10m") < 100`}, 5, `up is true (avg(backlog, "10m") > 300): avg(backlog, 10m) = 350`},
		{expression.Spec{Up: `avg(backlog, "10m") > 400`, Down: `max(backlog, "10m") < 601`}, 3, `down is true (max(backlog, "10m") < 601): avg(backlog, 10m) = 350, max(backlog, 10m) = 600`},
		{expression.Spec{Up: `true`, Down: `true`}, 5, "up is true"},
		{expression.Spec{Up: `backlog > 1000`}, 4, "neither up nor down is true"},
		{expression.Spec{Up: `backlog > 100`, StepUp: `backlog > 500 ? 3 : 1`}, 7, "up is true"},
		{expression.Spec{Up: `backlog > 100`, StepUp: `0.5`}, 4, "0.5 is not a step: it must be at least 1"},
		{expression.Spec{Up: `backlog > 100`, StepUp: `gone`}, 4, "is not a step"},
		{expression.Spec{Down: `backlog > 100`, StepDown: `2.9`}, 2, "down is true"},
		{expression.Spec{Target: `ceil(backlog / 1000)`}, 1, "target 1"},
		{expression.Spec{Target: `backlog / 250`}, 3, "target 2.4"},
		{expression.Spec{Target: `gone / 250`}, 4, "target is not a number (a metric is missing"},
		{expression.Spec{Target: `(backlog - backlog) / 0`}, 4, "or 0 / 0), no change"},
		{expression.Spec{Target: `-5`}, 0, "target -5"},
		{expression.Spec{Target: `backlog / 0`}, 1_000_000, "target +Inf"},
	} {
		r, err := expression.New(c.text, metrics)
		if err != nil {
			t.Errorf("%+v: %v", c.text, err)
			continue
		}
		if p := r.Propose(situation()); p.Instances != c.want || !strings.Contains(p.Reason, c.reason) {
			t.Errorf("%s: got %d, %q; want %d, … %q …", r, p.Instances, p.Reason, c.want, c.reason)
		}
	}
}

// TestFaults checks errors and their offsets.
func TestFaults(t *testing.T) {
	for _, c := range []struct {
		source string
		text   string // the text that the fault is at
		reason string
	}{
		{`avg(backlgo, "10m") > 500`, `backlgo`, "unknown metric backlgo: did you mean backlog?"},
		{`backlog > 500 &&`, ``, "unexpected token EOF"},
		{`backlog > > 5`, `> 5`, "unexpected token"},
		{`avg(backlog, "10 minutes") > 5`, `"10 minutes"`, "write a duration"},
		{`avg(backlog, "-1m") > 5`, `"-1m"`, "write a duration"},
		{`avg(backlog, 10) > 5`, `10`, "cannot use"},
		{`avg(5) > 5`, `avg`, "the first argument of avg is a metric"},
		{`avg("bcklg") > 5`, `"bcklg"`, `unknown metric "bcklg"`},
		{`Größe == 1 && unknown_thing > 1`, `Größe`, "unknown metric Größe"},
		{`backlog > 5 && zzzzzzzz(backlog)`, `zzzzzzzz`, "unknown metric zzzzzzzz"},
		{`map([1], # + 1) == 1`, ``, ""},
		{`repeat("a", 1000000) == "a"`, ``, ""},
		{`1..1000000 == 3`, `..`, "not an operator of this language"},
		{`backlog`, ``, "expected a condition, but this is a number"},
		{`"a" matches "b"`, `matches`, "not an operator of this language"},
		{`backlog.x > 1`, ``, ""},
		{`let x = 1; x > 0`, ``, ""},
		{strings.Repeat("(", 3000) + "1" + strings.Repeat(")", 3000), ``, ""},
		{strings.Repeat("1+", 1000) + "1 > 0", ``, ""},
		{strings.Repeat("a", 5000), ``, "longer than 4096 bytes"},
		{"backlog > \xff", ``, "not UTF-8"},
	} {
		_, err := expression.New(expression.Spec{Up: c.source}, metrics)
		fault, ok := errors.AsType[*expression.Error](err)
		if !ok {
			t.Errorf("%.40s: got %v, want a fault", c.source, err)
			continue
		}
		if fault.Field != "up" || !strings.Contains(fault.Reason, c.reason) || fault.Offset < 0 || fault.Offset > len(c.source) {
			t.Errorf("%.40s: got %v, want … %s …", c.source, fault, c.reason)
		} else if !strings.HasPrefix(c.source[fault.Offset:], c.text) {
			t.Errorf("%.40s: the fault is at %q, want %q (%v)", c.source, c.source[fault.Offset:], c.text, fault)
		}
		if strings.Contains(fault.Reason, "\n") {
			t.Errorf("%.40s: several lines: %s", c.source, fault.Reason)
		}
	}
	for _, text := range []expression.Spec{{}, {Up: "true", Target: "1"}, {StepUp: "1", Target: "1"}, {Up: "true", StepDown: "1"}} {
		if _, err := expression.New(text, metrics); err == nil {
			t.Errorf("%+v was taken", text)
		}
	}
}

// FuzzExpression compiles and evaluates anything, which must end soon.
func FuzzExpression(f *testing.F) {
	for _, seed := range []string{`avg(backlog, "10m") > 500`, `max(a, "10m") == 0 && max(b) == 0`, `instances >= 8 ? 60 : 30`, `ceil(backlog / 1000)`, `-(((1)))`, `percentile(a, 95, "1h")`, `!true`, `1 ** 1e9`, `a ?? b`, `[1,2][0]`, `{"a":1}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, source string) {
		began := time.Now()
		for _, text := range []expression.Spec{{Up: source}, {Target: source}} {
			r, err := expression.New(text, metrics)
			if err != nil {
				if fault, ok := errors.AsType[*expression.Error](err); ok && (fault.Offset < 0 || fault.Offset > len(source)) {
					t.Errorf("the fault of %q is at %d", source, fault.Offset)
				}
				continue
			}
			if p := r.Propose(situation()); p.Instances < 0 || p.Instances > 1_000_000 || p.Reason == "" {
				t.Errorf("%q proposes %+v", source, p)
			}
		}
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("%q took %v", source, took)
		}
	})
}

// TestMaxSteps: the largest steps, where the file bounds them.
func TestMaxSteps(t *testing.T) {
	for _, c := range []struct {
		spec             expression.Spec
		stepUp, stepDown int
	}{
		{expression.Spec{Up: "a > 1", Down: "a < 1"}, 1, 1},
		{expression.Spec{Up: "a > 1", StepUp: "3", Down: "a < 1", StepDown: "2.5"}, 3, 2},
		{expression.Spec{Up: "a > 1", StepUp: "b > 1000 ? 3 : b > 100 ? 2 : 1"}, 3, 1},
		{expression.Spec{Up: "a > 1", StepUp: "ceil(b / 10)", Down: "a < 1", StepDown: "a > 5 ? b : 1"}, 0, 0},
		{expression.Spec{Up: "a > 1", StepUp: "instances"}, 0, 1},
		{expression.Spec{Target: "a"}, 0, 0},
	} {
		r, err := expression.New(c.spec, metrics)
		if err != nil {
			t.Fatal(err)
		}
		if up, down := r.MaxSteps(); up != c.stepUp || down != c.stepDown {
			t.Errorf("%+v: %d up, %d down; want %d, %d", c.spec, up, down, c.stepUp, c.stepDown)
		}
	}
}

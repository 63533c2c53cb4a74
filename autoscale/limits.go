package autoscale

import (
	"cmp"
	"fmt"
	"time"
)

const (
	// MaxInstances is the largest number of instances of a resource.
	MaxInstances = 1_000_000
	// MaxValue is the largest value of a metric, and -MaxValue the smallest: the sum
	// of a full window of such values is still a finite number.
	MaxValue = 1e15
)

// Limits apply whatever a [Rule] proposes. The zero value takes every default.
type Limits struct {
	// Min and Max bound the number of instances. Defaults: 1, and 10 or Min,
	// whichever is larger. A Min of -1 means 0.
	Min, Max int
	// CooldownUp is how long after a successful action nothing is scaled up;
	// strictly more time must have passed. Default: 10 min. Negative: no cooldown.
	CooldownUp time.Duration
	// CooldownDown is the same for scaling down. Default: CooldownUp.
	CooldownDown time.Duration
	// MinPoints is how many values a metric needs in its window to count.
	// Default: 5.
	MinPoints int
	// Window is how long values are kept; a value exactly that old still counts.
	// Default: 10 min.
	Window time.Duration
	// StaleAfter is the age of its newest value up to which a metric counts.
	// Default: three intervals.
	StaleAfter time.Duration
	// Interval is the time between readings of the metrics. Default: 1 min.
	Interval time.Duration

	complete bool // the defaults are filled in: a zero is a zero
}

// WithDefaults returns l with its defaults filled in, or an error that says which
// limits contradict each other. In limits that it has returned, zeros stay zeros.
func (l Limits) WithDefaults() (Limits, error) {
	if !l.complete {
		l.fill()
	}
	switch {
	case l.Min < 0 || l.Max < l.Min:
		return l, fmt.Errorf("%d to %d instances: the minimum must be from 0 to the maximum", l.Min, l.Max)
	case l.Max > MaxInstances:
		return l, fmt.Errorf("up to %d instances: must be at most %d", l.Max, MaxInstances)
	case l.MinPoints < 1:
		return l, fmt.Errorf("%d points: must be at least 1", l.MinPoints)
	case l.Interval < time.Millisecond || l.Window < l.Interval || l.StaleAfter < l.Interval:
		return l, fmt.Errorf("a window of %v, stale after %v: both must be at least the interval of collection, %v", l.Window, l.StaleAfter, l.Interval)
	case l.Window/l.Interval+1 < time.Duration(l.MinPoints):
		return l, fmt.Errorf("%d points: a window of %v has room for %d, at one every %v", l.MinPoints, l.Window, l.Window/l.Interval+1, l.Interval)
	case l.Window/l.Interval >= MaxValues:
		return l, fmt.Errorf("a window of %v has more than %[3]d values, at one every %[2]v: use a shorter window or a longer interval", l.Window, l.Interval, MaxValues)
	}
	return l, nil
}

// fill fills in the defaults.
func (l *Limits) fill() {
	l.complete = true
	switch {
	case l.Min == -1:
		l.Min = 0
	case l.Min == 0:
		l.Min = 1
	}
	l.Max = cmp.Or(l.Max, max(10, l.Min))
	l.CooldownUp = cmp.Or(l.CooldownUp, 10*time.Minute)
	l.CooldownDown = cmp.Or(l.CooldownDown, l.CooldownUp)
	l.CooldownUp, l.CooldownDown = max(l.CooldownUp, 0), max(l.CooldownDown, 0)
	l.MinPoints = cmp.Or(l.MinPoints, 5)
	l.Window = cmp.Or(l.Window, 10*time.Minute)
	l.Interval = cmp.Or(l.Interval, time.Minute)
	l.StaleAfter = cmp.Or(l.StaleAfter, 3*l.Interval)
}

// cooldown returns the cooldown for scaling up or down.
func (l Limits) cooldown(up bool) time.Duration {
	if up {
		return l.CooldownUp
	}
	return l.CooldownDown
}

// actionLimits are what a [Scaler] allows.
type actionLimits struct {
	min, max         int
	stepUp, stepDown int // largest steps; 0: no bound
}

func (r *Resource) actionLimits() (actionLimits, error) {
	l, err := r.Limits.WithDefaults()
	if err != nil {
		return actionLimits{}, fmt.Errorf("limits of %s: %w", r.Name, err)
	}
	limits := actionLimits{min: l.Min, max: l.Max}
	if rule, ok := r.Rule.(StepLimiter); ok {
		limits.stepUp, limits.stepDown = rule.MaxSteps()
	}
	return limits, nil
}

// check returns an error if no decision within the limits leads to an action. One that
// brings the number back within the limits may be a step of any size.
func (l actionLimits) check(a Action) error {
	step := a.To - a.From
	switch {
	case a.To < l.min || a.To > l.max:
		return fmt.Errorf("action %d is refused: it scales from %d to %d instances, but the limits are %d to %d: start logic and scaler with the same file",
			a.Number, a.From, a.To, l.min, l.max)
	case a.From < l.min && a.To == l.min || a.From > l.max && a.To == l.max:
		return nil
	case l.stepUp > 0 && step > l.stepUp:
		return l.stepError(a, "up", l.stepUp)
	case l.stepDown > 0 && -step > l.stepDown:
		return l.stepError(a, "down", l.stepDown)
	}
	return nil
}

func (l actionLimits) stepError(a Action, direction string, step int) error {
	return fmt.Errorf("action %d is refused: it scales from %d to %d instances, but the rule's largest step %s is %d: start logic and scaler with the same file",
		a.Number, a.From, a.To, direction, step)
}

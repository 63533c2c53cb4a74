package autoscale

import (
	"cmp"
	"fmt"
	"time"
)

const (
	// MaxInstances is the most that there can be of anything.
	MaxInstances = 1_000_000
	// MaxValue is the most that a metric can say, and -MaxValue the least: sums
	// over a window of such values are numbers.
	MaxValue = 1e15
)

// Limits are what holds whatever a [Rule] says. The zero value takes every
// default.
type Limits struct {
	// Min and Max bound the instances. Defaults: 1, and 10 or Min, whichever is
	// more. A Min of -1 means 0.
	Min, Max int
	// CooldownUp is how long after an action nothing is scaled up; strictly more
	// must have passed. Default: 10 min. Negative: none.
	CooldownUp time.Duration
	// CooldownDown is the same for scaling down. Default: CooldownUp.
	CooldownDown time.Duration
	// MinPoints is how many values a metric needs in its window to count.
	// Default: 5.
	MinPoints int
	// Window is how long values are kept; one exactly that old still is.
	// Default: 10 min.
	Window time.Duration
	// StaleAfter is how old a metric's newest value may be to count. Default: three
	// intervals of collection.
	StaleAfter time.Duration
	// Interval is the interval of collection. Default: 1 min.
	Interval time.Duration
}

// WithDefaults fills in what is not set, and refuses what can't be meant.
func (l Limits) WithDefaults() (Limits, error) {
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
	switch {
	case l.Min < 0 || l.Max < l.Min:
		return l, fmt.Errorf("%d to %d instances: the minimum must not be negative, nor above the maximum", l.Min, l.Max)
	case l.Max > MaxInstances:
		return l, fmt.Errorf("up to %d instances: must be %d at most", l.Max, MaxInstances)
	case l.MinPoints < 1:
		return l, fmt.Errorf("%d points: must be at least 1", l.MinPoints)
	case l.Interval < time.Millisecond || l.Window < l.Interval || l.StaleAfter < l.Interval:
		return l, fmt.Errorf("a window of %v and staleness after %v: must be at least the interval of collection, %v", l.Window, l.StaleAfter, l.Interval)
	case l.Window/l.Interval+1 < time.Duration(l.MinPoints):
		return l, fmt.Errorf("%d points: a window of %v has room for %d, at one every %v", l.MinPoints, l.Window, l.Window/l.Interval+1, l.Interval)
	case l.Window/l.Interval >= MaxValues:
		return l, fmt.Errorf("a window of %v: at one value every %v that is more than %d", l.Window, l.Interval, MaxValues)
	}
	return l, nil
}

// cooldown is the rest after an action that holds for a change in a direction.
func (l Limits) cooldown(up bool) time.Duration {
	if up {
		return l.CooldownUp
	}
	return l.CooldownDown
}

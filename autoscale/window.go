package autoscale

import (
	"math"
	"slices"
	"time"
)

// Window is what is known of a metric over the last while: its values, oldest
// first, no two of one time.
type Window struct {
	Values []Value `json:"values"`
	// State and Cause are those of the newest point, which Since is the time of.
	State MetricState `json:"state,omitempty"`
	Cause string      `json:"cause,omitempty"`
	Since time.Time   `json:"since,omitzero"`
}

// Value is a value in a [Window].
type Value struct {
	Time  time.Time `json:"t"`
	Value float64   `json:"v"`
}

// MaxValues is how many values a window keeps; beyond that the oldest go.
const MaxValues = 10_000

// Add puts a point into its place and tells whether it is news: one of a time
// that is there already, or beyond MaxValue, is not.
func (w *Window) Add(p Point) bool {
	if p.State == Active && !inRange(p.Value) {
		return false
	}
	at := p.Time
	i, found := slices.BinarySearchFunc(w.Values, at, func(v Value, t time.Time) int { return v.Time.Compare(t) })
	if found || p.State != Active && !at.After(w.Since) {
		return false
	}
	if p.State == Active {
		w.Values = slices.Insert(w.Values, i, Value{at, p.Value})
		if extra := len(w.Values) - MaxValues; extra > 0 {
			w.Values = slices.Delete(w.Values, 0, extra)
		}
	}
	if at.After(w.Since) {
		w.State, w.Cause, w.Since = p.State, p.Cause, at
	}
	return true
}

// inRange tells a value that figures can be made of. NaN is none.
func inRange(f float64) bool { return math.Abs(f) <= MaxValue }

// maxClockSkew is by how much the clock of whoever reads a metric may be ahead.
const maxClockSkew = time.Minute

// Trim drops what is older than keep at the time now (a value exactly that old
// stays), and what is from the future: from before the clock was set back.
func (w *Window) Trim(now time.Time, keep time.Duration) {
	oldest, newest := now.Add(-keep), now.Add(maxClockSkew)
	w.Values = slices.DeleteFunc(w.Values, func(v Value) bool {
		return v.Time.Before(oldest) || v.Time.After(newest)
	})
	if w.Since.After(newest) {
		w.State, w.Cause, w.Since = Active, "", w.newest()
	}
}

// Last are the values of the last d before now, one exactly d old included. A
// window without values in it has no figures: they are NaN.
func (w *Window) Last(now time.Time, d time.Duration) Span {
	from := now.Add(-d)
	i, _ := slices.BinarySearchFunc(w.Values, from, func(v Value, t time.Time) int { return v.Time.Compare(t) })
	return w.Values[i:]
}

// All are all values of the window.
func (w *Window) All() Span { return w.Values }

// newest is the last value's time, zero if there is none.
func (w *Window) newest() time.Time {
	if len(w.Values) == 0 {
		return time.Time{}
	}
	return w.Values[len(w.Values)-1].Time
}

// Span is a run of values, oldest first. The figures of an empty one are NaN.
type Span []Value

// Sum is the sum of the values; 0 if there are none.
func (s Span) Sum() (sum float64) {
	for _, v := range s {
		sum += v.Value
	}
	return sum
}

// Average is the mean of the values, each counted once, however far apart.
func (s Span) Average() float64 { return s.Sum() / float64(len(s)) }

// Max is the greatest value.
func (s Span) Max() float64 {
	return s.pick(math.Max)
}

// Min is the least value.
func (s Span) Min() float64 {
	return s.pick(math.Min)
}

func (s Span) pick(better func(a, b float64) float64) float64 {
	if len(s) == 0 {
		return math.NaN()
	}
	best := s[0].Value
	for _, v := range s[1:] {
		best = better(best, v.Value)
	}
	return best
}

// Newest is the last value.
func (s Span) Newest() float64 {
	if len(s) == 0 {
		return math.NaN()
	}
	return s[len(s)-1].Value
}

// Rate is how fast the value has been rising, per second, from the first value
// to the last. It takes two.
func (s Span) Rate() float64 {
	if len(s) < 2 {
		return math.NaN()
	}
	first, last := s[0], s[len(s)-1]
	return (last.Value - first.Value) / last.Time.Sub(first.Time).Seconds()
}

// Percentile is the value that p percent of the values do not exceed, by the
// nearest rank.
func (s Span) Percentile(p float64) float64 {
	if len(s) == 0 || !(p >= 0 && p <= 100) {
		return math.NaN()
	}
	sorted := make([]float64, len(s))
	for i, v := range s {
		sorted[i] = v.Value
	}
	slices.Sort(sorted)
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return sorted[max(rank, 1)-1]
}

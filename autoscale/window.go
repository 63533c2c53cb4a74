package autoscale

import (
	"math"
	"slices"
	"time"
)

// Window holds the recent values of a metric, oldest first, no two with the same
// time. It is not safe for concurrent use.
type Window struct {
	Values []Value `json:"values"`
	// State and Cause are those of the newest point, and Since is its time.
	State MetricState `json:"state,omitempty"`
	Cause string      `json:"cause,omitempty"`
	Since time.Time   `json:"since,omitzero"`
}

// Value is a value in a [Window].
type Value struct {
	Time  time.Time `json:"t"`
	Value float64   `json:"v"`
}

// MaxValues is how many values a window keeps; beyond that the oldest are dropped.
const MaxValues = 10_000

// Add inserts a point at its place in time and reports whether the window has
// changed: a point with a time that is there already, or with a value beyond
// MaxValue, is ignored.
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

// inRange reports whether statistics can be computed from a value. NaN is out of
// range.
func inRange(f float64) bool { return math.Abs(f) <= MaxValue }

// maxClockSkew is by how much a collector's clock may be ahead of the logic's.
const maxClockSkew = time.Minute

// Trim drops values older than keep at the time now (a value exactly that old
// stays), and values from the future, which were read before the clock was set
// back.
func (w *Window) Trim(now time.Time, keep time.Duration) {
	oldest, newest := now.Add(-keep), now.Add(maxClockSkew)
	w.Values = slices.DeleteFunc(w.Values, func(v Value) bool {
		return v.Time.Before(oldest) || v.Time.After(newest)
	})
	if w.Since.After(newest) {
		w.State, w.Cause, w.Since = Active, "", w.newest()
	}
}

// Last returns the values of the last d before now, including one exactly d old.
// The span shares the window's memory, and is valid until the window changes.
func (w *Window) Last(now time.Time, d time.Duration) Span {
	from := now.Add(-d)
	i, _ := slices.BinarySearchFunc(w.Values, from, func(v Value, t time.Time) int { return v.Time.Compare(t) })
	return w.Values[i:]
}

// All returns all values of the window. The span shares the window's memory.
func (w *Window) All() Span { return w.Values }

// newest returns the last value's time, zero if there is no value.
func (w *Window) newest() time.Time {
	if len(w.Values) == 0 {
		return time.Time{}
	}
	return w.Values[len(w.Values)-1].Time
}

// Span is a series of values, oldest first. The statistics of an empty span are
// NaN, except for Sum.
type Span []Value

// Sum returns the sum of the values; 0 if there are none.
func (s Span) Sum() (sum float64) {
	for _, v := range s {
		sum += v.Value
	}
	return sum
}

// Average returns the mean of the values. Each value has the same weight, however
// long it was the newest one.
func (s Span) Average() float64 { return s.Sum() / float64(len(s)) }

// Max returns the largest value.
func (s Span) Max() float64 {
	return s.pick(math.Max)
}

// Min returns the smallest value.
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

// Newest returns the last value.
func (s Span) Newest() float64 {
	if len(s) == 0 {
		return math.NaN()
	}
	return s[len(s)-1].Value
}

// Rate returns the change of the value per second, from the first value to the
// last; NaN if there are fewer than two.
func (s Span) Rate() float64 {
	if len(s) < 2 {
		return math.NaN()
	}
	first, last := s[0], s[len(s)-1]
	return (last.Value - first.Value) / last.Time.Sub(first.Time).Seconds()
}

// Percentile returns the value that p percent of the values do not exceed, by the
// nearest-rank method; NaN unless p is between 0 and 100.
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

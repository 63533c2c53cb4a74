package autoscale

import (
	"fmt"
	"math"
)

// ThresholdRule is the rule of the published autoscaler: one instance more if the
// average of the metric over the window, truncated to a whole number, is
// strictly above Upper; one fewer if its maximum is strictly below Lower. With
// the default [Limits] it decides from the fifth value on, over ten minutes, and
// then rests until strictly more than ten minutes have passed.
//
// Its thresholds were 500 and 300, and 5,000 and 1,000, messages.
type ThresholdRule struct {
	Metric       string
	Upper, Lower float64
}

// Propose implements [Rule].
func (r ThresholdRule) Propose(s Situation) Proposal {
	w := s.Windows[r.Metric]
	if w == nil {
		return Proposal{s.Instances, fmt.Sprintf("%s: %s", r.Metric, s.Missing[r.Metric])}
	}
	all := w.All()
	average, most := math.Trunc(all.Average()), all.Max()
	switch {
	case average > r.Upper:
		return Proposal{s.Instances + 1, fmt.Sprintf("the average of %s, %s, is above %s", r.Metric, FormatNumber(average), FormatNumber(r.Upper))}
	case most < r.Lower:
		return Proposal{s.Instances - 1, fmt.Sprintf("the maximum of %s, %s, is below %s", r.Metric, FormatNumber(most), FormatNumber(r.Lower))}
	}
	return Proposal{s.Instances, fmt.Sprintf("the average of %s, %s, is not above %s, and its maximum, %s, not below %s",
		r.Metric, FormatNumber(average), FormatNumber(r.Upper), FormatNumber(most), FormatNumber(r.Lower))}
}

// String gives the rule as an expression says it.
func (r ThresholdRule) String() string {
	return fmt.Sprintf("up: trunc(avg(%s)) > %s; down: max(%[1]s) < %[3]s", r.Metric, FormatNumber(r.Upper), FormatNumber(r.Lower))
}

// Thresholds are the values of the metric that the rule acts beyond.
func (r ThresholdRule) Thresholds(metric string) []float64 {
	if metric != r.Metric {
		return nil
	}
	return []float64{r.Upper, r.Lower}
}

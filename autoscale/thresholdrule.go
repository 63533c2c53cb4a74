package autoscale

import (
	"fmt"
	"math"
)

// ThresholdRule is the published rule: the rule of the autoscaler whose
// description was published, which this package follows. It proposes one instance
// more if the average of the metric over its window, truncated to a whole number,
// is strictly above Upper; one fewer if the maximum is strictly below Lower. With
// the default [Limits] it decides from the fifth value on, over ten minutes, and
// after an action waits until strictly more than ten minutes have passed.
//
// The published thresholds were 500 and 300 messages, and 5,000 and 1,000.
type ThresholdRule struct {
	Metric       string
	Upper, Lower float64
}

// Propose implements [Rule].
func (r ThresholdRule) Propose(s Situation) Proposal {
	w := s.Windows[r.Metric]
	if w == nil {
		return Proposal{s.Instances, fmt.Sprintf("metric %s is missing: %s", r.Metric, s.Missing[r.Metric])}
	}
	all := w.All()
	average, maximum := math.Trunc(all.Average()), all.Max()
	switch {
	case average > r.Upper:
		return Proposal{s.Instances + 1, fmt.Sprintf("the average of %s is %s, above the upper threshold %s", r.Metric, FormatNumber(average), FormatNumber(r.Upper))}
	case maximum < r.Lower:
		return Proposal{s.Instances - 1, fmt.Sprintf("the maximum of %s is %s, below the lower threshold %s", r.Metric, FormatNumber(maximum), FormatNumber(r.Lower))}
	}
	return Proposal{s.Instances, fmt.Sprintf("the average of %s is %s, not above the upper threshold %s; the maximum is %s, not below the lower threshold %s",
		r.Metric, FormatNumber(average), FormatNumber(r.Upper), FormatNumber(maximum), FormatNumber(r.Lower))}
}

// MaxSteps implements [StepLimiter]: one instance at a time.
func (r ThresholdRule) MaxSteps() (up, down int) { return 1, 1 }

// String returns the rule in the language of package expression.
func (r ThresholdRule) String() string {
	return fmt.Sprintf("up: trunc(avg(%s)) > %s; down: max(%[1]s) < %[3]s", r.Metric, FormatNumber(r.Upper), FormatNumber(r.Lower))
}

// Thresholds returns the values that the rule compares the metric with, for
// plots; nil for a metric that it does not use.
func (r ThresholdRule) Thresholds(metric string) []float64 {
	if metric != r.Metric {
		return nil
	}
	return []float64{r.Upper, r.Lower}
}

package autoscale

import "time"

// MetricState says whether a metric has a value, and if not, why.
type MetricState string

const (
	// Active: there is a value.
	Active MetricState = ""
	// Disabled: what is measured has been switched off, such as a subscription
	// that receives messages but does not deliver them. Its messages are not
	// backlog: no instance could process them.
	Disabled MetricState = "disabled"
	// Failed: the metric could not be read.
	Failed MetricState = "failed"
)

// Reading is the value of a metric at the time of a call of [Source].
type Reading struct {
	Value float64
	State MetricState // Active or Disabled
}

// Point is a metric's value at a time. Two points with the same resource, metric
// and time are the same point.
type Point struct {
	Resource string      `json:"resource"`
	Metric   string      `json:"metric"`
	Time     time.Time   `json:"time"`
	Value    float64     `json:"value"`           // 0 unless State is Active
	State    MetricState `json:"state,omitempty"` // Active, Disabled or Failed
	Cause    string      `json:"cause,omitempty"` // if State is Failed: the error, in one line
}

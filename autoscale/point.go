package autoscale

import "time"

// MetricState tells a value from the ways of having none.
type MetricState string

const (
	// Active: there is a value.
	Active MetricState = ""
	// Disabled: what is measured has been switched off, such as a subscription
	// that receives but does not deliver. What waits in it is not backlog.
	Disabled MetricState = "disabled"
	// Failed: the metric could not be read.
	Failed MetricState = "failed"
)

// Reading is what a [Source] finds: a metric's value now.
type Reading struct {
	Value float64
	State MetricState // Active or Disabled
}

// Point is a metric's value at a moment. Two points of a resource's metric with
// one time are the same point.
type Point struct {
	Resource string      `json:"resource"`
	Metric   string      `json:"metric"`
	Time     time.Time   `json:"time"`
	Value    float64     `json:"value"`           // 0 unless Active
	State    MetricState `json:"state,omitempty"` // what is there instead of a value
	Cause    string      `json:"cause,omitempty"` // of Failed: why, in one line
}

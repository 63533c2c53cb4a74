package autoscale

import "time"

// RecordKind says what a [Record] is about.
type RecordKind string

const (
	Up              RecordKind = "up"        // decision: more instances
	Down            RecordKind = "down"      // decision: fewer instances
	Hold            RecordKind = "hold"      // decision: no change
	ActionSucceeded RecordKind = "succeeded" // an action has succeeded
	ActionFailed    RecordKind = "failed"    // an action was abandoned after its last attempt
)

// Record is an entry of the decision log: a decision with the values behind it,
// or the outcome of an action.
type Record struct {
	Resource  string        `json:"resource"`
	Sequence  int64         `json:"sequence"` // from 1, consecutive per resource
	Time      time.Time     `json:"time"`
	Kind      RecordKind    `json:"kind"`
	Instances int           `json:"instances"`        // the number at the decision; for ActionSucceeded, the number now
	Wanted    int           `json:"wanted"`           // the number decided on, within the limits
	Action    int64         `json:"action,omitempty"` // the number of the action that was decided on, or that has ended
	Rule      string        `json:"rule,omitempty"`   // the rule as text, if it is a fmt.Stringer
	Proposed  int           `json:"proposed"`         // what the rule proposed, before the limits
	Reason    string        `json:"reason"`           // one line for an operator
	Stats     []MetricStats `json:"figures,omitempty"`
}

// MetricStats are statistics of a metric over its window, at the time of a
// decision.
type MetricStats struct {
	Metric  string    `json:"metric"`
	Points  int       `json:"points"` // the number of values
	Last    float64   `json:"last"`   // the newest value
	Average float64   `json:"average"`
	Min     float64   `json:"min"`
	Max     float64   `json:"max"`
	Newest  time.Time `json:"newest,omitzero"`   // the time of the newest value
	Missing string    `json:"missing,omitempty"` // why the metric did not count; empty if it did
}

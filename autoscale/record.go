package autoscale

import "time"

// RecordKind says what a [Record] is about.
type RecordKind string

const (
	Up              RecordKind = "up"        // decided: more instances
	Down            RecordKind = "down"      // decided: fewer
	Hold            RecordKind = "hold"      // decided: leave it
	ActionSucceeded RecordKind = "succeeded" // an action had its effect
	ActionFailed    RecordKind = "failed"    // an action was given up
)

// Record is an entry of the decision log: a decision with the numbers behind
// it, also one to leave things as they are; or what became of an action.
type Record struct {
	Resource  string        `json:"resource"`
	Sequence  int64         `json:"sequence"` // from 1, consecutive per resource
	Time      time.Time     `json:"time"`
	Kind      RecordKind    `json:"kind"`
	Instances int           `json:"instances"`        // present; of Succeeded: now
	Wanted    int           `json:"wanted"`           // decided, within the limits
	Action    int64         `json:"action,omitempty"` // the number of the action decided on, or that it is about
	Rule      string        `json:"rule,omitempty"`   // the rule's own words
	Proposed  int           `json:"proposed"`         // what the rule proposed, before the limits
	Reason    string        `json:"reason"`           // why, in one line
	Stats     []MetricStats `json:"figures,omitempty"`
}

// MetricStats are a metric's numbers at the time of a decision, over its window.
type MetricStats struct {
	Metric  string    `json:"metric"`
	Points  int       `json:"points"`
	Last    float64   `json:"last"`
	Average float64   `json:"average"`
	Min     float64   `json:"min"`
	Max     float64   `json:"max"`
	Newest  time.Time `json:"newest,omitzero"`   // the last value's time
	Missing string    `json:"missing,omitempty"` // why the metric did not count, if it didn't
}

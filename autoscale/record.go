package autoscale

import "time"

// Kind says what a [Record] is about.
type Kind string

const (
	Up        Kind = "up"        // decided: more instances
	Down      Kind = "down"      // decided: fewer
	Hold      Kind = "hold"      // decided: leave it
	Succeeded Kind = "succeeded" // an action had its effect
	GivenUp   Kind = "failed"    // an action was given up
)

// Record is an entry of the decision log: a decision with the numbers behind
// it, also one to leave things as they are; or what became of an action.
type Record struct {
	Resource  string    `json:"resource"`
	Sequence  int64     `json:"sequence"` // from 1, consecutive per resource
	Time      time.Time `json:"time"`
	Kind      Kind      `json:"kind"`
	Instances int       `json:"instances"`        // present; of Succeeded: now
	Wanted    int       `json:"wanted"`           // decided, within the limits
	Action    int64     `json:"action,omitempty"` // the number of the action decided on, or that it is about
	Rule      string    `json:"rule,omitempty"`   // the rule's own words
	Proposed  int       `json:"proposed"`         // what the rule proposed, before the limits
	Reason    string    `json:"reason"`           // why, in one line
	Figures   []Figures `json:"figures,omitempty"`
}

// Figures are a metric's numbers at the time of a decision, over its window.
type Figures struct {
	Metric  string    `json:"metric"`
	Points  int       `json:"points"`
	Last    float64   `json:"last"`
	Average float64   `json:"average"`
	Min     float64   `json:"min"`
	Max     float64   `json:"max"`
	Newest  time.Time `json:"newest,omitzero"`   // the last value's time
	Missing string    `json:"missing,omitempty"` // why the metric did not count, if it didn't
}

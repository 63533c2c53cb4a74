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

// Cause is what has led to a decision, one of a few values, for metrics and alerts.
type Cause string

const (
	CauseRule       Cause = "rule"        // the rule's proposal
	CauseLimits     Cause = "limits"      // the proposal was beyond min or max
	CauseMissing    Cause = "missing"     // not scaled down while a metric is missing
	CauseCooldown   Cause = "cooldown"    // the cooldown has not passed
	CauseInProgress Cause = "in_progress" // an action has no outcome yet
	CauseUnknown    Cause = "unknown"     // the number of instances is not known, or stale
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
	Cause     Cause         `json:"cause,omitempty"`  // of a decision: what Reason comes down to
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

package autoscale

import "time"

// Rule says how many instances there should be. It only proposes: [Limits]
// and the cooldown are seen to behind it. A rule must not keep anything between
// calls, nor change what it is given.
type Rule interface {
	Propose(Situation) Proposal
}

// RuleFunc is a function as a [Rule].
type RuleFunc func(Situation) Proposal

// Propose implements [Rule].
func (f RuleFunc) Propose(s Situation) Proposal { return f(s) }

// Situation is what a [Rule] decides on.
type Situation struct {
	Now time.Time
	// Windows are those of the metrics that count: with enough values, fresh,
	// and not disabled.
	Windows map[string]*Window
	// Missing says of each other metric why it does not count.
	Missing map[string]string
	// Instances is the present count.
	Instances int
	// SinceAction is the time since the last action succeeded; Never if there was
	// none.
	SinceAction time.Duration
}

// Never is a time since what has not happened.
const Never time.Duration = 1<<63 - 1

// Proposal is what a [Rule] makes of a [Situation].
type Proposal struct {
	// Instances is the count that the rule wants; the present one if nothing
	// should change. Decide treats values outside the limits as the limit.
	Instances int
	// Reason says why, in one line with the numbers.
	Reason string
}

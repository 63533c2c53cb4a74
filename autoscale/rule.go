package autoscale

import "time"

// Rule proposes how many instances there should be. It only proposes: [Limits]
// and cooldowns are applied to what it returns. A rule must not keep state
// between calls, nor change its argument. A panic counts as a proposal to change
// nothing.
type Rule interface {
	Propose(Situation) Proposal
}

// StepLimiter is a [Rule] that changes the number of instances by bounded steps. A
// [Scaler] refuses actions with larger ones.
type StepLimiter interface {
	Rule
	// MaxSteps returns the largest steps up and down; 0 means that there is no bound.
	MaxSteps() (up, down int)
}

// RuleFunc makes a function a [Rule].
type RuleFunc func(Situation) Proposal

// Propose implements [Rule].
func (f RuleFunc) Propose(s Situation) Proposal { return f(s) }

// Situation is the input of a [Rule].
type Situation struct {
	// Now is the time at which windows end: at most one interval of collection
	// before the decision.
	Now time.Time
	// Windows are those of the metrics that count, by name: with enough values,
	// not stale, not disabled, and not failed.
	Windows map[string]*Window
	// Missing says, for each other metric, why it does not count.
	Missing map[string]string
	// Instances is the present number of instances.
	Instances int
	// SinceAction is the time since the last action succeeded; Never if there was
	// none.
	SinceAction time.Duration
}

// Never is the time since something that has not happened.
const Never time.Duration = 1<<63 - 1

// Proposal is the answer of a [Rule].
type Proposal struct {
	// Instances is the number of instances that the rule wants; the present number
	// if nothing should change. A number outside the limits is replaced by the
	// limit.
	Instances int
	// Reason is one line for an operator: which metric, which value, which
	// threshold.
	Reason string
}

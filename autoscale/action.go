package autoscale

import (
	"context"
	"time"
)

// Action is one change of a resource, to be carried out once.
type Action struct {
	Resource string    `json:"resource"`
	Number   int64     `json:"number"` // identifies the action: from 1, rising with each action of the resource
	From     int       `json:"from"`   // the number of instances when it was decided
	To       int       `json:"to"`     // the number of instances to scale to
	Decided  time.Time `json:"decided"`
	Reason   string    `json:"reason"` // the decision's, in one line

	step    int    // of a message of the published autoscaler: To is From and step
	message string // the id of that message
}

// maxNumberGap is how far the number of a genuine action or outcome can be above the last
// one. Numbers rise by one; the first of a state that was lost can be any that was reached.
const maxNumberGap = 1 << 32

// Outcome is the result of an [Action].
type Outcome struct {
	Number   int64     `json:"number"`          // the action's
	Time     time.Time `json:"time"`            // when it succeeded or was abandoned
	Err      string    `json:"error,omitempty"` // the last error in one line; empty if it succeeded
	Attempts int       `json:"tries"`           // how often it was attempted
	// Message is the id of the message that the action came by, if it had no number.
	Message string `json:"message,omitempty"`
}

// OK reports whether the action succeeded.
func (o Outcome) OK() bool { return o.Err == "" }

// Report is what a [Scaler] sends: how many instances a resource has, and the
// outcome of the last action.
type Report struct {
	Resource  string    `json:"resource"`
	Time      time.Time `json:"time"`
	Instances int       `json:"instances"`
	Outcome   *Outcome  `json:"outcome,omitempty"` // of the last action; nil if there was none
}

type actionKey struct{}

// ActionFrom returns the action for which a [Scaler] calls [Target.Scale]. A
// target can pass its number on, so that a repeated request is recognized as a
// duplicate. It returns false for any other context.
func ActionFrom(ctx context.Context) (Action, bool) {
	a, ok := ctx.Value(actionKey{}).(Action)
	return a, ok
}

func withAction(ctx context.Context, a Action) context.Context {
	return context.WithValue(ctx, actionKey{}, a)
}

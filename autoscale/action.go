package autoscale

import (
	"context"
	"time"
)

// Action is one change to a resource, to be carried out once.
type Action struct {
	Resource string    `json:"resource"`
	Number   int64     `json:"number"` // from 1, rising with each action of the resource: its identity
	From     int       `json:"from"`   // instances when it was decided
	To       int       `json:"to"`
	Decided  time.Time `json:"decided"`
	Reason   string    `json:"reason"`
}

// Outcome is what became of an [Action].
type Outcome struct {
	Number   int64     `json:"number"` // the action's
	Time     time.Time `json:"time"`   // when it had succeeded, or was given up
	Err      string    `json:"error,omitempty"`
	Attempts int       `json:"tries"`
}

// OK tells whether the action succeeded.
func (o Outcome) OK() bool { return o.Err == "" }

// Report is what a [Scaler] tells: how many instances a resource has, and what
// became of the last action.
type Report struct {
	Resource  string    `json:"resource"`
	Time      time.Time `json:"time"`
	Instances int       `json:"instances"`
	Outcome   *Outcome  `json:"outcome,omitempty"` // of the last action, if there has been one
}

type actionKey struct{}

// ActionFrom returns the action that a [Scaler] calls [Target.Scale] for, for
// targets that tell somebody else its number, so that repeats are known there.
func ActionFrom(ctx context.Context) (Action, bool) {
	a, ok := ctx.Value(actionKey{}).(Action)
	return a, ok
}

func withAction(ctx context.Context, a Action) context.Context {
	return context.WithValue(ctx, actionKey{}, a)
}

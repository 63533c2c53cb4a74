package driver

import "context"

// Attempt says which attempt at an event is being made.
type Attempt struct {
	Number   int  // from 1; of several events, that of the one with the most
	Last     bool // after it the event waits for an operator, unless it succeeds or the error is marked
	Redriven bool // the event is a dead letter, handled out of the partition's order
	Group    Group
}

type attemptKey struct{}

// WithAttempt returns a context that carries the attempt that is made in it.
func WithAttempt(ctx context.Context, a Attempt) context.Context {
	return context.WithValue(ctx, attemptKey{}, a)
}

// AttemptOf returns the attempt that is made in the context of a handler, or with
// sluice.AtLeastOnce of the function that makes an event's records, of Sink.Submit and of the
// function of sluice.Workers. There only a redrive is more than the first attempt: a record that
// was not written is sent again as it is. In any other context Number is 0.
func AttemptOf(ctx context.Context) Attempt {
	a, _ := ctx.Value(attemptKey{}).(Attempt)
	return a
}

package autoscale

import "context"

// Target is what is scaled: something with a number of instances (machines,
// replicas, processes; or units such as 100 RU/s).
type Target interface {
	// Instances returns how many instances there are or will be once everything
	// asked for so far has been done.
	Instances(ctx context.Context) (int, error)
	// Scale makes them to many, and returns nil when that is done, or accepted
	// by something that sees to it. It is repeated after an error, and may be
	// after a crash: to is a count, not a change.
	Scale(ctx context.Context, to int) error
}

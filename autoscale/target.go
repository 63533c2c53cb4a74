package autoscale

import "context"

// Target is what is scaled: something with a number of instances, such as
// machines, replicas, processes, or units of 100 RU/s. A scaler calls its methods
// from one goroutine at a time.
type Target interface {
	// Instances returns how many instances there are, or will be once everything
	// requested so far has been done.
	Instances(ctx context.Context) (int, error)
	// Scale changes the number of instances to to. It returns nil when that is
	// done, or when something has accepted the request and will carry it out. It is
	// called again after an error, and possibly after a crash: to is a number of
	// instances, not a difference, so a repeated call must do no harm.
	Scale(ctx context.Context, to int) error
}

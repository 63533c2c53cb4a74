package autoscale

import "context"

// Source reads one metric.
type Source interface {
	// Read returns the metric's present value. An empty queue is 0; a value that
	// cannot be determined is an error, never a number. Read must return soon after
	// ctx ends. A collector does not call it concurrently.
	Read(ctx context.Context) (Reading, error)
}

// SourceFunc makes a function a [Source].
type SourceFunc func(ctx context.Context) (Reading, error)

// Read implements [Source].
func (f SourceFunc) Read(ctx context.Context) (Reading, error) { return f(ctx) }

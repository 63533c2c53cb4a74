package autoscale

import "context"

// Source is where a metric comes from.
type Source interface {
	// Read returns the metric's present value. What is empty is zero; what can't
	// be known is an error, never a number. It returns soon after ctx ends, and
	// is not called concurrently.
	Read(ctx context.Context) (Reading, error)
}

// SourceFunc is a function as a [Source].
type SourceFunc func(ctx context.Context) (Reading, error)

// Read implements [Source].
func (f SourceFunc) Read(ctx context.Context) (Reading, error) { return f(ctx) }

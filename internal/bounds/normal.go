//go:build !sluice_small_bounds

package bounds

// Of returns a bound.
func Of(normal, small int) int { return normal }

// Small reports whether bounds are small.
const Small = false
